package store

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// readyWith reports SANDBOX_READY with a timeout.
func readyWith(t testing.TB, s *Store, id string, timeout time.Duration) {
	t.Helper()
	must(t, s.Report(ctx, id, Report{
		Generation: get1(t, s, id).Desired.GetGeneration(), Timeout: timeout,
		Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_READY, ready)},
	}))
}

func wantDeadline(t testing.TB, s *Store, id string, at time.Time, set bool) {
	t.Helper()
	var want int64
	if !at.IsZero() {
		want = at.UnixNano()
	}
	if d := get1(t, s, id).Desired; d.GetDeadlineAt() != want || d.GetDeadlineSet() != set {
		t.Fatalf("deadline of %s is %v, set %v; want %v, %v", id, time.Unix(0, d.GetDeadlineAt()).UTC(), d.GetDeadlineSet(), at.UTC(), set)
	}
}

func setTimeout(t testing.TB, s *Store, id string, to Timeout) time.Time {
	t.Helper()
	deadline, _, err := s.SetTimeout(ctx, id, to)
	must(t, err)
	return deadline
}

// TestALifetimeBeginsWhenTheSandboxIsReady: each row has the deadline before, the effective timeout, and the deadline after.
func TestALifetimeBeginsWhenTheSandboxIsReady(t *testing.T) {
	start := newClock().at
	at := func(d time.Duration) int64 { return start.Add(d).UnixNano() }
	for name, row := range map[string]struct {
		deadline int64
		set      bool
		timeout  time.Duration
		want     int64
		wantSet  bool
	}{
		"nothing, a timeout":               {0, false, time.Hour, at(time.Hour), false},
		"nothing, none":                    {0, false, 0, 0, false},
		"set to never, a timeout":          {0, true, time.Hour, 0, true},
		"set, to come":                     {at(time.Minute), true, time.Hour, at(time.Minute), true},
		"not set, to come":                 {at(time.Minute), false, time.Hour, at(time.Minute), false},
		"to come, none by now":             {at(time.Minute), false, 0, at(time.Minute), false},
		"set, passed":                      {at(-1), true, time.Hour, at(time.Hour), false},
		"not set, passed":                  {at(-1), false, time.Hour, at(time.Hour), false},
		"passed this moment":               {at(0), true, time.Hour, at(time.Hour), false},
		"passed, none by now":              {at(-1), true, 0, 0, false},
		"passed, an update that is broken": {at(-1), true, -1, 0, false},
	} {
		s := open(t, newClock().options(testOptions(t)))
		create(t, s, "box")
		must(t, s.update(ctx, func(t *txn) error {
			sb := t.live("box")
			sb.Desired.DeadlineAt, sb.Desired.DeadlineSet = row.deadline, row.set
			t.keep(sb, "")
			t.put(bucketDesired, "box", sb.Desired)
			return nil
		}))
		readyWith(t, s, "box", row.timeout)
		s = survives(t, s)
		if d := get1(t, s, "box").Desired; d.GetDeadlineAt() != row.want || d.GetDeadlineSet() != row.wantSet || d.GetGeneration() != 1 {
			t.Errorf("%s: %v", name, d)
		}
	}
}

func TestOnlyReadyBeginsALifetime(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	create(t, s, "box")
	must(t, s.Report(ctx, "box", Report{Generation: 1, Timeout: time.Hour, Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_PREPARING, pending)}}))
	wantDeadline(t, s, "box", noTime, false)
	readyWith(t, s, "box", time.Hour)
	began := c.at
	c.pass(2 * time.Hour)
	must(t, s.Report(ctx, "box", Report{Generation: 1, Timeout: time.Hour, Events: []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_RESTARTED, ready)}}))
	wantDeadline(t, s, "box", began.Add(time.Hour), false)
}

