package clock

import (
	"context"
	"log/slog"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
)

// How often the record of the clock is written when nothing happens to it. An old one costs nothing while the clock runs: it
// is compared with the clock that counts suspends, not with the time that went by.
const (
	recordEvery = 10 * time.Minute
	// recordSoon is how often while deadlines wait, and after an error.
	recordSoon = time.Minute
)

// Recorder stores the state of the clock: *store.Store.
type Recorder interface {
	SetClock(ctx context.Context, rec *storev1.ClockRecord) error
}

// keeper keeps the record of the clock up to date. It belongs to one goroutine.
type keeper struct {
	store Recorder
	log   *slog.Logger

	due    time.Duration // of the next write, by the clock that counts suspends
	failed bool
}

// write stores the record if something happened, or the last write is long ago. A daemon that dies before this write hides no jump: the
// next one compares with the previous record, and starts the grace period over.
func (k *keeper) write(ctx context.Context, s clockjump.State, r clockjump.Reading, happened bool) {
	if !happened && r.SinceBoot < k.due {
		return
	}
	err := k.store.SetClock(ctx, recordOf(s))
	if err != nil && !k.failed && ctx.Err() == nil {
		k.log.Warn("the clock could not be recorded; retrying", "err", err)
	}
	k.failed, k.due = err != nil, r.SinceBoot+recordEvery
	if k.failed || s.Doubt != nil || s.Woke != nil {
		k.due = r.SinceBoot + recordSoon
	}
}

func recordOf(s clockjump.State) *storev1.ClockRecord {
	rec := &storev1.ClockRecord{
		BootId: s.BootID, BootedAt: nanos(s.BootedAt), Wall: nanos(s.Wall), Slept: int64(s.Slept), Since: nanos(s.Since),
		Unsure: nanos(s.Unsure),
	}
	if s.Woke != nil {
		rec.Woke = waitRecord(*s.Woke)
	}
	if d := s.Doubt; d != nil {
		rec.Doubt = &storev1.ClockDoubt{
			Wait: waitRecord(d.Wait), NewBoot: d.NewBoot, BootedAt: nanos(d.BootedAt), From: nanos(d.From), Since: nanos(d.Since), To: nanos(d.To),
		}
	}
	for _, w := range s.Wrong {
		rec.Wrong = append(rec.Wrong, &storev1.ClockSpan{From: nanos(w.From), To: nanos(w.To), At: nanos(w.At)})
	}
	return rec
}

// StateOf returns the state of the clock that a record holds.
func StateOf(rec *storev1.ClockRecord) clockjump.State {
	s := clockjump.State{
		BootID: rec.GetBootId(), BootedAt: FromNanos(rec.GetBootedAt()), Wall: FromNanos(rec.GetWall()), Slept: time.Duration(rec.GetSlept()),
		Since: FromNanos(rec.GetSince()), Unsure: FromNanos(rec.GetUnsure()),
	}
	if w := rec.GetWoke(); w != nil {
		s.Woke = new(waitOf(w))
	}
	if d := rec.GetDoubt(); d != nil {
		s.Doubt = &clockjump.Doubt{
			Wait: waitOf(d.GetWait()), NewBoot: d.GetNewBoot(), BootedAt: FromNanos(d.GetBootedAt()), From: FromNanos(d.GetFrom()), Since: FromNanos(d.GetSince()), To: FromNanos(d.GetTo()),
		}
	}
	for _, w := range rec.GetWrong() {
		s.Wrong = append(s.Wrong, clockjump.Span{From: FromNanos(w.GetFrom()), To: FromNanos(w.GetTo()), At: FromNanos(w.GetAt())})
	}
	return s
}

func waitRecord(w clockjump.Wait) *storev1.ClockWait {
	return &storev1.ClockWait{First: int64(w.First), Last: int64(w.Last)}
}

func waitOf(w *storev1.ClockWait) clockjump.Wait {
	return clockjump.Wait{First: time.Duration(w.GetFirst()), Last: time.Duration(w.GetLast())}
}

// nanos is a time as it is stored; 0 is none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// FromNanos returns a stored time, in nanoseconds since 1970; 0 is the zero time.
func FromNanos(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}
