package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
)

func park(t testing.TB, s *Store) {
	t.Helper()
	_, err := s.StartDrain(ctx, DrainOptions{
		Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Reason: "reboot", Wait: time.Minute, SaveEach: time.Second, SaveAll: 2 * time.Second, Exit: true,
	})
	must(t, err)
}

func epoch(t testing.TB, s *Store) uint64 {
	t.Helper()
	n, err := s.NewEpoch(ctx)
	must(t, err)
	return n
}

func TestADrainMarksRunningAgentsAndIsCounted(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	epoch(t, s)
	for _, id := range []string{"busy", "idle", "fresh", "stopping"} {
		withAgent(t, s, id)
	}
	makeIdle(t, s, "busy")
	makeBusy(t, s, "busy", "p-1")
	makeIdle(t, s, "idle")
	makeIdle(t, s, "stopping")
	_, err := s.RequestAgentStop(ctx, "stopping")
	must(t, err)
	park(t, s)
	for id, want := range map[string]bool{"busy": true, "idle": true, "fresh": false, "stopping": false} {
		if a := agent1(t, s, id); a.Status.GetParked() != want {
			t.Errorf("%s comes back: %v", id, a.Status.GetParked())
		}
	}
	rec := s.Drain()
	if rec.GetEpoch() != 1 || rec.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_WAITING || rec.GetReason() != "reboot" || !rec.GetExit() ||
		rec.GetWaitUntil() != c.at.Add(time.Minute).UnixNano() || rec.GetSaveAll() != int64(2*time.Second) {
		t.Errorf("%v", rec)
	}
	_, err = s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK})
	if reasonOf(err) != "DRAIN_INVALID_STATE" {
		t.Errorf("begun twice: %v", err)
	}
	if changed, err := s.RequestIdleStop(ctx, "box", time.Nanosecond, s.moment()); changed || err != nil {
		t.Errorf("an idle stop while it drains: %v, %v", changed, err)
	}
	for id, saved := range map[string]string{"idle": "", "busy": NotSaved} {
		_, err := s.TransitionAgent(ctx, id, Transition{Incarnation: 1, Trigger: parked, Parked: true, Saved: saved})
		must(t, err)
	}
	_, err = s.TransitionAgent(ctx, "idle", Transition{Incarnation: 1, Trigger: parked, Saved: Saved})
	must(t, err)
	if rec := s.Drain(); rec.GetParked() != 2 || rec.GetSaved() != 1 || rec.GetNotSaved() != 1 {
		t.Errorf("counted: %v", rec)
	}
	if a := agent1(t, s, "idle"); a.Status.GetState() != agentStopped || !a.Status.GetParked() || a.Status.GetSaved() != Saved {
		t.Errorf("%v", a.Status)
	}
	if got := queued1(t, s, "busy"); got != "p-1" {
		t.Errorf("the prompt that was cut off: %q", got)
	}
}

func queued1(t testing.TB, s *Store, id string) string {
	t.Helper()
	p, err := nextPrompt(s, id)
	must(t, err)
	return p.GetPromptId()
}

func TestADrainEndsByUndrainByAgeAndByARestart(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	if s.Drain() != nil {
		t.Fatal("drains from the start")
	}
	epoch(t, s)
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	park(t, s)
	if changed, err := s.WithdrawDrain(ctx); !changed || err != nil || s.Drain() != nil || agent1(t, s, "agent").Status.GetParked() {
		t.Errorf("undrained: %v, %v, %v", changed, err, s.Drain())
	}
	if changed, err := s.WithdrawDrain(ctx); changed || err != nil {
		t.Errorf("undrained twice: %v, %v", changed, err)
	}
	park(t, s)
	c.pass(time.Hour - time.Second)
	if s.Drain() == nil {
		t.Error("over before its time")
	}
	c.pass(time.Second)
	if s.Drain() != nil {
		t.Error("holds after an hour")
	}
	if _, err := s.SetDrainPhase(ctx, s.Drain(), agboxv1.DrainPhase_DRAIN_PHASE_DONE); reasonOf(err) != "DRAIN_INVALID_STATE" {
		t.Errorf("a phase of a drain that is over: %v", err)
	}
	park(t, s)
	s = reopen(t, s)
	if s.Drain() == nil {
		t.Error("the file has forgotten it")
	}
	if n := epoch(t, s); n != 2 || s.Drain() != nil {
		t.Errorf("epoch %d drains: %v", n, s.Drain())
	}
	if !agent1(t, s, "agent").Status.GetParked() {
		t.Error("who was cut off with the drain does not come back")
	}
	s = reopen(t, s)
	if s.Drain() != nil || epoch(t, s) != 3 {
		t.Error("the drain of an old epoch came back")
	}
}

