//go:build docker

package e2e

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// actsOn are what a deadline leads to, by on_timeout, and the event that tells of it.
var actsOn = map[string]struct {
	state agboxv1.SandboxState
	event agboxv1.EventType
}{
	"stop":   {stopped, agboxv1.EventType_SANDBOX_STOP_REQUESTED},
	"pause":  {paused, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED},
	"delete": {deleted, agboxv1.EventType_SANDBOX_DELETE_REQUESTED},
}

func timed(onTimeout string, timeout time.Duration) *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{Timeout: durationpb.New(timeout), OnTimeout: onTimeout}
}

// wantActedOn checks that what a deadline leads to began on time, for that reason.
func (d *daemon) wantActedOn(id, onTimeout string, due time.Time, within time.Duration) {
	d.Helper()
	want := actsOn[onTimeout]
	d.await(id, want.state)
	e := d.event(id, want.event, "")
	if late := e.GetOccurredAt().AsTime().Sub(due); late < 0 || late > within || e.GetSandboxPhase().GetReason() != "timeout" {
		d.Errorf("%s: %v after the deadline, for %q", onTimeout, late, e.GetSandboxPhase().GetReason())
	}
}

func TestTimeoutsActOnTime(t *testing.T) {
	d := newDaemon(t, "", "[runtime]\ntimeout = \"4s\"\n")
	ids, due := map[string]string{}, map[string]time.Time{}
	for what := range actsOn {
		ids[what] = d.create(&agboxv1.CreateSpec{OnTimeout: what})
	}
	free := d.create(timed("", 0))
	for what, id := range ids {
		d.await(id, ready)
		due[what] = d.sandbox(id).GetDeadlineAt().AsTime()
	}
	for what, id := range ids {
		d.wantActedOn(id, what, due[what], time.Second)
	}
	if sb := d.sandbox(free); sb.GetState() != ready || sb.GetDeadlineAt() != nil {
		t.Errorf("the one without a timeout is %s, its deadline %v", sb.GetState(), sb.GetDeadlineAt())
	}
	for _, id := range append([]string{free}, ids["stop"], ids["pause"]) {
		d.remove(id)
	}
}

// The deadlines are the same after a daemon has died, and one that passes meanwhile is acted on as soon as the next one serves.
func TestTimeoutsOutliveTheDaemon(t *testing.T) {
	d := newDaemon(t, "", "")
	id, past := d.create(timed("pause", 9*time.Second)), d.create(timed("stop", 4*time.Second))
	d.await(id, ready)
	d.await(past, ready)
	due, passes := d.sandbox(id).GetDeadlineAt().AsTime(), d.sandbox(past).GetDeadlineAt().AsTime()
	d.restart()
	if now := d.sandbox(id).GetDeadlineAt().AsTime(); !now.Equal(due) {
		t.Errorf("the deadline was %v and is %v", due, now)
	}
	d.kill()
	time.Sleep(time.Until(passes)) // the daemon is down
	d.start()
	started := time.Now()
	d.await(past, stopped)
	d.wantActedOn(past, "stop", passes, started.Sub(passes)+time.Second)
	d.wantActedOn(id, "pause", due, time.Second)

	d.resume(id) // its deadline has passed: another one begins
	if left := time.Until(d.sandbox(id).GetDeadlineAt().AsTime()); left < 7*time.Second || left > 9*time.Second {
		t.Errorf("after the resume it has %v", left)
	}
	d.freeze(id)
	set := must(d.SetSandboxTimeout(d.ctx(), &agboxv1.SetSandboxTimeoutRequest{
		SandboxId: id, When: &agboxv1.SetSandboxTimeoutRequest_Timeout{Timeout: durationpb.New(time.Hour)},
	}))(t).GetDeadlineAt().AsTime()
	d.resume(id)
	if now := d.sandbox(id).GetDeadlineAt().AsTime(); !now.Equal(set) {
		t.Errorf("set to %v while paused, and is %v", set, now)
	}
	d.remove(id)
	d.remove(past)
}

func TestAPausedSandboxDoesNotExpire(t *testing.T) {
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1s\"\n")
	id := d.create(timed("delete", 3*time.Second))
	d.await(id, ready)
	d.freeze(id)
	due := d.sandbox(id).GetDeadlineAt().AsTime()
	time.Sleep(time.Until(due.Add(2 * time.Second))) // in which nothing may happen
	if sb := d.sandbox(id); sb.GetState() != paused || !sb.GetDeadlineAt().AsTime().Equal(due) {
		t.Errorf("it is %s, its deadline %v, before %v", sb.GetState(), sb.GetDeadlineAt(), due)
	}
	d.resume(id)
	if err := d.stillThere(id); err != nil {
		t.Error(err)
	}
	d.remove(id)
}

func (d *daemon) stillThere(id string) error {
	if sb := d.sandbox(id); sb.GetState() != ready || time.Until(sb.GetDeadlineAt().AsTime()) < time.Second {
		return fmt.Errorf("after the resume it is %s until %v", sb.GetState(), sb.GetDeadlineAt().AsTime())
	}
	return nil
}
