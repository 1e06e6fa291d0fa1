package queue

import (
	"context"
	"sync"
	"time"
)

// Operations are background operations that a pass starts without waiting for their end, or only briefly: pulls, copies, stops with their
// grace period, and removals. At most one runs per key. Its end calls done with the ID, unless the pass that started it has waited for the
// end; its error is kept for Outcome, and dropped by Drop; its success is kept until Drop if remember says so.
type Operations[Kind comparable] struct {
	done     func(id string)
	remember func(Kind) bool
	wg       sync.WaitGroup

	mu      sync.Mutex
	running map[Operation[Kind]]context.CancelFunc
	ended   map[Operation[Kind]]error // nil: it succeeded
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
		done: done, remember: remember, running: map[Operation[Kind]]context.CancelFunc{}, ended: map[Operation[Kind]]error{},
	}
}

// Start runs fn unless that operation is under way, and waits up to d for its end. ended is false if d has passed, or if the operation was
// already running; its end then enqueues the ID. fn must have a deadline of its own.
func (o *Operations[Kind]) Start(ctx context.Context, key Operation[Kind], d time.Duration, fn func(context.Context) error) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	if !o.register(key, cancel) {
		cancel()
		return false, nil
	}
	result, late := make(chan error), make(chan struct{})
	time.AfterFunc(d, func() { close(late) })
	o.wg.Go(func() {
		defer cancel()
		err := fn(ctx)
		select {
		case result <- err:
		case <-late:
			o.finish(key, err, ctx.Err() != nil)
		}
	})
	if d == 0 {
		return false, nil
	}
	select {
	case err = <-result:
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.running, key)
		return true, err
	case <-late:
		return false, nil
	}
}

// register records an operation as running; false: it is under way.
func (o *Operations[Kind]) register(key Operation[Kind], cancel context.CancelFunc) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[key] != nil {
		return false
	}
	o.running[key] = cancel
	delete(o.ended, key)
	return true
}

// finish keeps the outcome of an operation whose end no pass waits for.
func (o *Operations[Kind]) finish(key Operation[Kind], err error, cancelled bool) {
	o.mu.Lock()
	delete(o.running, key)
	if !cancelled && (err != nil || o.remember(key.Kind)) {
		o.ended[key] = err
	}
	o.mu.Unlock()
	o.done(key.ID)
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
		for key, cancel := range o.running {
			if key.ID == id && key.Kind == kind {
				cancel()
			}
		}
	}
}

// Wait returns when no operation is left. Their context must have ended.
func (o *Operations[Kind]) Wait() { o.wg.Wait() }
