// Command agboxd is the sandbox controller.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/internal/host/lockfile"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/store"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitOK      = 0
	exitRuntime = 1 // any other error
	exitUsage   = 2 // invalid arguments or configuration
	exitRunning = 3 // another agboxd holds the lock
	exitStore   = 4 // ids.db is damaged, locked, or written by a newer version
	// "agboxd audit" has its own codes, see audit.go.
)

// signals receives every SIGTERM and SIGINT, from the start of the process: the first ends main's context, beforeExit receives the others.
var signals = make(chan os.Signal, 4)

func main() {
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-signals
		cancel()
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code. It prints errors as one sentence on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out, errOut := termsafe.NewDisplay(stdout), termsafe.NewDisplay(stderr)
	defer func() { _, _ = out.Close(), errOut.Close() }() // a write has returned the error of a stream that is gone
	cmd := command(stderr)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(errOut, "agboxd: "+err.Error())
		return exitCode(err)
	}
	return exitOK
}

// exitError adds an exit code to an error.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// coded gives err, if there is one, an exit code.
func coded(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code, err}
}

func exitCode(err error) int {
	var coded *exitError
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, lockfile.ErrRunning):
		return exitRunning
	case errdefs.IsDataLoss(err), errdefs.IsFailedPrecondition(err):
		return exitStore
	}
	return exitRuntime
}

func command(stderr io.Writer) *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "agboxd",
		Short: "Run the sandbox controller",
		Long: "agboxd records the desired state of sandboxes and converges Docker to it. It serves gRPC on a unix socket (see agbox) and\n" +
			"metrics and readiness over HTTP. It may be killed at any moment; the next start continues. SIGHUP makes it read its\n" +
			"configuration file again.",
		Version: version, SilenceErrors: true, SilenceUsage: true, Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, o, stderr)
		},
	}
	root.Flags().StringVar(&o.configFile, "config", "", configFlagHelp)
	root.Flags().StringVar(&o.shim, "shim", "", "agbox-shim to mount into new sandboxes (default: the one beside agboxd)")
	root.Flags().StringVar(&o.e2b, "e2b", "", "address on which to serve the API of E2B's SDKs, such as 127.0.0.1:3000 (default: e2b.listen of the configuration)")
	addSiteFlags(root)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	root.AddCommand(checkStore(), configCommand(), dbCommand(), restoreCommand(), rehydrateCommand(), auditCommand(), purgeCommand(), dialStdioCommand(), dnsCommand(stderr))
	return root
}

func usageArgs(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, list []string) error {
		return coded(exitUsage, args(cmd, list))
	}
}

// checkStore returns the command that agboxd runs as a child process after an unclean end: reading a damaged file may cause a fault that
// cannot be recovered from.
func checkStore() *cobra.Command {
	return &cobra.Command{
		Use:   backup.CheckVerb + " FILE",
		Short: "Check that a database is readable and complete; changes nothing",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			err := store.CheckFile(args[0])
			if errdefs.IsDataLoss(err) {
				return &exitError{exitStore, err}
			}
			return coded(store.ExitNoVerdict, err) // an unreadable file may be complete
		},
	}
}
