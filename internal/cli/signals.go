package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Interrupted is the cause of a context that a signal ended.
type Interrupted struct{ Signal syscall.Signal }

// Error names the signal.
func (i *Interrupted) Error() string { return i.Signal.String() }

// ExitCode returns what shells expect: 130 for SIGINT, 143 for SIGTERM.
func (i *Interrupted) ExitCode() int { return 128 + int(i.Signal) }

// WithSignals returns a context that the first SIGINT or SIGTERM ends with *Interrupted as cause; the second one calls
// exit at once. SIGPIPE is ignored, so that a reader who leaves shows as a write error and exec can cancel its
// command. Call stop when done.
func WithSignals(ctx context.Context, exit func(code int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signal.Ignore(syscall.SIGPIPE)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		watchSignals(ch, quit, cancel, exit)
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(quit)
		<-gone
		cancel(nil)
	}
}

func watchSignals(ch <-chan os.Signal, quit <-chan struct{}, cancel context.CancelCauseFunc, exit func(code int)) {
	for first := true; ; first = false {
		select {
		case <-quit:
			return
		case sig := <-ch:
			i := &Interrupted{Signal: sig.(syscall.Signal)}
			if !first {
				exit(i.ExitCode())
			}
			cancel(i)
		}
	}
}
