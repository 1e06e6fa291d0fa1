// Package queue runs reconcile functions: a rate-limited queue of keys with its workers, and the background operations that a pass starts
// without waiting for them.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/agbox/agbox/internal/metrics"
)

// Result is the outcome of a pass that did not fail.
type Result struct {
	// Next is the requeue delay; zero: none.
	Next time.Duration
	// Pending: a background operation will add the key. Its failures count as those of the key, so the count of failures stays until a pass
	// ends without one.
	Pending bool
}

// TerminalError ends an attempt: a retry cannot fix it. Code is an error code of SANDBOX_FAILED.
type TerminalError struct {
	Code string
	Err  error
}

func (e *TerminalError) Error() string { return e.Err.Error() }
func (e *TerminalError) Unwrap() error { return e.Err }

// Ignore returns nil for an error of one of the classes: what it reports has a pass of its own, or nothing is left to do.
func Ignore(err error, classes ...func(error) bool) error {
	if slices.ContainsFunc(classes, func(is func(error) bool) bool { return is(err) }) {
		return nil
	}
	return err
}

// Backoff of a key that fails: 50 ms doubling to 30 s. There is no global bucket: one failing sandbox delays no other.
const (
	backoffBase = 50 * time.Millisecond
	backoffMax  = 30 * time.Second
)

// Options configure a Loop.
type Options struct {
	// Name is a metric label.
	Name string
	// Workers is the number of concurrent passes; each key has at most one.
	Workers int
	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Reconcile makes one pass over a key. It may be repeated, and may be the first after a crash.
type Reconcile func(ctx context.Context, key string) (Result, error)

// Watch runs source until ctx ends. Whenever source returns early, Watch calls lost and runs it again. A nil source returns at once.
func Watch(ctx context.Context, source func(ctx context.Context, notify func(sandboxID, execID string)) error,
	notify func(sandboxID, execID string), lost func(err error)) {
	for source != nil && ctx.Err() == nil {
		if err := source(ctx, notify); ctx.Err() == nil {
			lost(err)
		}
	}
}

// Loop is one queue with its workers. A key is an ID; one worker at a time owns it. Its methods may be called concurrently.
type Loop struct {
	o     Options
	queue workqueue.TypedRateLimitingInterface[string]
	// failures are those of the keys in backoff.
	failures *failures
}

// NewLoop returns a Loop that only collects keys until Run.
func NewLoop(o Options) *Loop {
	limiter := &failures{
		TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoffBase, backoffMax), last: map[string]Failure{},
	}
	return &Loop{
		o: o, failures: limiter,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig[string](limiter, workqueue.TypedRateLimitingQueueConfig[string]{
			Name: o.Name, MetricsProvider: o.Metrics.QueueProvider(),
		}),
	}
}

// Replace replaces the queue of a Loop by another with the same limiter. It is for simulations, and must be called before Run.
func (l *Loop) Replace(with func(name string, limiter workqueue.TypedRateLimiter[string]) workqueue.TypedRateLimitingInterface[string]) {
	l.queue.ShutDown()
	l.queue = with(l.o.Name, l.failures)
}

// Add enqueues a key.
func (l *Loop) Add(key string) { l.queue.Add(key) }

// AddAfter enqueues a key when d has passed.
func (l *Loop) AddAfter(key string, d time.Duration) { l.queue.AddAfter(key, d) }

// Forget resets the backoff of a key: its failures are counted from zero again.
func (l *Loop) Forget(key string) { l.queue.Forget(key) }

// Tries returns the number of consecutive failures of a key.
func (l *Loop) Tries(key string) int { return l.queue.NumRequeues(key) }

// Failure returns why the last pass over a key failed; the zero value for a key that does not fail.
func (l *Loop) Failure(key string) Failure { return l.failures.of(key) }

// Run runs passes until ctx ends and the passes under way are done.
func (l *Loop) Run(ctx context.Context, pass Reconcile) {
	stop := context.AfterFunc(ctx, l.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range l.o.Workers {
		wg.Go(func() {
			for l.next(ctx, pass) {
			}
		})
	}
	wg.Wait()
}

// next runs a pass for one key and maps its outcome to the queue; no other code does.
func (l *Loop) next(ctx context.Context, pass Reconcile) bool {
	key, quit := l.queue.Get()
	if quit {
		return false
	}
	defer l.queue.Done(key)
	start := time.Now()
	res, err := l.safely(ctx, key, pass)
	result := l.settle(ctx, key, res, err)
	l.o.Metrics.Pass(l.o.Name, result, time.Since(start))
	return true
}

func (l *Loop) settle(ctx context.Context, key string, res Result, err error) string {
	var terminal *TerminalError
	var panicked *panicError
	switch {
	case err == nil:
		if !res.Pending {
			l.queue.Forget(key)
		}
		if res.Next > 0 {
			l.queue.AddAfter(key, res.Next)
			return metrics.ResultLater
		}
		if res.Pending {
			return metrics.ResultLater
		}
		return metrics.ResultDone
	case errors.As(err, &terminal):
		l.queue.Forget(key)
		l.o.Logger.Error("the key failed permanently", "loop", l.o.Name, "key", key, "reason", terminal.Code, "err", err)
		return metrics.ResultTerminal
	case ctx.Err() != nil:
		return metrics.ResultError // shutting down; the first resync of the next daemon continues
	}
	l.failures.failed(key, err)
	l.queue.AddRateLimited(key)
	level, tries := slog.LevelWarn, l.Tries(key)
	if tries&(tries-1) != 0 { // tries 1, 2, 4, 8, ... suffice to show that it still fails
		level = slog.LevelDebug
	}
	l.o.Logger.Log(ctx, level, "will retry", "loop", l.o.Name, "key", key, "tries", tries, "err", err)
	if errors.As(err, &panicked) {
		return metrics.ResultPanic
	}
	return metrics.ResultError
}

type panicError struct{ value any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// safely runs a pass; a panic costs that key a retry and affects no other key.
func (l *Loop) safely(ctx context.Context, key string, pass Reconcile) (res Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			l.o.Logger.Error("panic in a pass", "loop", l.o.Name, "key", key, "stack", string(debug.Stack()))
			err = &panicError{v}
		}
	}()
	return pass(ctx, key)
}

// failures is the rate limiter of a queue that also keeps, for humans, why the last try of a key failed and when the next one is due. It
// drops a failure when the limiter drops its count.
type failures struct {
	workqueue.TypedRateLimiter[string]

	mu   sync.Mutex
	last map[string]Failure
}

// Failure is the last failure of a key.
type Failure struct {
	Err error
	// RetryAt is when the queue adds the key again, unless another source adds it before.
	RetryAt time.Time
}

// failed records an error; the queue's AddRateLimited must follow.
func (f *failures) failed(key string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[key] = Failure{Err: err, RetryAt: f.last[key].RetryAt}
}

// When implements workqueue.TypedRateLimiter. If a key is to be added at two times, the queue keeps the earlier one.
func (f *failures) When(key string) time.Duration {
	d := f.TypedRateLimiter.When(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	now, last := time.Now(), f.last[key]
	if next := now.Add(d); !last.RetryAt.After(now) || next.Before(last.RetryAt) {
		last.RetryAt = next
	}
	f.last[key] = last
	return d
}

// Forget implements workqueue.TypedRateLimiter.
func (f *failures) Forget(key string) {
	f.TypedRateLimiter.Forget(key)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.last, key)
}

// of returns the last failure of a key; the zero value if it does not fail.
func (f *failures) of(key string) Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last[key]
}
