package store

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// rebuiltWant is the state derived from a rebuilt record; times are durations before now, 0 is none.
type rebuiltWant struct {
	since, idle time.Duration
	code        string
	preparing   bool
}

func wantRebuilt(t *testing.T, name string, c *clock, sb Sandbox, want rebuiltWant) {
	t.Helper()
	idle := noTime
	if want.idle != 0 {
		idle = c.at.Add(-want.idle)
	}
	if !sb.StateChangedAt.Equal(c.at.Add(-want.since)) || !sb.IdleSince.Equal(idle) || sb.ErrorCode != want.code || sb.Preparing != want.preparing {
		t.Errorf("%s: %+v, want %+v", name, sb, want)
	}
}

// TestARebuiltRecordKeepsTheContentOfItsLostEvents whatever event follows in the same state, and also when sandbox-state is lost.
func TestARebuiltRecordKeepsTheContentOfItsLostEvents(t *testing.T) {
	const hour, minute = time.Hour, time.Minute
	for name, row := range map[string]struct {
		make  func(t testing.TB, s *Store, id string)
		after *agboxv1.SandboxEvent
		want  rebuiltWant
	}{
		"pending":              {situation("pending by a create"), nil, rebuiltWant{since: hour, preparing: true}},
		"pending by a resume":  {situation("pending by a resume"), nil, rebuiltWant{since: hour}},
		"ready":                {makeReady, nil, rebuiltWant{since: hour, idle: minute}},
		"ready, with an exec":  {func(t testing.TB, s *Store, id string) { makeReady(t, s, id); startExec(t, s, id, "exec") }, nil, rebuiltWant{since: hour}},
		"ready, restarted now": {makeReady, phase(agboxv1.EventType_SANDBOX_RESTARTED, ready), rebuiltWant{since: hour, idle: 1}},
		"ready, and a service": {makeReady, phase(agboxv1.EventType_SANDBOX_SERVICE_FAILED, ready), rebuiltWant{since: hour, idle: minute}},
		"paused":               {makePaused, nil, rebuiltWant{since: hour}},
		"paused, demoted now":  {makePaused, phase(agboxv1.EventType_SANDBOX_PAUSED, paused), rebuiltWant{since: hour}},
		"stopped":              {situation("stopped"), nil, rebuiltWant{since: hour}},
		"failed":               {situation("failed while paused"), nil, rebuiltWant{since: hour, code: "CONTAINER_OOM"}},
		"deleting":             {situation("deleting"), nil, rebuiltWant{since: hour}},
		"ready, then stopped":  {situation("ready, to be stopped"), phase(agboxv1.EventType_SANDBOX_STOPPED, stopped), rebuiltWant{since: 1}},
	} {
		c := newClock()
		s := open(t, c.options(testOptions(t)))
		row.make(t, s, "box")
		c.pass(2 * hour)
		must(t, stageRebuilt(s, "box", &agboxv1.RehydratedDetails{
			StateChangedAt: timestamppb.New(c.at.Add(-hour)), IdleSince: timestamppb.New(c.at.Add(-minute)),
			ErrorCode: "CONTAINER_OOM", Preparing: true,
		}))
		if row.after != nil {
			c.pass(-1) // so that the time differs
			report(t, s, "box", row.after)
			c.pass(1)
		}
		wantRebuilt(t, name, c, get1(t, s, "box"), row.want)
		s = reopen(t, s)
		wantRebuilt(t, name+", reopened", c, get1(t, s, "box"), row.want)
		must(t, s.update(ctx, func(t *txn) error { t.delete(bucketState, "box"); return nil }))
		s = reopen(t, s)
		wantRebuilt(t, name+", without sandbox-state", c, get1(t, s, "box"), row.want)
	}
}

func TestARebuiltRecordWithoutTimesIsOfNow(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	makeReady(t, s, "box")
	c.pass(time.Hour)
	must(t, stageRebuilt(s, "box", &agboxv1.RehydratedDetails{}))
	for range 2 {
		wantRebuilt(t, "ready", &clock{c.at.Add(1)}, get1(t, s, "box"), rebuiltWant{since: 1, idle: 1})
		s = reopen(t, s)
	}
}
