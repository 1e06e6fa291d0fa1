package server_test

import (
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

const (
	agentPending = agboxv1.AgentState_AGENT_STATE_PENDING
	agentIdle    = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy    = agboxv1.AgentState_AGENT_STATE_BUSY
	agentFailed  = agboxv1.AgentState_AGENT_STATE_FAILED
)

// newAgents is a server with a READY sandbox "box" that is named "work".
func newAgents(t testing.TB, change ...func(*server.Deps)) *fixture {
	t.Helper()
	f := newFixture(t, change...)
	_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{
		SandboxId: "boxx", Name: "work", CreateSpec: &agboxv1.CreateSpec{Image: "x"},
	})
	f.must(err)
	f.report("boxx", agboxv1.SandboxState_SANDBOX_STATE_READY)
	return f
}

func (f *fixture) createAgent(id, name string, change ...func(*agboxv1.AgentSpec)) (*agboxv1.AgentHandle, error) {
	spec := &agboxv1.AgentSpec{SandboxId: "work", Command: []string{"bot"}}
	for _, fn := range change {
		fn(spec)
	}
	resp, err := f.agents.CreateAgent(f.t.Context(), &agboxv1.CreateAgentRequest{AgentId: id, Name: name, Spec: spec})
	return resp.GetAgent(), err
}

func (f *fixture) getAgent(ref string) *agboxv1.AgentHandle {
	f.t.Helper()
	resp, err := f.agents.GetAgent(f.t.Context(), &agboxv1.GetAgentRequest{AgentId: ref})
	f.must(err)
	return resp.GetAgent()
}

func (f *fixture) prompt(id, promptID, text string) (*agboxv1.PromptAgentResponse, error) {
	return f.agents.PromptAgent(f.t.Context(), &agboxv1.PromptAgentRequest{AgentId: id, PromptId: promptID, Text: text})
}

// start brings an agent to IDLE.
func (f *fixture) startAgent(id string) {
	f.t.Helper()
	a, err := f.store.Agent(f.t.Context(), id)
	f.must(err)
	next := a.Status.GetIncarnation() + 1
	_, err = f.store.TransitionAgent(f.t.Context(), id, store.Transition{
		Incarnation: next, Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN, Attempts: 1, Rung: agboxv1.AgentRung_AGENT_RUNG_COLD,
		Spawn: &agboxv1.CreateExecRequest{Command: a.Spec.GetCommand()},
	})
	f.must(err)
	f.trigger(id, agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED, "")
}

func (f *fixture) trigger(id string, tr agboxv1.AgentTrigger, reason string) {
	f.t.Helper()
	a, err := f.store.Agent(f.t.Context(), id)
	f.must(err)
	_, err = f.store.TransitionAgent(f.t.Context(), id, store.Transition{Incarnation: a.Status.GetIncarnation(), Trigger: tr, Reason: reason})
	f.must(err)
}

// claim makes an IDLE agent BUSY with its next prompt.
func (f *fixture) claim(id string) {
	f.t.Helper()
	_, _, err := f.store.ClaimPrompt(f.t.Context(), id, 0, store.Claim{})
	f.must(err)
}

// says takes in what the agent has said, n bytes further in its log.
func (f *fixture) says(id string, out ...store.AgentOutput) {
	f.t.Helper()
	a, err := f.store.Agent(f.t.Context(), id)
	f.must(err)
	from, err := f.store.AgentPosition(f.t.Context(), id)
	f.must(err)
	n := a.Status.GetIncarnation()
	if from.GetIncarnation() != n {
		from = &storev1.AgentPosition{}
	}
	f.must(f.store.Ingest(f.t.Context(), id, n, from, &storev1.AgentPosition{Incarnation: n, StdoutOffset: from.GetStdoutOffset() + 1}, out))
}

// answer is a whole answer of one text.
func answer(messageID, text string) []store.AgentOutput {
	return append(said(messageID, text),
		store.AgentOutput{Event: &agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED,
			Details:   &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{MessageId: messageID, Role: "assistant"}},
		}},
		store.AgentOutput{Result: true, Event: &agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED,
			Details:   &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{Outcome: "end_turn"}},
		}})
}

// said begins a message.
func said(messageID, text string) []store.AgentOutput {
	return []store.AgentOutput{
		{Event: &agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_MESSAGE_CREATED,
			Details:   &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{MessageId: messageID, Role: "assistant"}},
		}},
		{Event: &agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED,
			Details:   &agboxv1.AgentEvent_Part{Part: &agboxv1.AgentMessagePart{MessageId: messageID, Kind: "text", Text: text}},
		}},
	}
}

func checkpointed(text string) store.AgentOutput {
	return store.AgentOutput{Event: &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_CHECKPOINT,
		Details:   &agboxv1.AgentEvent_Checkpoint{Checkpoint: &agboxv1.AgentCheckpoint{Text: text}},
	}}
}
