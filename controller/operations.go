package controller

import (
	"context"
	"sync"

	"github.com/agbox/agbox/controller/plan"
)

// operations are what a pass starts and does not wait for: pulls, copies, and stops with their grace period. At most one
// per key. Its end adds the sandbox's key to the queue; its error is handed to the next pass that wants the same, and
// dropped by one that does not; its success is remembered until the sandbox needs it no more.
type operations struct {
	done func(sandboxID string)
	wg   sync.WaitGroup

	mu      sync.Mutex
	running map[opKey]context.CancelFunc
	ended   map[opKey]error // nil: it succeeded
}

// opKey names an operation: what is done for which sandbox, and to what: an image or a container.
type opKey struct {
	sandboxID string
	kind      plan.Kind
	subject   string
}

func newOperations(done func(string)) *operations {
	return &operations{done: done, running: map[opKey]context.CancelFunc{}, ended: map[opKey]error{}}
}

// start runs fn unless that operation is under way. fn must be bounded by a deadline of its own.
func (o *operations) start(ctx context.Context, key opKey, fn func(context.Context) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[key] != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	o.running[key] = cancel
	delete(o.ended, key)
	o.wg.Go(func() {
		defer cancel()
		err := fn(ctx)
		o.finish(key, err, ctx.Err() != nil)
	})
}

func (o *operations) finish(key opKey, err error, cancelled bool) {
	o.mu.Lock()
	delete(o.running, key)
	if !cancelled && (err != nil || key.kind != plan.StopContainer) { // that a stop worked is seen
		o.ended[key] = err
	}
	o.mu.Unlock()
	o.done(key.sandboxID)
}

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
		for key, cancel := range o.running {
			if key.sandboxID == sandboxID && key.kind == kind {
				cancel()
			}
		}
	}
}

// wait returns when no operation is left. Their context must have ended.
func (o *operations) wait() { o.wg.Wait() }
