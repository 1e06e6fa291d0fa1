package controller

import (
	"context"
	"sync"
	"time"

	"github.com/agbox/agbox/controller/plan"
)

// operations are what a pass starts and does not wait for, or not for long: pulls, copies, stops with their grace period, and
// removals. At most one per key. Its end adds the sandbox's key to the queue; its error is handed to the next pass that wants the same, and
// dropped by one that does not; its success is remembered until the sandbox needs it no more.
type operations struct {
	done func(sandboxID string)
	wg   sync.WaitGroup

	mu      sync.Mutex
	running map[opKey]*operation
	ended   map[opKey]error // nil: it succeeded
}

// operation is one that is under way.
type operation struct {
	cancel context.CancelFunc
	// done is closed at the end, after err was set.
	done chan struct{}
	err  error
	// awaited says that a pass waits for the end and gets its error, instead of the next start. Guarded by operations.mu.
	awaited bool
}

// opKey names an operation: what is done for which sandbox, and to what: an image or a container.
type opKey struct {
	sandboxID string
	kind      plan.Kind
	subject   string
}

func newOperations(done func(string)) *operations {
	return &operations{done: done, running: map[opKey]*operation{}, ended: map[opKey]error{}}
}

// start runs fn unless that operation is under way. fn must be bounded by a deadline of its own.
func (o *operations) start(ctx context.Context, key opKey, fn func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[key] == nil {
		o.begin(ctx, key, fn)
	}
}

// begin starts an operation that is not under way. o.mu is held.
func (o *operations) begin(ctx context.Context, key opKey, fn func(context.Context) error) *operation {
	ctx, cancel := context.WithCancel(ctx)
	op := &operation{cancel: cancel, done: make(chan struct{})}
	o.running[key] = op
	delete(o.ended, key)
	o.wg.Go(func() {
		defer cancel()
		err := fn(ctx)
		o.finish(key, op, err, ctx.Err() != nil)
	})
	return op
}

// await starts an operation and waits up to d for its end. ended is false when d has passed, or when the operation was already running; its
// end then enqueues the key. If an earlier run ended with an error that no pass has seen, await returns that error and starts nothing.
func (o *operations) await(ctx context.Context, key opKey, d time.Duration, fn func(context.Context) error) (ended bool, err error) {
	if _, err := o.outcome(key); err != nil {
		return true, err
	}
	o.mu.Lock()
	if o.running[key] != nil {
		o.mu.Unlock()
		return false, nil
	}
	op := o.begin(ctx, key, fn)
	op.awaited = true
	o.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-op.done:
	case <-timer.C:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	op.awaited = false
	select {
	case <-op.done:
		return true, op.err
	default:
		return false, nil
	}
}

func (o *operations) finish(key opKey, op *operation, err error, cancelled bool) {
	o.mu.Lock()
	delete(o.running, key)
	op.err = err
	close(op.done)
	awaited := op.awaited
	if !awaited && !cancelled && (err != nil || remembered(key.kind)) {
		o.ended[key] = err
	}
	o.mu.Unlock()
	if !awaited {
		o.done(key.sandboxID)
	}
}

// remembered reports whether a success must be kept: that of a stop or of a removal is seen.
func remembered(k plan.Kind) bool { return k == plan.EnsureImage || k == plan.CopyFiles }

// subjects are those of the operations of a kind that are under way for a sandbox.
func (o *operations) subjects(sandboxID string, kind plan.Kind) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []string
	for key := range o.running {
		if key.sandboxID == sandboxID && key.kind == kind {
			list = append(list, key.subject)
		}
	}
	return list
}

// outcome tells how an operation ended. An error is forgotten with that, a success is not.
func (o *operations) outcome(key opKey) (ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err, ended = o.ended[key]
	if err != nil {
		delete(o.ended, key)
	}
	return ended, err
}

// drop cancels the operations of a kind that are under way for a sandbox, and forgets those that ended. A stop is not
// cancelled by a client that leaves: the engine goes on with it.
func (o *operations) drop(sandboxID string, kinds ...plan.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, kind := range kinds {
		for key := range o.ended {
			if key.sandboxID == sandboxID && key.kind == kind {
				delete(o.ended, key)
			}
		}
		for key, op := range o.running {
			if key.sandboxID == sandboxID && key.kind == kind {
				op.cancel()
			}
		}
	}
}

// wait returns when no operation is left. Their context must have ended.
func (o *operations) wait() { o.wg.Wait() }
