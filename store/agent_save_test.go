package store

import (
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

func withBusy(t *testing.T, nudge string) *Store {
	t.Helper()
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	spec := agentSpec("box")
	spec.Nudge = nudge
	_, err := s.CreateAgent(ctx, "agent", "", spec)
	must(t, err)
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	return s
}

// TestATurnInterruptedToSaveIsRedelivered: an interrupt requested by a client ends the prompt, one for saving work does not. Work is saved
// after the latter, also if the turn completed.
func TestATurnInterruptedToSaveIsRedelivered(t *testing.T) {
	for _, row := range []struct {
		name    string
		ask     func(*Store) error
		outcome string
		want    int
		save    bool
	}{
		{"the daemon's", func(s *Store) error { _, err := s.RequestInterruptToSave(ctx, "agent"); return err }, "interrupted", 1, true},
		{"the daemon's, and the turn ended well", func(s *Store) error { _, err := s.RequestInterruptToSave(ctx, "agent"); return err }, "end_turn", 0, true},
		{"the daemon's, reported as a limit", func(s *Store) error { _, err := s.RequestInterruptToSave(ctx, "agent"); return err }, "max_turn_requests", 1, true},
		{"the daemon's, reported as an error", func(s *Store) error { _, err := s.RequestInterruptToSave(ctx, "agent"); return err }, "error", 1, true},
		{"a limit, without a request", func(*Store) error { return nil }, "max_turn_requests", 0, false},
		{"a client's", func(s *Store) error { _, err := s.RequestInterrupt(ctx, "agent"); return err }, "interrupted", 0, false},
		{"a client's after the daemon's", func(s *Store) error {
			_, err := s.RequestInterruptToSave(ctx, "agent")
			must(t, err)
			changed, err := s.RequestInterrupt(ctx, "agent")
			if !changed {
				t.Error("nothing new")
			}
			return err
		}, "interrupted", 0, false},
		{"nobody's", func(*Store) error { return nil }, "interrupted", 0, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := withBusy(t, "")
			must(t, row.ask(s))
			ingest(t, s, "agent", resultOutput(row.outcome))
			if a := agent1(t, s, "agent"); a.Queued != row.want || a.Status.GetState() != agentIdle || a.Desired.GetInterruptToSave() != row.save {
				t.Errorf("%d wait, it is %s, to be saved: %t", a.Queued, a.Status.GetState(), a.Desired.GetInterruptToSave())
			}
			events := agentEvents(t, s, "agent")
			if r := events[len(events)-2].GetResult(); r == nil || r.GetAgain() != (row.want == 1) {
				t.Errorf("the result is %v", r)
			}
		})
	}
}

// TestATurnThatGotANudgeEndsAsItSays: a turn may end by itself just before its agent reads the nudge, so giving the prompt again would do
// finished work twice.
func TestATurnThatGotANudgeEndsAsItSays(t *testing.T) {
	for _, row := range []struct {
		name, format, nudge string
		given               bool
	}{
		{"the default", "acp", "", true},
		{"the spec's", "acp", "finish", true},
		{"turned off", "acp", "none", false},
		{"a format without a default", "native", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := open(t, testOptions(t))
			makeReady(t, s, "box")
			spec := agentSpec("box")
			spec.Format, spec.Nudge = row.format, row.nudge
			_, err := s.CreateAgent(ctx, "agent", "", spec)
			must(t, err)
			makeIdle(t, s, "agent")
			makeBusy(t, s, "agent", "p-1")
			changed, err := s.RequestNudge(ctx, "agent")
			must(t, err)
			if changed != row.given {
				t.Errorf("nudged: %t", changed)
			}
			ingest(t, s, "agent", resultOutput("end_turn"))
			if a := agent1(t, s, "agent"); a.Queued > 0 {
				t.Errorf("%d wait", a.Queued)
			}
			makeBusy(t, s, "agent", "p-2")
			if a := agent1(t, s, "agent"); a.Desired.GetNudgePromptId() != "" || a.Desired.GetDefaultNudge() != "" {
				t.Errorf("the next turn has the nudge: %v", a.Desired)
			}
		})
	}
}

func TestAPromptClaimedAgainHasAContextOfItsOwn(t *testing.T) {
	s := withBusy(t, "")
	trigger(t, s, "agent", crashed)
	makeIdle(t, s, "agent")
	for _, want := range []string{"again", "past"} {
		_, p, err := s.ClaimPrompt(ctx, "agent", 0, Claim{Past: "past", Again: "again"})
		must(t, err)
		if p.GetPast() != want {
			t.Errorf("%s came with %q", p.GetPromptId(), p.GetPast())
		}
		ingest(t, s, "agent", resultOutput("end_turn"))
		prompt(t, s, "agent", "p-2")
	}
}

// TestTheNextTurnIsNotInterrupted: an interrupt or nudge of the turn that was cut off does not apply to its repetition.
func TestTheNextTurnIsNotInterrupted(t *testing.T) {
	s := withBusy(t, "finish")
	for _, ask := range []func() (bool, error){
		func() (bool, error) { return s.RequestInterruptToSave(ctx, "agent") }, func() (bool, error) { return s.RequestNudge(ctx, "agent") },
	} {
		_, err := ask()
		must(t, err)
	}
	trigger(t, s, "agent", crashed)
	makeIdle(t, s, "agent")
	a, p := claim(t, s, "agent")
	if p.GetPromptId() != "p-1" || a.Desired.GetInterruptPromptId() != "" || a.Desired.GetInterruptToSave() || a.Desired.GetNudgePromptId() != "" {
		t.Errorf("%v, %v", p, a.Desired)
	}
}

func TestANudgeIsWantedOnceInATurn(t *testing.T) {
	s := withBusy(t, "finish")
	for _, want := range []bool{true, false} {
		changed, err := s.RequestNudge(ctx, "agent")
		must(t, err)
		if a := agent1(t, s, "agent"); changed != want || a.Desired.GetNudgePromptId() != "p-1" || a.Status.GetNudgedIncarnation() != 1 {
			t.Errorf("changed %v: %v", changed, a)
		}
	}
	s = withBusy(t, "")
	if changed, err := s.RequestNudge(ctx, "agent"); changed || err != nil {
		t.Errorf("without a nudge: %v, %v", changed, err)
	}
}

// TestOnlyTheDeleteOfASandboxNudges: deleting the agent itself does not nudge it.
func TestOnlyTheDeleteOfASandboxNudges(t *testing.T) {
	s := withBusy(t, "finish")
	_, err := s.RequestDelete(ctx, "box", "")
	must(t, err)
	if a := agent1(t, s, "agent"); a.Desired.GetNudgePromptId() != "p-1" || a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_DELETE {
		t.Errorf("%v", a)
	}
	s = withBusy(t, "finish")
	_, err = s.RequestAgentDelete(ctx, "agent")
	must(t, err)
	if a := agent1(t, s, "agent"); a.Desired.GetNudgePromptId() != "" {
		t.Errorf("%v", a)
	}
}
