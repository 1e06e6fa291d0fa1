package queue

import (
	"context"
	"sync"
	"time"
)

// Operations are background operations that a pass starts without waiting for their end, or only briefly: pulls, copies, stops with their
// grace period, and removals. At most one runs per key. Its end calls done with the ID; its error is returned to the next pass that starts
// the same operation, and dropped by Drop; its success is kept until Drop if remember says so.
type Operations[Kind comparable] struct {
	done     func(id string)
	remember func(Kind) bool
	wg       sync.WaitGroup

	mu      sync.Mutex
	running map[Operation[Kind]]*running
	ended   map[Operation[Kind]]error // nil: it succeeded
}

// running is an operation under way.
type running struct {
	cancel context.CancelFunc
	// done is closed at the end, after err was set.
	done chan struct{}
	err  error
	// awaited: a pass waits for the end and gets its error, instead of the next start. Guarded by Operations.mu.
	awaited bool
}

// Operation names an operation: the ID of the sandbox, what is done, and to what.
type Operation[Kind comparable] struct {
	ID      string
	Kind    Kind
	Subject string
}

// NewOperations returns empty Operations. done is called at the end of each operation that no pass waits for. remember reports whether the
// success of a kind must be kept until Drop, because nothing else shows it.
func NewOperations[Kind comparable](done func(id string), remember func(Kind) bool) *Operations[Kind] {
	return &Operations[Kind]{
		done: done, remember: remember, running: map[Operation[Kind]]*running{}, ended: map[Operation[Kind]]error{},
	}
}

// Start runs fn unless that operation is under way. fn must have a deadline of its own.
func (o *Operations[Kind]) Start(ctx context.Context, key Operation[Kind], fn func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[key] == nil {
		o.begin(ctx, key, fn)
	}
}

// begin starts an operation that is not under way. o.mu is held.
func (o *Operations[Kind]) begin(ctx context.Context, key Operation[Kind], fn func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(ctx)
	op := &running{cancel: cancel, done: make(chan struct{})}
	o.running[key] = op
	delete(o.ended, key)
	o.wg.Go(func() {
		defer cancel()
		err := fn(ctx)
		o.finish(key, op, err, ctx.Err() != nil)
	})
	return op
}

// Await starts an operation and waits up to d for its end. ended is false if d has passed, or if the operation was already running; its end
// then enqueues the key. If an earlier run ended with an error that no pass has seen, Await returns that error and starts nothing.
func (o *Operations[Kind]) Await(ctx context.Context, key Operation[Kind], d time.Duration, fn func(context.Context) error) (ended bool, err error) {
	if _, err := o.Outcome(key); err != nil {
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
	select {
	case <-op.done:
	case <-time.After(d):
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

func (o *Operations[Kind]) finish(key Operation[Kind], op *running, err error, cancelled bool) {
	o.mu.Lock()
	delete(o.running, key)
	op.err = err
	close(op.done)
	awaited := op.awaited
	if !awaited && !cancelled && (err != nil || o.remember(key.Kind)) {
		o.ended[key] = err
	}
	o.mu.Unlock()
	if !awaited {
		o.done(key.ID)
	}
}

// Subjects returns the subjects of the operations of a kind that are under way for an ID.
func (o *Operations[Kind]) Subjects(id string, kind Kind) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []string
	for key := range o.running {
		if key.ID == id && key.Kind == kind {
			list = append(list, key.Subject)
		}
	}
	return list
}

// Outcome reports how an operation ended. It drops an error and keeps a success.
func (o *Operations[Kind]) Outcome(key Operation[Kind]) (ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err, ended = o.ended[key]
	if err != nil {
		delete(o.ended, key)
	}
	return ended, err
}

// Drop cancels the operations of a kind that are under way for an ID, and forgets the ended ones. If the operation is a stop, the engine
// continues it: a client that disconnects does not cancel it.
func (o *Operations[Kind]) Drop(id string, kinds ...Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, kind := range kinds {
		for key := range o.ended {
			if key.ID == id && key.Kind == kind {
				delete(o.ended, key)
			}
		}
		for key, op := range o.running {
			if key.ID == id && key.Kind == kind {
				op.cancel()
			}
		}
	}
}

// Wait returns when no operation is left. Their context must have ended.
func (o *Operations[Kind]) Wait() { o.wg.Wait() }