func TestAPauseKeepsTheDeadlineAndAStopForgetsIt(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	create(t, s, "box")
	readyWith(t, s, "box", time.Hour)
	end := c.at.Add(time.Hour)
	c.pass(time.Minute)
	resume := func() {
		t.Helper()
		_, err := s.RequestResume(ctx, "box")
		must(t, err)
		readyWith(t, s, "box", time.Hour)
	}
	pauseIt(t, s, "box")
	wantDeadline(t, s, "box", end, false)
	resume() // in the future: kept
	wantDeadline(t, s, "box", end, false)
	pauseIt(t, s, "box")
	c.pass(10 * time.Hour)
	s = survives(t, s)
	if changed, err := s.RequestExpire(ctx, "box", s.moment()); changed || err != nil {
		t.Fatal(changed, err)
	}
	wantDeadline(t, s, "box", end, false)
	resume() // passed: starts over
	wantDeadline(t, s, "box", c.at.Add(time.Hour), false)
	pauseIt(t, s, "box")
	set := setTimeout(t, s, "box", Timeout{After: 5 * time.Hour})
	c.pass(2 * time.Hour)
	resume() // set while paused: counts from then
	wantDeadline(t, s, "box", set, true)
	pauseIt(t, s, "box")
	setTimeout(t, s, "box", Timeout{})
	resume()
	wantDeadline(t, s, "box", noTime, true)
	setTimeout(t, s, "box", Timeout{After: time.Hour})
	accepted(t, s.RequestStop, "box")
	wantDeadline(t, s, "box", noTime, false)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	resume()
	wantDeadline(t, s, "box", c.at.Add(time.Hour), false)
	survives(t, s)
}

// TestSettingATimeout: each row has the deadline before, the request, and the deadline after, in hours from now; 0 for never.
func TestSettingATimeout(t *testing.T) {
	for name, row := range map[string]struct {
		have    time.Duration
		haveSet bool
		to      Timeout
		want    time.Duration
		changed bool
	}{
		"the first":                            {0, false, Timeout{After: 2}, 2, true},
		"a later one":                          {1, false, Timeout{After: 2}, 2, true},
		"an earlier one":                       {3, true, Timeout{After: 2}, 2, true},
		"the same":                             {2, false, Timeout{After: 2}, 2, false},
		"the same as set":                      {2, true, Timeout{After: 2}, 2, false},
		"never":                                {2, true, Timeout{}, 0, true},
		"never, where none has begun":          {0, false, Timeout{}, 0, true},
		"never again":                          {0, true, Timeout{}, 0, false},
		"only extend: a later one":             {1, false, Timeout{After: 2, OnlyExtend: true}, 2, true},
		"only extend: an earlier one":          {3, false, Timeout{After: 2, OnlyExtend: true}, 3, false},
		"only extend: the same":                {2, false, Timeout{After: 2, OnlyExtend: true}, 2, false},
		"only extend: never is left":           {0, true, Timeout{After: 2, OnlyExtend: true}, 0, false},
		"only extend: to never":                {2, false, Timeout{OnlyExtend: true}, 0, true},
		"only extend: one that has passed":     {-1, false, Timeout{After: 2, OnlyExtend: true}, 2, true},
		"only extend: none that has begun":     {0, false, Timeout{After: 2, OnlyExtend: true}, 0, false},
		"only extend: never, where none began": {0, false, Timeout{OnlyExtend: true}, 0, true},
	} {
		c := newClock()
		s := open(t, c.options(testOptions(t)))
		makeReady(t, s, "box")
		in := func(hours time.Duration) (at time.Time) {
			if hours != 0 {
				at = c.at.Add(hours * time.Hour)
			}
			return at
		}
		must(t, s.update(ctx, func(t *txn) error {
			sb := t.live("box")
			if row.have != 0 {
				sb.Desired.DeadlineAt = in(row.have).UnixNano()
			}
			sb.Desired.DeadlineSet = row.haveSet
			t.keep(sb, "")
			t.put(bucketDesired, "box", sb.Desired)
			return nil
		}))
		row.to.After *= time.Hour
		before := get1(t, s, "box")
		deadline, changed, err := s.SetTimeout(ctx, "box", row.to)
		if err != nil || changed != row.changed || !deadline.Equal(in(row.want)) {
			t.Errorf("%s: %v, %v, %v", name, deadline, changed, err)
		}
		s = survives(t, s)
		after := get1(t, s, "box")
		wantDeadline(t, s, "box", in(row.want), row.haveSet || row.changed)
		if after.LastSequence-before.LastSequence != map[bool]uint64{true: 1}[row.changed] || after.Desired.GetGeneration() != 1 ||
			!after.IdleSince.Equal(before.IdleSince) || !after.StateChangedAt.Equal(before.StateChangedAt) {
			t.Errorf("%s: %+v", name, after)
		}
	}
}

