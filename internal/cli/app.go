// Package cli is the agbox command: kubectl's verbs over one daemon's API.
//
// Exit codes: 0 done; 1 the daemon refused, or something failed; 2 wrong usage; for diff 1 when something differs and 2
// for every error; for exec the command's own, 124 after its timeout, or 125 when it could not run; 130 and 143 after SIGINT and SIGTERM.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

// Exit codes that are fixed.
const (
	exitFailed    = 1
	exitUsage     = 2
	exitTimeout   = 124 // as of timeout(1)
	exitNotRun    = 125
	exitBrokenOut = 141 // 128 + SIGPIPE
)

// Streams are a command's standard streams.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Run executes one command line, without the program's name, and returns the exit code. A context that ends with
// *Signalled as its cause exits as that signal does.
func Run(ctx context.Context, args []string, version string, s Streams) int {
	a := &app{version: version}
	a.conn = sync.OnceValue(a.dial)
	defer func() { _ = a.conn().Close() }() // the process ends
	return a.execute(ctx, args, s)
}

func (a *app) execute(ctx context.Context, args []string, s Streams) int {
	out, errOut := termsafe.NewDisplay(s.Out), termsafe.NewDisplay(s.Err)
	defer func() { _, _ = out.Close(), errOut.Close() }() // an earlier write has returned the error of a stream that is gone
	a.Streams, a.notes = Streams{s.In, out, errOut}, &notes{out: s.Err}
	a.completes = len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd)
	defer a.notes.clear()
	root := a.rootCommand()
	root.SetArgs(args)
	return a.finish(ctx, root.ExecuteContext(ctx))
}

// app is what all commands of one run share.
type app struct {
	Streams
	version string
	flags   hostFlags
	conn    func() *client.Client // makes the connection on first use
	// completes is set while a shell completes a command line, where nothing may ask the user.
	completes bool
	notes     *notes
}

// restartPatience is how long calls are retried while the daemon does not answer; a restart of the daemon is shorter.
const restartPatience = 5 * time.Second

// exitError carries an exit code. Nothing is printed when err is nil.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit %d: %v", e.code, e.err) }
func (e *exitError) Unwrap() error { return e.err }

// usageError is an error in the command line.
type usageError struct{ text, help string }

func (e *usageError) Error() string { return e.text }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...), help: cmd.CommandPath() + " --help"}
}

// finish prints the error and returns the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	var exit *exitError
	var usage *usageError
	var signal *Signalled
	if err != nil {
		settleSignals(ctx) // a child that shares the terminal may have failed by the same ^C
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.err == nil:
		return exit.code
	case errors.Is(err, syscall.EPIPE):
		return exitBrokenOut // the reader has closed the pipe
	case errors.As(err, &usage):
		a.complain(err)
		fmt.Fprintf(a.Err, "See \"%s\".\n", usage.help)
		return exitUsage
	case errors.As(context.Cause(ctx), &signal):
		return signal.ExitCode()
	case exit != nil:
		a.complain(exit.err)
		return exit.code
	}
	a.complain(err)
	return exitFailed
}

// complain prints an error. Its text may be from a registry or a hook, so it indents lines after the first.
func (a *app) complain(err error) {
	a.notes.clear()
	text := strings.ReplaceAll(strings.TrimSpace(a.unreached(err).Error()), "\n", "\n  ")
	fmt.Fprintf(a.Err, "error: %s\n", termsafe.Text(text))
}

// hint prints a line to stderr, if there is one.
func (a *app) hint(text string) {
	if text != "" {
		fmt.Fprintln(a.Err, text)
	}
}

// colours reports whether w is a terminal on which to use colours.
func colours(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func isTerminal(w io.Writer) bool {
	f, ok := termsafe.Unfiltered(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
