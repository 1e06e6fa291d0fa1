package flight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted returns a function that takes a second, and how often it was started and cancelled.
func counted() (f func(context.Context) (int, error), started, cancelled *atomic.Int32) {
	started, cancelled = new(atomic.Int32), new(atomic.Int32)
	return func(ctx context.Context) (int, error) {
		n := started.Add(1)
		select {
		case <-time.After(time.Second):
			return int(n), nil
		case <-ctx.Done():
			cancelled.Add(1)
			return 0, ctx.Err()
		}
	}, started, cancelled
}

func TestOneRunServesAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int]()
		f, started, _ := counted()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if v, err := g.Do(t.Context(), "k", f); v != 1 || err != nil {
					t.Errorf("Do = %d, %v; want 1, nil", v, err)
				}
			})
		}
		wg.Wait()
		if n := started.Load(); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		if v, err := g.Do(t.Context(), "k", f); v != 2 || err != nil {
			t.Errorf("a later Do = %d, %v; want a run of its own", v, err)
		}
	})
}

func TestAWaiterWhoLeavesDoesNotEndTheRunForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int]()
		f, started, cancelled := counted()
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Do(ctx, "k", f); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the one who left: %v", err)
			}
		})
		if _, err := g.Do(t.Context(), "k", f); err != nil {
			t.Errorf("the one who stayed: %v", err)
		}
		wg.Wait()
		if started.Load() != 1 || cancelled.Load() != 0 {
			t.Errorf("%d runs, %d cancelled; want 1, 0", started.Load(), cancelled.Load())
		}
	})
}

func TestTheLastWaiterWhoLeavesEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int]()
		f, started, cancelled := counted()
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		_, _ = g.Do(ctx, "k", f)
		if v, err := g.Do(t.Context(), "k", f); v != 2 || err != nil {
			t.Errorf("Do after the end of a cancelled run = %d, %v; want a run of its own", v, err)
		}
		if started.Load() != 2 || cancelled.Load() != 1 {
			t.Errorf("%d runs, %d cancelled; want 2, 1", started.Load(), cancelled.Load())
		}
	})
}

func TestCloseEndsRunsAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int]()
		f, _, cancelled := counted()
		got := make(chan error, 1)
		go func() {
			_, err := g.Do(t.Context(), "k", f)
			got <- err
		}()
		synctest.Wait()
		g.Close()
		if cancelled.Load() != 1 {
			t.Error("Close returned before the run had ended")
		}
		if err := <-got; !errors.Is(err, ErrClosed) {
			t.Errorf("the waiter got %v", err)
		}
	})
}