func TestATimeoutKeepsItsNanoseconds(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	at := c.at.Add(time.Hour + 123456789)
	setTimeout(t, s, "box", Timeout{At: at, After: time.Minute}) // At wins over After
	setTimeout(t, s, "box", Timeout{})
	s = reopen(t, s)
	events := allEvents(t, s, "box")[3:]
	if len(events) != 2 || events[0].GetEventType() != agboxv1.EventType_SANDBOX_TIMEOUT_SET || events[0].GetSandboxState() != 0 ||
		!events[0].GetTimeoutSet().GetDeadlineAt().AsTime().Equal(at) || events[1].GetTimeoutSet() == nil || events[1].GetTimeoutSet().GetDeadlineAt() != nil {
		t.Fatalf("%v", events)
	}
}

func TestATimeThatCannotBeKeptIsRefused(t *testing.T) {
	s := open(t, newClock().options(testOptions(t)))
	makeReady(t, s, "box")
	for name, to := range map[string]Timeout{
		"negative":        {After: -1},
		"before 1970":     {At: time.Unix(-1, 0)},
		"after 2262":      {At: time.Unix(0, math.MaxInt64).Add(time.Second)},
		"centuries ahead": {After: math.MaxInt64},
	} {
		if _, changed, err := s.SetTimeout(ctx, "box", to); changed || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, %v", name, changed, err)
		}
	}
	wantDeadline(t, s, "box", noTime, false)
}

func TestADeadlineDoesWhatTheSpecSays(t *testing.T) {
	for how, want := range map[string]struct {
		event string
		run   storev1.RunState
		kept  bool
	}{
		"":       {"STOP_REQUESTED READY timeout", storev1.RunState_RUN_STATE_STOP, false},
		"stop":   {"STOP_REQUESTED READY timeout", storev1.RunState_RUN_STATE_STOP, false},
		"pause":  {"PAUSE_REQUESTED READY timeout", storev1.RunState_RUN_STATE_PAUSE, true},
		"delete": {"DELETE_REQUESTED DELETING timeout", storev1.RunState_RUN_STATE_DELETE, true},
	} {
		c := newClock()
		s := open(t, c.options(testOptions(t)))
		sp := spec()
		sp.OnTimeout = how
		_, err := s.CreateSandbox(ctx, "box", "name", sp, nil)
		must(t, err)
		readyWith(t, s, "box", time.Hour)
		end := c.at.Add(time.Hour)
		c.pass(time.Hour - 1)
		expire := func(want bool) {
			t.Helper()
			if changed, err := s.RequestExpire(ctx, "box", s.moment()); changed != want || err != nil {
				t.Fatalf("%q: %v, %v", how, changed, err)
			}
		}
		expire(false)
		c.pass(1)
		s = survives(t, s)
		expire(true)
		expire(false) // a second expiry changes nothing
		sb := get1(t, s, "box")
		if got := newEvents(t, s, "box", 2); !slices.Equal(got, []string{want.event}) || sb.Desired.GetRunState() != want.run || sb.Desired.GetReason() != "timeout" {
			t.Errorf("%q: %q, %v", how, got, sb.Desired)
		}
		if kept := sb.Desired.GetDeadlineAt() == end.UnixNano(); kept != want.kept {
			t.Errorf("%q: %v", how, sb.Desired)
		}
		survives(t, s)
	}
}

