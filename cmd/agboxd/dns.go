package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/resolvers"
	"github.com/agbox/agbox/internal/wait"
)

const (
	// dnsIdle is how long "agboxd dns" lives without a sandbox to answer.
	dnsIdle = time.Minute
	// dnsLook is the interval at which the daemon and "agboxd dns" check whether a policy needs the process.
	dnsLook = time.Second
	// dnsMemory is how much memory "agboxd dns" uses before it collects garbage more often, in bytes: half as much again as its limits allow connections to
	// whose requests headers are added.
	dnsMemory = 768 << 20
	// dnsEnd is how long "agboxd dns" may take to end for its successor: meanwhile no name resolves.
	dnsEnd = 100 * time.Millisecond
)

// dnsCommand is the process that answers the DNS of sandboxes whose network policies name domains. The daemon starts it, and it outlives the
// daemon.
func dnsCommand(stderr io.Writer) *cobra.Command {
	var (
		dir  string
		port uint16
		ask  []string
		as   string
	)
	cmd := &cobra.Command{
		Use: "dns", Short: "Answer the DNS of sandboxes whose network policies name domains; agboxd starts it", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			upstreams := dnsfilter.ResolvConf(resolvers.Host.Main)
			if len(ask) > 0 {
				own := make([]netip.AddrPort, len(ask))
				for i, text := range ask {
					a, err := netip.ParseAddr(text)
					if err != nil {
						return &exitError{exitUsage, err}
					}
					own[i] = netip.AddrPortFrom(a, 53)
				}
				upstreams = func() []netip.AddrPort { return own }
			}
			rules := firewall.New(0)
			defer func() { _ = rules.Close() }()
			ctx, cancel := context.WithCancel(cmd.Context())
			var idle sync.WaitGroup
			idle.Go(func() { endWhenIdle(ctx, cancel, dnsfilter.Dir(dir)) })
			log := newLogger(config.LogFormatJSON, slog.LevelInfo, stderr)
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(dnsMemory)
			}
			stdlog.SetOutput(io.Discard) // net/http writes there what a server sends at the wrong time, without a bound: it may repeat a secret
			err := dnsfilter.Run(ctx, dnsfilter.Config{
				Dir: dnsfilter.Dir(dir), Identity: as, Port: port, Upstreams: upstreams, Admit: rules.Admit, Log: log,
				Report: dnsfilter.ReportTo(refusedIn(dir), func(err error) { log.Warn("refused names are not reported", "err", err) }),
			})
			cancel()
			idle.Wait()
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the directory of the policies")
	cmd.Flags().Uint16Var(&port, "port", 0, "the port to answer at")
	cmd.Flags().StringVar(&as, "as", "", "what the process is, for a daemon that wants another one")
	cmd.Flags().StringArrayVar(&ask, "ask", nil, "a DNS server to ask; default: those of this host")
	return cmd
}

// refusedIn is the file in which "agboxd dns" reports the names that it refuses.
func refusedIn(dir string) string { return filepath.Join(dir, "refused") }

// endWhenIdle calls end once the directory has had no policy for dnsIdle.
func endWhenIdle(ctx context.Context, end func(), dir dnsfilter.Dir) {
	needed := time.Now()
	for wait.For(ctx, dnsLook) == nil {
		if bridges, err := dir.Bridges(); err != nil || len(bridges) > 0 {
			needed = time.Now()
		}
		if time.Since(needed) > dnsIdle {
			end()
			return
		}
	}
}

// names are the policies that name domains, and the process that answers by them.
type names struct {
	dnsfilter.Dir
	args []string
	wake chan struct{}
	// identity is a hash of this program and args.
	identity func() (string, error)
}

func (d *daemon) newNames(dataDir string) *names {
	n := &names{Dir: dnsfilter.Dir(filepath.Join(dataDir, "dns")), wake: make(chan struct{}, 1)}
	n.args = []string{"dns", "--dir", string(n.Dir), "--port", strconv.Itoa(d.cfg.Runtime.DNSPort)}
	for _, a := range d.cfg.Docker.Resolvers {
		n.args = append(n.args, "--ask", a)
	}
	n.identity = sync.OnceValues(func() (string, error) { return identityOf("/proc/self/exe", n.args) })
	return n
}

// identityOf returns a hash of a program and its arguments.
func identityOf(program string, args []string) (string, error) {
	f, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	fmt.Fprintf(sum, "%q", args)
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// Write leaves a policy, and has the process started if it does not run.
func (n *names) Write(p dnsfilter.Policy) error {
	err := n.Dir.Write(p)
	select {
	case n.wake <- struct{}{}:
	default: // keep wakes up already
	}
	return err
}

// keep starts the process whenever it is needed and does not run, and logs the names that it refuses, until ctx ends. The process goes on then.
func (n *names) keep(ctx context.Context, log *slog.Logger) {
	refused := dnsfilter.NewReportReader(refusedIn(string(n.Dir)))
	defer refused.Close()
	var other *dnsfilter.Process
	for ctx.Err() == nil {
		if bridges, err := n.Bridges(); err == nil && len(bridges) > 0 {
			var err error
			if other, err = n.ensure(ctx, other, log); err != nil {
				log.Warn("the DNS of sandboxes whose network policies name domains is not answered", "err", err)
			}
		}
		pause := dnsLook
		if other != nil {
			pause = dnsEnd
		}
		lines, err := refused.Next()
		for _, r := range lines {
			log.Info("a name is refused", "sandbox_id", r.SandboxID, "name", r.Name, "reason", string(r.Reason), "count", r.Count)
		}
		if err != nil {
			log.Warn("refused names are not read", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-n.wake:
		case <-time.After(pause):
		}
	}
}

// ensure starts the process if none runs, and ends one of another release or with other settings; the next call starts its successor. other is what
// the last call returned: the process that was asked to end.
func (n *names) ensure(ctx context.Context, other *dnsfilter.Process, log *slog.Logger) (*dnsfilter.Process, error) {
	identity, err := n.identity()
	if err != nil {
		return other, fmt.Errorf("identify this program: %w", err)
	}
	p, err := n.Process()
	switch {
	case err != nil:
		return other, err
	case p == nil:
		return nil, n.start(ctx, identity)
	case p.Identity == identity:
		return nil, nil
	}
	signal := unix.SIGTERM
	if other != nil && *other == *p {
		signal = unix.SIGKILL // it does not answer
	}
	log.Info("\"agboxd dns\" is of another release, or has other settings: it is replaced", "pid", p.PID, "signal", signal.String())
	return p, n.End(*p, signal)
}

// start starts the process in a session of its own, and returns when it answers, or has ended.
func (n *names) start(ctx context.Context, identity string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(string(n.Dir), "log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, append(slices.Clone(n.args), "--as", identity)...) //nolint:noctx // it outlives the daemon
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = "/", log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // it ends with the process, which may outlive this one
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("\"agboxd dns\" ended, see %s: %w", log.Name(), err)
		case <-ctx.Done():
			return nil
		case <-time.After(10 * time.Millisecond):
		}
		if running, err := n.Running(); err != nil || running {
			return err
		}
	}
}
