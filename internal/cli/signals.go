package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sameSignal is how long after the first signal another one counts as the same: timeout(1) sends each signal twice, to its
// child and to the child's group, and so do shells whose children pass it on. A user's second ^C is later.
const sameSignal = 500 * time.Millisecond

// Signalled is the cause of a context that a signal ended.
type Signalled struct{ Signal syscall.Signal }

// Error names the signal.
func (i *Signalled) Error() string { return i.Signal.String() }

// ExitCode returns what shells expect: 130 for SIGINT, 143 for SIGTERM.
func (i *Signalled) ExitCode() int { return 128 + int(i.Signal) }

// WithSignals returns a context that the first SIGINT or SIGTERM ends with *Signalled as cause; a second one, more than half a second
// later, calls exit at once. It ignores SIGPIPE, so that a closed pipe is a write error and exec can cancel its command. Call stop when
// done.
func WithSignals(ctx context.Context, exit func(code int)) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signal.Ignore(syscall.SIGPIPE)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	gone, held := make(chan struct{}), &atomic.Bool{}
	go func() {
		defer close(gone)
		watchSignals(ch, held, cancel, exit)
	}()
	settle := sync.OnceFunc(func() {
		signal.Stop(ch) // nothing is sent any more
		close(ch)
		<-gone
	})
	ctx = context.WithValue(ctx, heldKey{}, held)
	return context.WithValue(ctx, settleKey{}, settle), func() {
		settle()
		cancel(nil)
	}
}

// heldKey is the key of the flag of a context of WithSignals by which it ignores SIGINT.
type heldKey struct{}

// holdInterrupts leaves SIGINT to a program that shares the terminal until release is called. Other contexts than those of WithSignals have
// nothing to hold.
func holdInterrupts(ctx context.Context) (release func()) {
	held, ok := ctx.Value(heldKey{}).(*atomic.Bool)
	if !ok {
		return func() {}
	}
	held.Store(true)
	return func() { held.Store(false) }
}

// settleKey is the key of the function of a context of WithSignals that stops to receive signals and waits for those received.
type settleKey struct{}

// settleSignals waits until each signal received by now has ended a context of WithSignals. Later ones end the process. Other contexts have
// none.
func settleSignals(ctx context.Context) {
	if settle, ok := ctx.Value(settleKey{}).(func()); ok {
		settle()
	}
}

func watchSignals(ch <-chan os.Signal, held *atomic.Bool, cancel context.CancelCauseFunc, exit func(code int)) {
	var first time.Time
	for sig := range ch {
		i := &Signalled{Signal: sig.(syscall.Signal)}
		if i.Signal == syscall.SIGINT && held.Load() {
			continue
		}
		if first.IsZero() {
			first = time.Now()
			cancel(i)
		} else if time.Since(first) > sameSignal {
			exit(i.ExitCode())
		}
	}
}