func TestWithoutADeadlineNothingExpires(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	for _, id := range []string{"none", "never"} {
		create(t, s, id)
		readyWith(t, s, id, 0)
	}
	setTimeout(t, s, "never", Timeout{})
	c.pass(100000 * time.Hour)
	for _, id := range []string{"none", "never"} {
		if changed, err := s.RequestExpire(ctx, id, s.moment()); changed || err != nil {
			t.Errorf("%s: %v, %v", id, changed, err)
		}
	}
}

// The wall clock decides: setting it back delays the deadline, setting it forward advances it, and a restart does neither.
func TestDeadlinesFollowTheWallClock(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	create(t, s, "box")
	readyWith(t, s, "box", time.Hour)
	expire := func(want bool) {
		t.Helper()
		if changed, err := s.RequestExpire(ctx, "box", s.moment()); changed != want || err != nil {
			t.Fatal(changed, err)
		}
	}
	c.pass(50 * time.Minute)
	c.pass(-30 * time.Minute)
	expire(false)
	s = reopen(t, s)
	c.pass(39 * time.Minute)
	expire(false)
	if at := setTimeout(t, s, "box", Timeout{After: 2 * time.Minute}); !at.Equal(c.at.Add(2 * time.Minute)) {
		t.Fatal(at)
	}
	c.pass(-24 * time.Hour)
	s = reopen(t, s)
	expire(false)
	if at := setTimeout(t, s, "box", Timeout{After: time.Hour, OnlyExtend: true}); !at.Equal(c.at.Add(24*time.Hour + 2*time.Minute)) {
		t.Fatalf("shortened to %v", at)
	}
	c.pass(24*time.Hour + 2*time.Minute - 1)
	expire(false)
	c.pass(1000 * time.Hour) // as after a suspend
	s = reopen(t, s)
	expire(true)
}

func TestAnUpdateOfTheTimeoutCountsFromItself(t *testing.T) {
	const def = 3 * time.Hour
	for name, row := range map[string]struct {
		to   *durationpb.Duration
		want time.Duration // 0: never
	}{
		"longer":       {durationpb.New(2 * time.Hour), 2 * time.Hour},
		"never":        {durationpb.New(0), 0},
		"the daemon's": {nil, def},
	} {
		for _, sit := range situations {
			c := newClock()
			s := open(t, c.options(testOptions(t)))
			sit.make(t, s, "box")
			before := get1(t, s, "box")
			if before.State == deleting || before.State == deleted {
				continue
			}
			retime := func(to *durationpb.Duration, def time.Duration) {
				t.Helper()
				_, _, err := s.UpdateSpec(ctx, "box", def, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
					old.Timeout = to
					return old, []string{"timeout"}, false, nil
				})
				must(t, err)
			}
			retime(durationpb.New(time.Minute), 0)
			c.pass(time.Second)
			n := len(allEvents(t, s, "box"))
			retime(row.to, def)
			s = survives(t, s)
			got := newEvents(t, s, "box", n)
			if !before.hasLifetime() {
				if want := []string{"SPEC_CHANGED"}; !slices.Equal(got, want) {
					t.Errorf("%s while %s: %q", name, sit.name, got)
				}
				wantDeadline(t, s, "box", noTime, false)
				continue
			}
			if want := []string{"SPEC_CHANGED", "TIMEOUT_SET"}; !slices.Equal(got, want) {
				t.Errorf("%s while %s: %q", name, sit.name, got)
			}
			at := noTime
			if row.want != 0 {
				at = c.at.Add(row.want)
			}
			wantDeadline(t, s, "box", at, true)
			retime(row.to, def) // with another changed field
			wantDeadline(t, s, "box", at, true)
			if n := len(newEvents(t, s, "box", n)); n != 3 {
				t.Errorf("%s while %s: an update that leaves it tells of it", name, sit.name)
			}
		}
	}
}
