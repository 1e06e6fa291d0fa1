package quota

import (
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestAQuotaIsAtMostHalfOfTheDisk(t *testing.T) {
	for _, c := range []struct{ configured, disk, want int64 }{
		{0, 1000, 0}, {100, 1000, 100}, {600, 1000, 500}, {600, 0, 600},
	} {
		if got := quotaOf(c.configured, c.disk); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestWhenAQuotaIsUsedUp(t *testing.T) {
	for _, c := range []struct {
		used, quota int64
		was, want   bool
	}{
		{99, 100, false, false}, {100, 100, false, true}, {90, 100, true, true}, {89, 100, true, false}, {1 << 40, 0, true, false},
	} {
		if got := usedUp(c.used, c.quota, c.was); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestASandboxIsMeasuredBeforeItCanUseUpItsQuota(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		used, quota int64
		want        time.Duration
	}{
		{0, 0, 30 * time.Second}, {0, 100, 2 * time.Second}, {0, 10 * gib, 10 * time.Second}, {3*gib + 1, 10 * gib, 6 * time.Second},
		{10 * gib, 10 * gib, 2 * time.Second}, {11 * gib, 10 * gib, 2 * time.Second}, {0, 1000 * gib, 30 * time.Second},
	} {
		if got := measuredAfter(c.used, c.quota); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestLogLimitIsTheRemainingQuota(t *testing.T) {
	for _, c := range []struct{ configured, quota, used, want int64 }{
		{100, 0, 1000, 100}, {0, 0, 1000, 0}, {100, 1000, 0, 100}, {100, 1000, 950, 50}, {0, 1000, 950, 50}, {100, 1000, 2000, 1},
	} {
		if got := logLimit(c.configured, c.quota, c.used); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestWatcherForgetsDeletedSandboxes(t *testing.T) {
	q := New(Options{})
	if full, changed := q.note("a", execjournal.Usage{Bytes: 10}, 5); !full || !changed {
		t.Error("it is used up")
	}
	if full, changed := q.note("a", execjournal.Usage{Bytes: 11}, 5); !full || changed {
		t.Error("it is used up as before")
	}
	q.note("b", execjournal.Usage{Bytes: 1}, 5)
	q.keep(map[string]bool{"b": true})
	if q.Full() != 0 || len(q.of) != 1 {
		t.Errorf("%v", q.of)
	}
}
