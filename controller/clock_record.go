package controller

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
	clockRecordEvery = 10 * time.Minute
	// clockRecordSoon is how often while deadlines wait, and after an error.
	clockRecordSoon = time.Minute
)

// clockRecorder writes the state of the clock to the store. It belongs to one goroutine.
type clockRecorder struct {
	store interface {
		SetClock(ctx context.Context, rec *storev1.ClockRecord) error
	}
	log *slog.Logger

	written bool
	at      time.Duration // of the last try, by the clock that counts suspends
	failed  bool
}

// keep writes the record if something happened, or it has been long. A daemon that dies before it hides no jump: its successor
// compares with the record before, and begins the grace period again.
func (k *clockRecorder) keep(ctx context.Context, s clockjump.State, r clockjump.Reading, happened bool) {
	every := clockRecordEvery
	if s.Doubt != nil || s.Woke != nil || k.failed {
		every = clockRecordSoon
	}
	if k.written && !happened && r.SinceBoot-k.at < every {
		return
	}
	err := k.store.SetClock(ctx, recordOfClock(s))
	if err != nil && !k.failed && ctx.Err() == nil {
		k.log.Warn("the clock could not be recorded; retrying", "err", err)
	}
	k.written, k.at, k.failed = true, r.SinceBoot, err != nil
}

// clockOnRecord is what an earlier daemon knew of the clock.
func (c *Controller) clockOnRecord() clockjump.State {
	rec, err := c.cfg.Store.Clock(context.Background())
	switch {
	case err != nil:
		c.log.Error("the record of the clock can't be read; ignoring it", "err", err)
	case rec != nil:
		return clockOf(rec)
	case len(c.cfg.Store.LiveIDs()) == 0 && !c.cfg.Store.RebuildPending():
		return clockjump.State{}
	}
	return clockjump.Unrecorded()
}

func recordOfClock(s clockjump.State) *storev1.ClockRecord {
	rec := &storev1.ClockRecord{
		BootId: s.BootID, BootedAt: nanos(s.BootedAt), Wall: nanos(s.Wall), Slept: int64(s.Slept), Since: nanos(s.Since),
		Unsure: nanos(s.Unsure), Woke: waitRecord(s.Woke),
	}
	if d := s.Doubt; d != nil {
		rec.Doubt = &storev1.ClockDoubt{
			Wait: waitRecord(&d.Wait), NewBoot: d.NewBoot, BootedAt: nanos(d.BootedAt), From: nanos(d.From), Since: nanos(d.Since), To: nanos(d.To),
		}
	}
	for _, w := range s.Wrong {
		rec.Wrong = append(rec.Wrong, &storev1.ClockSpan{From: nanos(w.From), To: nanos(w.To), At: nanos(w.At)})
	}
	return rec
}

func clockOf(rec *storev1.ClockRecord) clockjump.State {
	s := clockjump.State{
		BootID: rec.GetBootId(), BootedAt: fromNanos(rec.GetBootedAt()), Wall: fromNanos(rec.GetWall()), Slept: time.Duration(rec.GetSlept()),
		Since: fromNanos(rec.GetSince()), Unsure: fromNanos(rec.GetUnsure()), Woke: waitOf(rec.GetWoke()),
	}
	if d := rec.GetDoubt(); d != nil {
		s.Doubt = &clockjump.Doubt{
			NewBoot: d.GetNewBoot(), BootedAt: fromNanos(d.GetBootedAt()), From: fromNanos(d.GetFrom()), Since: fromNanos(d.GetSince()), To: fromNanos(d.GetTo()),
		}
		if w := waitOf(d.GetWait()); w != nil {
			s.Doubt.Wait = *w
		}
	}
	for _, w := range rec.GetWrong() {
		s.Wrong = append(s.Wrong, clockjump.Span{From: fromNanos(w.GetFrom()), To: fromNanos(w.GetTo()), At: fromNanos(w.GetAt())})
	}
	return s
}

func waitRecord(w *clockjump.Wait) *storev1.ClockWait {
	if w == nil {
		return nil
	}
	return &storev1.ClockWait{First: int64(w.First), Last: int64(w.Last)}
}

func waitOf(w *storev1.ClockWait) *clockjump.Wait {
	if w == nil {
		return nil
	}
	return &clockjump.Wait{First: time.Duration(w.GetFirst()), Last: time.Duration(w.GetLast())}
}

// nanos is a time as it is stored; 0 is none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
