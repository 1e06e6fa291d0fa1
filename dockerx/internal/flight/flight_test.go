package flight

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted returns a function that takes a second, and how often it was started and cancelled.
func counted() (f Func[int, int], started, cancelled *atomic.Int32) {
	started, cancelled = new(atomic.Int32), new(atomic.Int32)
	return func(ctx context.Context, _ func(int)) (int, error) {
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

func TestOneRunServesAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		f, started, _ := counted()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if v, err := g.Do(t.Context(), "k", f, nil); v != 1 || err != nil {
					t.Errorf("Do = %d, %v; want 1, nil", v, err)
				}
			})
		}
		wg.Wait()
		if n := started.Load(); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		if v, err := g.Do(t.Context(), "k", f, nil); v != 2 || err != nil {
			t.Errorf("a later Do = %d, %v; want a run of its own", v, err)
		}
	})
}

func TestLeavingWaiterDoesNotCancelTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		f, started, cancelled := counted()
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := g.Do(ctx, "k", f, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the waiter that left: %v", err)
			}
		})
		if _, err := g.Do(t.Context(), "k", f, nil); err != nil {
			t.Errorf("the waiter that stayed: %v", err)
		}
		wg.Wait()
		if started.Load() != 1 || cancelled.Load() != 0 {
			t.Errorf("%d runs, %d cancelled; want 1, 0", started.Load(), cancelled.Load())
		}
	})
}

func TestLastLeavingWaiterCancelsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		f, started, cancelled := counted()
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		_, _ = g.Do(ctx, "k", f, nil)
		if v, err := g.Do(t.Context(), "k", f, nil); v != 2 || err != nil {
			t.Errorf("Do after the end of a cancelled run = %d, %v; want a run of its own", v, err)
		}
		if started.Load() != 2 || cancelled.Load() != 1 {
			t.Errorf("%d runs, %d cancelled; want 2, 1", started.Load(), cancelled.Load())
		}
	})
}

func TestCloseCancelsRunsAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		f, _, cancelled := counted()
		got := make(chan error, 1)
		go func() {
			_, err := g.Do(t.Context(), "k", f, nil)
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

// stepping returns a function that reports 1, 2, 3 ... n, one every step, and ends with err.
func stepping(n int, step time.Duration, err error) Func[int, int] {
	return func(_ context.Context, report func(int)) (int, error) {
		for i := range n {
			time.Sleep(step)
			report(i + 1)
		}
		return n, err
	}
}

// told is one call of notify: its value and time.
type told struct {
	p  int
	at time.Duration
}

func TestEachWaiterIsNotifiedAtMostFourTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		start := time.Now()
		follow := func(wait time.Duration) (got []told) {
			time.Sleep(wait)
			v, err := g.Do(t.Context(), "k", stepping(99, 10*time.Millisecond, nil), func(p int) {
				got = append(got, told{p, time.Since(start)})
			})
			if v != 99 || err != nil {
				t.Errorf("Do = %d, %v", v, err)
			}
			return got
		}
		var early, late []told
		var wg sync.WaitGroup
		wg.Go(func() { early = follow(0) })
		wg.Go(func() { late = follow(605 * time.Millisecond) })
		wg.Wait()
		ms := time.Millisecond
		// A step and the end of a pause may coincide; their order is not defined.
		wantTold(t, early, []told{{0, 0}, {25, 250 * ms}, {50, 500 * ms}, {75, 750 * ms}, {99, 990 * ms}})
		wantTold(t, late, []told{{60, 605 * ms}, {85, 855 * ms}, {99, 990 * ms}})
	})
}

func wantTold(t *testing.T, got, want []told) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && got[i].at == want[i].at && (got[i].p == want[i].p || got[i].p == want[i].p-1 && i < len(want)-1)
	}
	if !ok {
		t.Errorf("notified %v, want %v", got, want)
	}
}

func TestEachReportIsNotifiedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		var got []int
		_, err := g.Do(t.Context(), "k", stepping(3, time.Minute, nil), func(p int) { got = append(got, p) })
		if want := []int{0, 1, 2, 3}; err != nil || !slices.Equal(got, want) {
			t.Errorf("notified %v, %v; want %v", got, err, want)
		}
	})
}

func TestLastReportOfAFailedRunIsNotNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		boom := errors.New("boom")
		var got []int
		_, err := g.Do(t.Context(), "k", stepping(1, time.Millisecond, boom), func(p int) { got = append(got, p) })
		if !errors.Is(err, boom) || !slices.Equal(got, []int{0}) {
			t.Errorf("notified %v, %v", got, err)
		}
	})
}

func TestSlowWaiterDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		f := stepping(10, 100*time.Millisecond, nil)
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = g.Do(t.Context(), "k", f, func(int) { time.Sleep(time.Hour) }) })
		_, _ = g.Do(t.Context(), "k", f, nil)
		if took := time.Since(start); took != time.Second {
			t.Errorf("the other waited %s", took)
		}
		wg.Wait()
	})
}

func TestWaiterLeavesWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup[int, int]()
		f, _, cancelled := counted()
		ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		_, err := g.Do(ctx, "k", f, func(int) {})
		synctest.Wait()
		if !errors.Is(err, context.DeadlineExceeded) || cancelled.Load() != 1 {
			t.Errorf("%v, %d runs cancelled", err, cancelled.Load())
		}
	})
}
