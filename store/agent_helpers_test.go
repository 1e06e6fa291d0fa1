package store

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
)

const (
	agentPending  = agboxv1.AgentState_AGENT_STATE_PENDING
	agentStarting = agboxv1.AgentState_AGENT_STATE_STARTING
	agentIdle     = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy     = agboxv1.AgentState_AGENT_STATE_BUSY
	agentStopped  = agboxv1.AgentState_AGENT_STATE_STOPPED
	agentFailed   = agboxv1.AgentState_AGENT_STATE_FAILED

	spawned    = agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN
	connected  = agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED
	resulted   = agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED
	exited     = agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_EXITED
	crashed    = agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED
	terminated = agboxv1.AgentTrigger_AGENT_TRIGGER_USER_TERMINATED
	parked     = agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED
	reconciled = agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION
)

func agentSpec(sandboxID string) *agboxv1.AgentSpec {
	return &agboxv1.AgentSpec{SandboxId: sandboxID, Command: []string{"agent"}, Labels: map[string]string{"team": "a"}}
}

// withAgent creates a READY sandbox "box" with a PENDING agent in it.
func withAgent(t testing.TB, s *Store, id string) Agent {
	t.Helper()
	if s.index.sandbox("box") == nil {
		makeReady(t, s, "box")
	}
	a, err := s.CreateAgent(ctx, id, "", agentSpec("box"))
	must(t, err)
	return a
}

func agent1(t testing.TB, s *Store, id string) Agent {
	t.Helper()
	a, err := s.Agent(ctx, id)
	must(t, err)
	return a
}

func spawn(t testing.TB, s *Store, id string) Agent {
	t.Helper()
	a, err := s.TransitionAgent(ctx, id, spawning(agent1(t, s, id)))
	must(t, err)
	return a
}

func spawning(a Agent) Transition {
	return Transition{
		Incarnation: a.Status.GetIncarnation() + 1, Trigger: spawned, Attempts: a.Status.GetAttempts() + 1,
		Spawn: &agboxv1.CreateExecRequest{Command: a.Spec.GetCommand()},
	}
}

// trigger applies a trigger to the current incarnation.
func trigger(t testing.TB, s *Store, id string, tr agboxv1.AgentTrigger) Agent {
	t.Helper()
	a, err := s.TransitionAgent(ctx, id, Transition{
		Incarnation: agent1(t, s, id).Status.GetIncarnation(), Trigger: tr, Reason: "test",
	})
	must(t, err)
	return a
}

func makeIdle(t testing.TB, s *Store, id string) Agent {
	t.Helper()
	spawn(t, s, id)
	return trigger(t, s, id, connected)
}

func prompt(t testing.TB, s *Store, id, promptID string) Queued {
	t.Helper()
	q, err := s.QueuePrompt(ctx, id, promptID, "text of "+promptID)
	must(t, err)
	return q
}

func claim(t testing.TB, s *Store, id string) (Agent, *storev1.AgentPrompt) {
	t.Helper()
	a, p, err := s.ClaimPrompt(ctx, id, agent1(t, s, id).Status.GetVersion(), Claim{})
	must(t, err)
	return a, p
}

// makeBusy queues a prompt and claims it.
func makeBusy(t testing.TB, s *Store, id, promptID string) Agent {
	t.Helper()
	prompt(t, s, id, promptID)
	a, _ := claim(t, s, id)
	return a
}

// agentEvents pages through all kept events.
func agentEvents(t testing.TB, s *Store, id string) []*agboxv1.AgentEvent {
	t.Helper()
	var all []*agboxv1.AgentEvent
	for after := uint64(0); ; {
		page, err := s.AgentEvents(ctx, id, after, 0)
		must(t, err)
		if len(page) == 0 {
			return all
		}
		for _, ev := range page {
			if ev.GetSequence() <= after || ev.GetAgentId() != id || ev.GetOccurredAt() == nil {
				t.Fatalf("event after %d of %s: %v", after, id, ev)
			}
			after = ev.GetSequence()
		}
		all = append(all, page...)
	}
}

// said returns outputs with the given events, as a decoder would.
func said(events ...*agboxv1.AgentEvent) []AgentOutput {
	var out []AgentOutput
	for _, ev := range events {
		out = append(out, AgentOutput{Event: ev})
	}
	return out
}

func messageEvent(typ agboxv1.AgentEventType, id string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{EventType: typ, Details: &agboxv1.AgentEvent_Message{
		Message: &agboxv1.AgentMessage{MessageId: id, Role: "assistant"}}}
}

func messageBegins(id string) *agboxv1.AgentEvent {
	return messageEvent(agboxv1.AgentEventType_AGENT_MESSAGE_CREATED, id)
}

func messageEnds(id string) *agboxv1.AgentEvent {
	return messageEvent(agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED, id)
}

func partEvent(id string, part uint32, text string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{EventType: agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED, Details: &agboxv1.AgentEvent_Part{
		Part: &agboxv1.AgentMessagePart{MessageId: id, Part: part, Kind: "text", Text: text}}}
}

func checkpointEvent(text string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{EventType: agboxv1.AgentEventType_AGENT_CHECKPOINT, Details: &agboxv1.AgentEvent_Checkpoint{
		Checkpoint: &agboxv1.AgentCheckpoint{Text: text}}}
}

func resultOutput(outcome string) AgentOutput {
	return AgentOutput{Result: true, Event: &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED,
		Details:   &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{Outcome: outcome}},
	}}
}

// ingest ingests outputs at the next position.
func ingest(t testing.TB, s *Store, id string, out ...AgentOutput) {
	t.Helper()
	must(t, tryIngest(s, id, out...))
}

func tryIngest(s *Store, id string, out ...AgentOutput) error {
	from, err := s.AgentPosition(ctx, id)
	if err != nil {
		return err
	}
	to := proto.CloneOf(from)
	to.StdoutOffset++
	return s.Ingest(ctx, id, to.GetIncarnation(), from, to, out)
}

// kinds returns the types of events in short form.
func kinds(events []*agboxv1.AgentEvent) (out []string) {
	for _, ev := range events {
		k := fmt.Sprint(ev.GetSequence(), " ", ev.GetEventType().String()[len("AGENT_"):])
		if tr := ev.GetTransition(); tr != nil {
			k = fmt.Sprint(ev.GetSequence(), " ", enum.Word(tr.GetTo()))
		}
		out = append(out, k)
	}
	return out
}

func reasonOf(err error) string {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

// nextPrompt returns the first waiting prompt; nil: none waits.
func nextPrompt(s *Store, id string) (*storev1.AgentPrompt, error) {
	list, err := s.QueuedPrompts(ctx, id, 0)
	for _, p := range list {
		if !p.GetHeld() {
			return p, nil
		}
	}
	return nil, err
}
