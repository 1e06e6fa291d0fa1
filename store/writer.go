package store

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"github.com/agbox/agbox/internal/fault"
)

// maxGroup limits how many requests share a commit, and the length of the writer's queue.
const maxGroup = 1024

// request is one write waiting for the writer.
type request struct {
	fn    func(*txn) error
	op    string       // of the failpoints around its commit; "" in a release
	state atomic.Int32 // queued, then taken or abandoned, whichever is set first
	done  chan error   // buffered: the writer never waits for a caller
}

const (
	stateQueued int32 = iota
	stateTaken
	stateAbandoned
)

// update runs fn in the next group commit and returns its error, or the commit's. If ctx ends before the writer has taken the request,
// nothing is written and update returns ctx's error. After that update waits for the outcome, so that every caller knows whether its write
// was accepted.
func (s *Store) update(ctx context.Context, fn func(*txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := newRequest(fn)
	if err := s.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.state.CompareAndSwap(stateQueued, stateAbandoned) {
			return ctx.Err()
		}
		return <-r.done
	}
}

// updated is update for a function with a result, which is the zero value after an error.
func updated[T any](ctx context.Context, s *Store, fn func(*txn) (T, error)) (T, error) {
	var out, zero T
	err := s.update(ctx, func(t *txn) (err error) {
		out, err = fn(t)
		return err
	})
	if err != nil {
		return zero, err
	}
	return out, nil
}

func newRequest(fn func(*txn) error) *request {
	return &request{fn: fn, op: fault.Caller("(*Store)"), done: make(chan error, 1)}
}

func (s *Store) enqueue(ctx context.Context, r *request) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return errClosed()
	}
	select {
	case s.queue <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func errClosed() error { return fmt.Errorf("store is closed: %w", errdefs.ErrUnavailable) }

// write is the writer goroutine. It returns when the queue is closed and empty.
func (s *Store) write() {
	defer close(s.written)
	for first := range s.queue {
		s.commitGroup(s.collectGroup(first))
	}
}

// collectGroup takes the queued requests without waiting for more.
func (s *Store) collectGroup(first *request) []*request {
	group := make([]*request, 0, len(s.queue)+1)
	add := func(r *request) {
		if r.state.CompareAndSwap(stateQueued, stateTaken) {
			group = append(group, r)
		}
	}
	add(first)
	if s.alone > 0 {
		s.alone--
		return group
	}
	for len(group) < maxGroup {
		select {
		case r, ok := <-s.queue:
			if !ok {
				return group
			}
			add(r)
		default:
			return group
		}
	}
	return group
}

// group holds the requests that share one transaction, and their outcome.
type group struct {
	requests []*request
	errs     []error // of each request
	changes  facts
	accepted []*txn // transactions of the requests that staged something
}

// commitGroup runs the requests in one transaction, commits it, appends it to the log, publishes it and answers the callers, in that
// order.
func (s *Store) commitGroup(requests []*request) {
	if len(requests) == 0 {
		return
	}
	g := &group{requests: requests, errs: make([]error, len(requests)), changes: newFacts()}
	err := s.down
	if err == nil {
		err = s.runGroup(g)
	}
	for i, r := range g.requests {
		r.done <- cmp.Or(err, g.errs[i]) // err to refused requests too: the change that they were refused for may be lost
	}
}

func (s *Store) runGroup(g *group) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return fmt.Errorf("begin write: %w: %w", err, errdefs.ErrUnavailable)
	}
	if err := s.stageGroup(g, tx); err != nil {
		_ = tx.Rollback() // it was open: no other error is possible
		return fmt.Errorf("apply changes: %w: %w", err, errdefs.ErrUnavailable)
	}
	if len(g.accepted) == 0 {
		_ = tx.Rollback()
		return nil
	}
	if err := g.fault(fault.Before); err != nil {
		_ = tx.Rollback()
		return err
	}
	txid := tx.ID()
	start := time.Now()
	err = s.commit(g, tx)
	s.o.Observe(time.Since(start), len(g.accepted), err)
	if err != nil {
		return err
	}
	s.extendReserve()
	lost := g.fault(fault.After)
	s.keeper.append(txid, g.accepted)
	s.publish(g, txid)
	return lost
}

// fault runs the failpoints of the accepted requests. An error after the commit simulates a lost reply.
func (g *group) fault(when string) error {
	return fault.Points(fault.Store, when, func(yield func(op string) bool) {
		for _, t := range g.accepted {
			if !yield(t.op) {
				return
			}
		}
	})
}

// stageGroup runs each request and applies its staged changes unless it returned an error.
func (s *Store) stageGroup(g *group, tx *bolt.Tx) error {
	for i, r := range g.requests {
		t := &txn{loader: loader{tx, s.corrupt.add}, index: &s.index, group: g.changes, now: s.o.Now(), bootID: s.o.BootID, changes: newFacts(),
			limit: s.historyLimit.Load(), op: r.op}
		err := r.fn(t)
		if g.errs[i] = cmp.Or(t.err, err); g.errs[i] != nil || len(t.ops) == 0 {
			continue
		}
		if err := t.apply(); err != nil {
			return err
		}
		g.accepted = append(g.accepted, t)
	}
	return nil
}

// publish makes a commit visible: index first, then hooks and watchers. The commit is already in the log; callers are answered later.
func (s *Store) publish(g *group, txid int) {
	s.index.publish(g.changes)
	s.setDurable(txid, nil)
	for _, t := range g.accepted {
		if t.drain != nil {
			s.draining.Store(t.drain.record)
		}
		for _, c := range t.touched {
			for _, hook := range s.hooks() {
				hook(c)
			}
		}
		for _, o := range t.ops {
			s.hub.notify(o)
		}
	}
}

// OnCommit adds a hook. The writer goroutine calls it after each commit, once per change in order; it must neither block nor write. Hook
// calls are lost in a crash: the work that they start must also be found by reading the store.
func (s *Store) OnCommit(fn func(Change)) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	s.hookList = append(s.hookList[:len(s.hookList):len(s.hookList)], fn)
}

func (s *Store) hooks() []func(Change) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	return s.hookList
}
