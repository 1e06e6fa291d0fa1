package controller

import (
	"context"
	"sync"

	"github.com/agbox/agbox/controller/plan"
)

// operations are what a pass starts and does not wait for: pulls, and stops with their grace period. At most one per
// sandbox. Its end adds the sandbox's key; its error is handed to the next pass that wants the same, and dropped by one
// that does not.
type operations struct {
	done func(sandboxID string)
	wg   sync.WaitGroup

	mu      sync.Mutex
	running map[string]*operation
	errors  map[string]operationError
}

type operation struct {
	kind   plan.Kind
	cancel context.CancelFunc
}

type operationError struct {
	kind plan.Kind
	err  error
}

func newOperations(done func(string)) *operations {
	return &operations{done: done, running: map[string]*operation{}, errors: map[string]operationError{}}
}

// start runs fn unless an operation of the sandbox is under way. fn must be bounded by a deadline of its own.
func (o *operations) start(ctx context.Context, sandboxID string, kind plan.Kind, fn func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[sandboxID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	o.running[sandboxID] = &operation{kind, cancel}
	o.wg.Go(func() {
		defer cancel()
		err := fn(ctx)
		o.finish(sandboxID, kind, err, ctx.Err() != nil)
	})
}

func (o *operations) finish(sandboxID string, kind plan.Kind, err error, cancelled bool) {
	o.mu.Lock()
	delete(o.running, sandboxID)
	if err != nil && !cancelled {
		o.errors[sandboxID] = operationError{kind, err}
	}
	o.mu.Unlock()
	o.done(sandboxID)
}

// current is the kind of the operation under way, or empty.
func (o *operations) current(sandboxID string) plan.Kind {
	o.mu.Lock()
	defer o.mu.Unlock()
	if op := o.running[sandboxID]; op != nil {
		return op.kind
	}
	return ""
}

// failure returns the error of the last operation, which is of that kind, and forgets it.
func (o *operations) failure(sandboxID string, kind plan.Kind) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.errors[sandboxID]
	if e.kind != kind {
		return nil
	}
	delete(o.errors, sandboxID)
	return e.err
}

// drop cancels the operation under way if it is of that kind, and forgets the error of one that was. A stop is not
// cancelled by a client that leaves: the engine goes on with it.
func (o *operations) drop(sandboxID string, kind plan.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.errors[sandboxID].kind == kind {
		delete(o.errors, sandboxID)
	}
	if op := o.running[sandboxID]; op != nil && op.kind == kind {
		op.cancel()
	}
}

// wait returns when no operation is left. Their context must have ended.
func (o *operations) wait() { o.wg.Wait() }
