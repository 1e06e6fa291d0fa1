package clock

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/metrics"
)

// records keeps the last record of the clock.
type records struct {
	last atomic.Pointer[storev1.ClockRecord]
}

func (r *records) SetClock(_ context.Context, rec *storev1.ClockRecord) error {
	r.last.Store(proto.CloneOf(rec))
	return nil
}

// TestASuspendIsNoJumpOfTheClock: CLOCK_BOOTTIME counts a suspend and CLOCK_MONOTONIC does not, so the time went by, and deadlines that passed
// meanwhile wait for the grace period, also under a daemon that is started in it. A clock that jumped as far without a suspend is a jump.
func TestASuspendIsNoJumpOfTheClock(t *testing.T) {
	const grace, slept = 10 * time.Minute, 48 * time.Hour
	for name, row := range map[string]struct {
		suspended time.Duration // of slept; the rest is a step of the wall clock
		kind, why string
	}{
		"a suspend": {slept, "suspend", "the host slept"},
		"a step":    {0, "forward", "the host's clock jumped by 48h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asleep, stepped := time.Now(), atomic.Int64{}, atomic.Int64{}
				source := func() clockjump.Reading {
					awake := time.Since(began)
					up := awake + time.Duration(asleep.Load())
					return clockjump.Reading{Wall: began.Add(up + time.Duration(stepped.Load())).Round(0), SinceBoot: up, Awake: awake, BootID: "boot", Synced: true}
				}
				c := New(source, func() time.Duration { return grace }, clockjump.State{})
				reg, store, changed := prometheus.NewRegistry(), &records{}, atomic.Int32{}
				o := Watcher{
					Store: store, Changed: func() { changed.Add(1) }, Logger: slog.New(slog.DiscardHandler),
					Metrics: metrics.New(reg, metrics.Sets{ClockJumps: []string{"suspend", "forward"}}),
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); c.Watch(ctx, o) }()
				time.Sleep(time.Minute)
				before := c.Read()
				asleep.Add(int64(row.suspended))
				stepped.Add(int64(slept - row.suspended))
				time.Sleep(2 * time.Second)

				after := c.Read()
				if passed := after.Now.Sub(before.Now); passed != slept+2*time.Second {
					t.Errorf("%s went by, want the time asleep and 2s", passed)
				}
				if after.Hold <= 0 || after.Hold > grace {
					t.Errorf("deadlines wait for %s, want up to %s", after.Hold, grace)
				}
				if why := c.Warning(); !strings.HasPrefix(why, row.why+"; deadlines wait until ") {
					t.Errorf("the warning is %q", why)
				}
				if n := jumps(t, reg, row.kind); n != 1 || changed.Load() != 1 {
					t.Errorf("%v jumps of kind %s, Changed was called %d times", n, row.kind, changed.Load())
				}
				next := New(source, func() time.Duration { return grace }, StateOf(store.last.Load()))
				if hold := next.Read().Hold; hold <= 0 || hold > grace {
					t.Errorf("under the next daemon deadlines wait for %s", hold)
				}
				time.Sleep(grace)
				if l := c.Read(); l.Hold != 0 || c.Warning() != "" {
					t.Errorf("after the grace period deadlines wait for %s: %q", l.Hold, c.Warning())
				}
				stop()
				<-done
			})
		})
	}
}

// jumps returns the number of jumps of a kind on the metrics; all others are 0.
func jumps(t *testing.T, reg *prometheus.Registry, kind string) (n float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "agboxd_clock_jumps_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == kind {
				n = m.GetCounter().GetValue()
			} else if m.GetCounter().GetValue() != 0 {
				t.Errorf("%v", m)
			}
		}
	}
	return n
}
