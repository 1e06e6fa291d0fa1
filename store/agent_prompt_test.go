package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

func queuedIDs(t testing.TB, s *Store) (ids []string) {
	t.Helper()
	list, err := s.QueuedPrompts(ctx, "agent", 0)
	must(t, err)
	for _, p := range list {
		id := p.GetPromptId()
		if p.GetHeld() {
			id += " held"
		}
		ids = append(ids, id)
	}
	return ids
}

func TestARetriedPromptIsHarmless(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	prompt(t, s, "agent", "p-1")
	first := prompt(t, s, "agent", "p-2")
	version := agent1(t, s, "agent").Status.GetVersion()
	if again := prompt(t, s, "agent", "p-2"); again != first || first.Ahead != 1 {
		t.Errorf("waiting: %+v, then %+v", first, again)
	}
	if now := agent1(t, s, "agent").Status.GetVersion(); now != version {
		t.Errorf("a retry wrote version %d after %d", now, version)
	}
	before := agent1(t, s, "agent").Status.GetLastSequence()
	claim(t, s, "agent")
	for _, what := range []string{"being worked on", "done"} {
		if again := prompt(t, s, "agent", "p-1"); again.Ahead != 0 || again.Sequence != before {
			t.Errorf("%s: %+v, and its events come after %d", what, again, before)
		}
		ingest(t, s, "agent", resultOutput("end_turn"))
	}
}

// TestAPromptOfACutOffTurnIsRedelivered: it is delivered again, and held after the second turn in which the process ended by itself.
func TestAPromptOfACutOffTurnIsRedelivered(t *testing.T) {
	for _, c := range []struct {
		name      string
		policy    string
		interrupt bool
		strikes   []bool
		want      []string
	}{
		{"a strike", "", false, []bool{true}, []string{"p-1", "p-2"}},
		{"two strikes", "", false, []bool{true, true}, []string{"p-1 held", "p-2"}},
		{"planned interruptions", "", false, []bool{false, false, false, false}, []string{"p-1", "p-2"}},
		{"strikes apart", "", false, []bool{true, false, false, true}, []string{"p-1 held", "p-2"}},
		{"by the spec", "hold", false, []bool{false}, []string{"p-1 held", "p-2"}},
		{"interrupted on request", "", true, []bool{true}, []string{"p-2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, testOptions(t))
			makeReady(t, s, "box")
			spec := agentSpec("box")
			spec.OnInterrupted = c.policy
			_, err := s.CreateAgent(ctx, "agent", "", spec)
			must(t, err)
			prompt(t, s, "agent", "p-1")
			prompt(t, s, "agent", "p-2")
			for _, strike := range c.strikes {
				makeIdle(t, s, "agent")
				claim(t, s, "agent")
				if c.interrupt {
					_, err := s.RequestInterrupt(ctx, "agent")
					must(t, err)
				}
				_, err := s.TransitionAgent(ctx, "agent", Transition{
					Incarnation: agent1(t, s, "agent").Status.GetIncarnation(), Trigger: crashed, Strike: strike,
				})
				must(t, err)
			}
			s = reopen(t, s)
			if got := queuedIDs(t, s); !slices.Equal(got, c.want) {
				t.Errorf("queue %v, want %v", got, c.want)
			}
			events := agentEvents(t, s, "agent")
			cut := events[len(events)-2].GetResult()
			if cut.GetOutcome() != "interrupted" || cut.GetPromptId() != "p-1" || cut.GetAgain() != (c.want[0] == "p-1") {
				t.Errorf("before the end there is %v", events[len(events)-2])
			}
		})
	}
}

func TestHeldPromptsAreFew(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	spec := agentSpec("box")
	spec.OnInterrupted = "hold"
	_, err := s.CreateAgent(ctx, "agent", "", spec)
	must(t, err)
	for i := range maxHeld + 3 {
		makeIdle(t, s, "agent")
		makeBusy(t, s, "agent", fmt.Sprintf("p-%02d", i))
		_, err := s.TransitionAgent(ctx, "agent", Transition{
			Incarnation: agent1(t, s, "agent").Status.GetIncarnation(), Trigger: crashed,
		})
		must(t, err)
	}
	for range 2 {
		a := agent1(t, s, "agent")
		if got := queuedIDs(t, s); len(got) != maxHeld || got[0] != "p-03 held" || a.Queued != 0 || a.Held != maxHeld {
			t.Errorf("%d, %d: %v", len(got), a.Held, got)
		}
		s = reopen(t, s)
	}
}

func TestAQueueIsBounded(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	fill(t, s, maxPrompts, func(i int) { prompt(t, s, "agent", fmt.Sprintf("p-%d", i)) })
	_, err := s.QueuePrompt(ctx, "agent", "more", "text")
	if reasonOf(err) != "AGENT_PROMPTS_FULL" || agent1(t, s, "agent").Queued != maxPrompts {
		t.Errorf("%v", err)
	}
	prompt(t, s, "agent", "p-7") // a retry does not count
}

func TestTheGatesOfSpawnAndClaim(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	prompt(t, s, "agent", "p-1")
	_, err := s.NewEpoch(ctx)
	must(t, err)
	tries := func(what, reason string) {
		t.Helper()
		_, _, err := s.ClaimPrompt(ctx, "agent", 0, Claim{})
		if err == nil || reasonOf(err) != reason {
			t.Errorf("claim, %s: %v", what, err)
		}
		other := fmt.Sprintf("other-%d", len(s.Agents(AgentFilter{})))
		_, err = s.CreateAgent(ctx, other, "", agentSpec("box"))
		must(t, err)
		if _, err = s.TransitionAgent(ctx, other, spawning(agent1(t, s, other))); err == nil || reasonOf(err) != reason {
			t.Errorf("spawn, %s: %v", what, err)
		}
	}
	_, err = s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_DETACH, Wait: time.Minute})
	must(t, err)
	tries("draining", "")
	_, err = s.WithdrawDrain(ctx)
	must(t, err)
	accepted(t, s.RequestPause, "box")
	tries("to be paused", "SANDBOX_NOT_READY")
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	tries("being resumed", "SANDBOX_NOT_READY")
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	_, err = s.RequestAgentStop(ctx, "agent")
	must(t, err)
	if _, _, err := s.ClaimPrompt(ctx, "agent", 0, Claim{}); err == nil {
		t.Error("claimed by one that is to stop")
	}
	_, err = s.RequestAgentRun(ctx, "agent")
	must(t, err)
	if _, p := claim(t, s, "agent"); p.GetPromptId() != "p-1" {
		t.Errorf("claimed %v", p)
	}
}

func TestTheExecOfAnIncarnationIsAnExecLikeOthers(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	a := spawn(t, s, "agent")
	e, err := s.Exec(ctx, execid.ForAgent(a.ID, 1))
	if err != nil || e.SandboxID != "box" || e.Request.GetExecId() != "agent.1" || e.Desired.GetNonce() == "" {
		t.Fatalf("%+v, %v", e, err)
	}
	events := allEvents(t, s, "box")
	if last := events[len(events)-1]; last.GetEventType() != agboxv1.EventType_EXEC_STARTED || last.GetExec().GetExecId() != "agent.1" {
		t.Errorf("the sandbox's newest event is %v", last)
	}
	if got, err := s.AgentPosition(ctx, "agent"); err != nil || got.GetIncarnation() != 1 || got.GetStdoutOffset() != 0 {
		t.Errorf("position %v, %v", got, err)
	}
	if run := a.Desired.GetRun(); run != storev1.AgentRun_AGENT_RUN_RUN {
		t.Errorf("wanted %s", run)
	}
}