func TestPhasesOfADrainGoForward(t *testing.T) {
	s := open(t, testOptions(t))
	epoch(t, s)
	park(t, s)
	for _, c := range []struct {
		phase agboxv1.DrainPhase
		want  bool
	}{
		{agboxv1.DrainPhase_DRAIN_PHASE_WAITING, false}, {agboxv1.DrainPhase_DRAIN_PHASE_SAVING, true},
		{agboxv1.DrainPhase_DRAIN_PHASE_WAITING, false}, {agboxv1.DrainPhase_DRAIN_PHASE_DONE, true},
	} {
		if changed, err := s.SetDrainPhase(ctx, s.Drain(), c.phase); changed != c.want || err != nil {
			t.Errorf("%s: %v, %v", c.phase, changed, err)
		}
	}
	if _, err := s.StartDrain(ctx, DrainOptions{}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no mode: %v", err)
	}
}

func TestADetachMarksNoAgent(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	_, err := s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_DETACH})
	must(t, err)
	if s.Drain() == nil || agent1(t, s, "agent").Status.GetParked() {
		t.Errorf("%v, %v", s.Drain(), agent1(t, s, "agent").Status)
	}
}

// TestEachPhaseOfADrainEnqueuesTheAgents: each running or parked agent gets one event per phase, with the mode and the reason.
func TestEachPhaseOfADrainEnqueuesTheAgents(t *testing.T) {
	s := open(t, testOptions(t))
	for _, id := range []string{"idle", "never", "stopped"} {
		withAgent(t, s, id)
	}
	makeIdle(t, s, "idle")
	_, err := s.RequestAgentStop(ctx, "stopped")
	must(t, err)
	_, err = s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Reason: "reboot"})
	must(t, err)
	trigger(t, s, "idle", parked)
	for range 2 {
		_, err = s.SetDrainPhase(ctx, s.Drain(), agboxv1.DrainPhase_DRAIN_PHASE_DONE)
		must(t, err)
	}
	_, err = s.WithdrawDrain(ctx)
	must(t, err)
	_, err = s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Reason: "reboot"})
	must(t, err)
	_, err = s.NewEpoch(ctx)
	must(t, err)
	for id, want := range map[string]string{"idle": "WAITING DONE UNSPECIFIED WAITING UNSPECIFIED", "never": "", "stopped": ""} {
		var told []string
		for _, ev := range agentEvents(t, s, id) {
			if d := ev.GetDrain(); d != nil {
				told = append(told, enum.Word(d.GetPhase()))
				if d.GetMode() != agboxv1.DrainMode_DRAIN_MODE_PARK || d.GetReason() != "reboot" {
					t.Errorf("%v", d)
				}
			}
		}
		if got := strings.Join(told, " "); got != want {
			t.Errorf("%s was told %q, want %q", id, got, want)
		}
	}
}

// TestEachPhaseOfADrainReconcilesItsAgents: each phase raises the agents' versions, so that a pass on an older version aborts and the
// hook enqueues the next one.
func TestEachPhaseOfADrainReconcilesItsAgents(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	woken := 0
	s.OnCommit(func(Change) { woken++ }) // called before the caller is answered
	version := agent1(t, s, "agent").Status.GetVersion()
	for i, step := range []func() error{
		func() error {
			_, err := s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_DETACH})
			return err
		},
		func() error {
			_, err := s.SetDrainPhase(ctx, s.Drain(), agboxv1.DrainPhase_DRAIN_PHASE_DONE)
			return err
		},
		func() error {
			_, err := s.WithdrawDrain(ctx)
			return err
		},
	} {
		must(t, step())
		now := agent1(t, s, "agent").Status.GetVersion()
		if now == version || woken != i+1 {
			t.Errorf("step %d: version %d after %d, woken %d times", i, now, version, woken)
		}
		version = now
	}
}

// TestTheEndOfATurnNamesItsPrompt: the transition, which outlives the events, records its outcome.
func TestTheEndOfATurnNamesItsPrompt(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	strike(t, s, "agent", "")
	spawn(t, s, "agent")
	trigger(t, s, "agent", connected)
	claim(t, s, "agent")
	strike(t, s, "agent", "")
	list, err := s.Transitions(ctx, "agent", 2, 0)
	must(t, err)
	var got []string
	for _, tr := range list {
		got = append(got, fmt.Sprintf("%s %s %s %v", enum.Word(tr.GetTrigger()), tr.GetPromptId(), tr.GetOutcome(), tr.GetAgain()))
	}
	want := "PROMPT_RECEIVED p-1  false|PROCESS_CRASHED p-1 interrupted true|SPAWN   false|CONNECTED   false|PROMPT_RECEIVED p-1  false|PROCESS_CRASHED p-1 interrupted false"
	if strings.Join(got, "|") != want {
		t.Errorf("transitions\n%s, want\n%s", strings.Join(got, "|"), want)
	}
}
