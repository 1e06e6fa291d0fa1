package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/cli/contexts"
	"github.com/agbox/agbox/internal/manifest"
)

// Environment variables that name a context, and the files of a tcp:// host.
const (
	envContext = "AGBOX_CONTEXT"
	envTLSCert = "AGBOX_TLS_CERT"
	envTLSKey  = "AGBOX_TLS_KEY"
	envTLSCA   = "AGBOX_TLS_CA"
)

// hostFlags are the flags that name a daemon.
type hostFlags struct {
	contexts.Context
	name string // of a context
}

func (a *app) hostFlags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&a.flags.Host, "host", "", "daemon: a socket's path, ssh://[USER@]HOST[:PORT][/SOCKET] or tcp://HOST:PORT (default $"+client.EnvHost+
		", else of the context, else "+client.DefaultSocket()+")")
	f.StringVar(&a.flags.name, "context", "", "name of a host, see \"agbox context\" (default $"+envContext+", else the current one)")
	f.StringVar(&a.flags.TLSCert, "tls-cert", "", "with a tcp:// host: this client's certificate (default $"+envTLSCert+")")
	f.StringVar(&a.flags.TLSKey, "tls-key", "", "with a tcp:// host: the certificate's key (default $"+envTLSKey+")")
	f.StringVar(&a.flags.TLSCA, "tls-ca", "", "with a tcp:// host: the authority of the daemon's certificate (default $"+envTLSCA+")")
	onFlag(root, "context", a.contextNames(true))
	for _, file := range []string{"tls-cert", "tls-key", "tls-ca"} {
		onFlag(root, file, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		})
	}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if a.flags.Host != "" && a.flags.name != "" {
			return usagef(cmd, "--host and --context both name a daemon; give one of them")
		}
		return nil
	}
}

// target is the daemon of a command.
type target struct {
	contexts.Context
	name string // of the context; empty: the host was given without one
	file string // the file of that context; empty: none
	why  string // what chose it
}

// remote reports whether the daemon may run on another host.
func (t target) remote() bool {
	return strings.HasPrefix(t.Host, "ssh://") || strings.HasPrefix(t.Host, "tcp://")
}

// target returns the daemon that flags, environment and the current context name, the first of: --host, --context, AGBOX_HOST, AGBOX_CONTEXT, the
// current context, the socket on this host.
func (a *app) target() (target, error) {
	named := contexts.Context{
		TLSCert: cmp.Or(a.flags.TLSCert, os.Getenv(envTLSCert)), TLSKey: cmp.Or(a.flags.TLSKey, os.Getenv(envTLSKey)),
		TLSCA: cmp.Or(a.flags.TLSCA, os.Getenv(envTLSCA)),
	}
	env := os.Getenv(client.EnvHost)
	switch {
	case a.flags.Host != "":
		named.Host = a.flags.Host
		return target{Context: named, why: "--host"}, nil
	case a.flags.name != "":
		return contextTarget(a.flags.name, "--context")
	case env != "":
		named.Host = env
		return target{Context: named, why: "$" + client.EnvHost}, nil
	case os.Getenv(envContext) != "":
		return contextTarget(os.Getenv(envContext), "$"+envContext)
	}
	return contextTarget("", "the current context")
}

// contextTarget returns the daemon of a context; of the current one without a name.
func contextTarget(name, why string) (target, error) {
	local := target{Context: contexts.Context{Host: client.LocalSocket()}, name: contexts.Default, why: why}
	if name == contexts.Default {
		return local, nil
	}
	path, err := contexts.Path()
	if err != nil {
		if name == "" {
			return local, nil // a user without a home has no contexts
		}
		return target{}, err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return target{}, err
	}
	if name = cmp.Or(name, file.Current); name == "" {
		local.why = "no context is the current one"
		return local, nil
	}
	one, ok := file.Contexts[name]
	if !ok {
		return target{}, noContext(name, path)
	}
	return target{Context: one, name: name, file: path, why: why}, nil
}

func noContext(name, path string) error {
	return fmt.Errorf("there is no context %q in %s; \"agbox context ls\" lists those that are there", name, path)
}

// tls returns the configuration for a tcp:// host, nil for others.
func (t target) tls() (*tls.Config, error) {
	if !strings.HasPrefix(t.Host, "tcp://") {
		return nil, nil //nolint:nilnil // none is needed
	}
	for _, need := range []struct{ flag, env, value string }{
		{"--tls-cert", envTLSCert, t.TLSCert}, {"--tls-key", envTLSKey, t.TLSKey}, {"--tls-ca", envTLSCA, t.TLSCA},
	} {
		if need.value == "" {
			return nil, fmt.Errorf("host %q needs a client certificate: give %s, or set %s", t.Host, need.flag, need.env)
		}
	}
	return client.TLSFromFiles(t.TLSCert, t.TLSKey, t.TLSCA)
}

// named adds to an error of the connection which context named the host.
func (t target) named(err error) error {
	if t.file == "" {
		return err
	}
	return fmt.Errorf("%w (context %q in %s)", err, t.name, t.file)
}

// dial prepares the connection. Its first call tells whether a daemon answers, or what is wrong with the host.
func (a *app) dial() *client.Client {
	c, err := a.connection()
	if err != nil {
		return client.New(noHost{err})
	}
	return c
}

func (a *app) connection() (*client.Client, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	config, err := t.tls()
	if err != nil {
		return nil, t.named(err)
	}
	var once sync.Once
	c, err := client.DialWith(t.Host, client.Options{Patience: restartPatience, TLS: config, NoPrompt: a.completes, OnAway: func() {
		once.Do(func() { a.notes.say("agboxd does not answer; trying again for " + restartPatience.String()) })
	}})
	if err != nil {
		return nil, t.named(err)
	}
	return c, nil
}

// noHost is a connection to nothing.
type noHost struct{ err error }

func (n noHost) status() error { return status.Error(codes.InvalidArgument, n.err.Error()) }

// Invoke implements grpc.ClientConnInterface.
func (n noHost) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return n.status()
}

// NewStream implements grpc.ClientConnInterface.
func (n noHost) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, n.status()
}

// unreached adds the context to an error of a daemon that was not reached.
func (a *app) unreached(err error) error {
	answer, ok := errors.AsType[*client.Error](err)
	if !ok || answer.Reason != "" || answer.Code != codes.Unavailable && answer.Code != codes.Unauthenticated {
		return err
	}
	t, targetErr := a.target()
	if targetErr != nil {
		return err
	}
	return t.named(err)
}

// home is what "~" in host paths stands for: they are paths on the daemon's host, where this user may be unknown. Empty: nothing.
func (a *app) home() string {
	if t, err := a.target(); err == nil && t.remote() {
		return ""
	}
	return manifest.Home()
}
