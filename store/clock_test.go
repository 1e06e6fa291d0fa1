package store

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/clockjump"
)

func TestTheClockIsOnRecord(t *testing.T) {
	s := open(t, testOptions(t))
	if rec, err := s.Clock(ctx); rec != nil || err != nil {
		t.Fatalf("before the first time: %v, %v", rec, err)
	}
	want := &storev1.ClockRecord{
		BootId: "one", BootedAt: 1, Wall: 2, Doubt: &storev1.ClockDoubt{Wait: &storev1.ClockWait{First: 3, Last: 4}, From: 5},
		Wrong: []*storev1.ClockSpan{{From: 6, To: 7, At: 8}},
	}
	must(t, s.SetClock(ctx, &storev1.ClockRecord{BootId: "zero"}))
	must(t, s.SetClock(ctx, want))
	s = reopen(t, s)
	if rec, err := s.Clock(ctx); err != nil || !proto.Equal(rec, want) {
		t.Errorf("%v, %v", rec, err)
	}
}

func TestADamagedRecordOfTheClockIsSetAside(t *testing.T) {
	s := open(t, testOptions(t))
	must(t, s.Close())
	change(t, s.o.Path, bucketMeta, keyClock, []byte("\xff"))
	s = open(t, s.o)
	if rec, err := s.Clock(ctx); rec != nil || err != nil || len(s.Corrupt()) != 1 {
		t.Errorf("%v, %v, %v", rec, err, s.Corrupt())
	}
	must(t, s.SetClock(ctx, &storev1.ClockRecord{BootId: "one"}))
	if rec, err := s.Clock(ctx); rec.GetBootId() != "one" || err != nil {
		t.Errorf("%v, %v", rec, err)
	}
}

// A request that is due by time is checked by the time of its decision, whatever the clock says at the commit.
func TestADeadlineIsCheckedAgainstTheTimeOfItsPass(t *testing.T) {
	const ttl = time.Hour
	for name, row := range map[string]struct {
		prepare func(s *Store)
		ask     func(s *Store, m clockjump.Moment) (bool, error)
	}{
		"idle stop": {func(s *Store) { makeReady(t, s, "box") }, func(s *Store, m clockjump.Moment) (bool, error) {
			return s.RequestIdleStop(ctx, "box", ttl, m)
		}},
		"cleanup": {func(s *Store) { makeReady(t, s, "box"); report(t, s, "box", failure("CONTAINER_DIED")) }, func(s *Store, m clockjump.Moment) (bool, error) {
			return s.RequestCleanup(ctx, "box", ttl, m)
		}},
		"expire": {func(s *Store) { makeReady(t, s, "box"); setTimeout(t, s, "box", Timeout{After: ttl}) }, func(s *Store, m clockjump.Moment) (bool, error) {
			return s.RequestExpire(ctx, "box", m)
		}},
		"cleanup of a paused one": {func(s *Store) { makePaused(t, s, "box"); demoteNow(t, s, "box") }, func(s *Store, m clockjump.Moment) (bool, error) {
			return s.RequestPauseCleanup(ctx, "box", ttl, m)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			s := open(t, c.options(testOptions(t)))
			row.prepare(s)
			asked := func(what string, m clockjump.Moment, want bool) {
				t.Helper()
				if changed, err := row.ask(s, m); changed != want || err != nil {
					t.Errorf("%s: %v, %v", what, changed, err)
				}
			}
			began := c.at
			c.pass(48 * time.Hour) // and only now
			asked("the clock jumped after it was found not to be due", clockjump.Moment{Now: began.Add(time.Minute)}, false)
			c.at = began.Add(10 * time.Minute)
			asked("it began after it was looked at, by a slow pass", clockjump.Moment{Now: began.Add(-10 * time.Minute), Since: began.Add(-9 * ttl)}, false)
			c.at = began.Add(-48 * time.Hour)
			asked("it began by a clock that was ahead", clockjump.Moment{Now: c.at, Since: c.at.Add(-time.Minute)}, false)
			wrong := []clockjump.Span{{From: began, To: began, At: began.Add(24 * time.Hour)}}
			c.at = began.Add(24*time.Hour + ttl)
			asked("it began by a clock that was behind", clockjump.Moment{Now: c.at.Add(-time.Second), Wrong: wrong}, false)
			asked("its time has come", clockjump.Moment{Now: c.at, Wrong: wrong}, true)
		})
	}
}

func TestADeadlineOfTheDayIsNotCounted(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	at := c.at.Add(time.Hour)
	set := c.at.Add(24 * time.Hour) // the correct time
	m := clockjump.Moment{Now: set, Wrong: []clockjump.Span{{From: c.at, To: c.at, At: set}}}
	setTimeout(t, s, "box", Timeout{At: at})
	if sb := get1(t, s, "box"); !sb.DeadlineBy(m).Equal(at) {
		t.Errorf("%v", sb.DeadlineBy(m))
	}
	setTimeout(t, s, "box", Timeout{After: 2 * time.Hour})
	if sb := get1(t, s, "box"); !sb.DeadlineBy(m).Equal(at.Add(25 * time.Hour)) {
		t.Errorf("%v", sb.DeadlineBy(m))
	}
}

func demoteNow(t *testing.T, s *Store, id string) {
	t.Helper()
	changed, err := s.Demote(ctx, id)
	if must(t, err); !changed {
		t.Fatal("not demoted")
	}
}
