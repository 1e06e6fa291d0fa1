package server

import (
	"cmp"
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
	"github.com/agbox/agbox/store"
)

const desiredStopped = "stopped"

type agentHandleStore interface {
	Destination(id string) string
	QueuedPrompts(ctx context.Context, id string, limit int) ([]*storev1.AgentPrompt, error)
}

// agentHandles shows agents to clients.
type agentHandles struct {
	store  agentHandleStore
	status func(agentID string) (line string, unverified bool)
}

func (s *agentHandles) agentHandle(a store.Agent, withSpec bool) *agboxv1.AgentHandle {
	st := a.Status
	h := &agboxv1.AgentHandle{
		AgentId: a.ID, Name: a.Name, SandboxId: a.SandboxID, State: st.GetState(), StateChangedAt: nanoseconds(st.GetStateChangedAt()),
		NeedsAttention: st.GetNeedsAttention(), Incarnation: st.GetIncarnation(), Rung: rung(st), Version: st.GetVersion(),
		LastEventSequence: st.GetLastSequence(), PromptId: st.GetPromptId(), QueuedPrompts: uint32(a.Queued), Attempts: st.GetAttempts(),
		CreatedAt: timestamp(a.CreatedAt), Labels: a.Spec.GetLabels(), Format: cmp.Or(a.Spec.GetFormat(), "native"),
		DesiredState: desiredStates[a.Desired.GetRun()], Saved: st.GetSaved(), MovesTo: s.movesTo(a),
		HeldPrompts: uint32(a.Held), HeldReason: a.HeldReason, Session: savedSession(st.GetSession()),
	}
	h.Status, h.Activity = agentstate.Coarse(st.GetState())
	lives := h.Activity != "" || st.GetState() == agboxv1.AgentState_AGENT_STATE_STARTING
	h.Parked = st.GetParked() && !lives // the mark is for a later start
	h.StatusMessage, h.Unverified = s.agentMessage(a)
	if withSpec {
		h.Spec = a.Spec
	}
	return h
}

// savedSession shows the session of an agent's program that is saved outside its sandbox.
func savedSession(rec *storev1.AgentSessionRecord) *agboxv1.AgentSession {
	if rec == nil {
		return nil
	}
	return &agboxv1.AgentSession{SavedAt: nanoseconds(rec.GetSavedAt()), Files: rec.GetFiles(), Bytes: rec.GetBytes(), Problem: rec.GetProblem()}
}

// rung returns how the present process got the conversation. AGENT_RUNG_ADOPTED takes precedence over the rung of its start.
func rung(st *storev1.AgentStatus) agboxv1.AgentRung {
	if n := st.GetIncarnation(); n > 0 && st.GetAdoptedIncarnation() == n {
		return agboxv1.AgentRung_AGENT_RUNG_ADOPTED
	}
	return st.GetRung()
}

// movesTo is the ID of the sandbox to which an agent can move and is to, or the name of the one that it waits for.
func (s *agentHandles) movesTo(a store.Agent) string {
	if a.Corrupt || a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE {
		return ""
	}
	return cmp.Or(s.store.Destination(a.ID), a.Desired.GetHome())
}

// agentMessage returns the error, if any, and then what the daemon waits for, if anything.
func (s *agentHandles) agentMessage(a store.Agent) (text string, unverified bool) {
	if a.Corrupt {
		return "its stored record does not decode, so it is left alone; see the daemon's log", true
	}
	line, unverified := s.status(a.ID)
	reason := ""
	if a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_FAILED {
		reason = a.Status.GetReason()
	}
	switch {
	case reason == "" || reason == line:
		return line, unverified
	case line == "" || a.Status.GetNeedsAttention(): // nothing is waited for any more
		return reason, unverified
	}
	return reason + "; " + line, unverified
}

// desiredStates are the words for the states that can be asked for.
var desiredStates = map[storev1.AgentRun]string{
	storev1.AgentRun_AGENT_RUN_RUN:    "running",
	storev1.AgentRun_AGENT_RUN_STOP:   desiredStopped,
	storev1.AgentRun_AGENT_RUN_DELETE: "deleted",
}

// Bounds of AgentHandle.queue; part of the contract.
const (
	shownPrompts    = 20
	shownPromptText = 200 // characters
)

// agentQueue returns the prompts that wait or are held; none if the agent's record does not decode.
func (s *agentHandles) agentQueue(ctx context.Context, a store.Agent) ([]*agboxv1.AgentQueuedPrompt, error) {
	if a.Corrupt {
		return nil, nil
	}
	list, err := s.store.QueuedPrompts(ctx, a.ID, shownPrompts)
	if err != nil {
		return nil, err
	}
	var queue []*agboxv1.AgentQueuedPrompt
	for _, p := range list {
		text := []rune(p.GetText())
		queue = append(queue, &agboxv1.AgentQueuedPrompt{
			PromptId: p.GetPromptId(), Text: string(text[:min(len(text), shownPromptText)]), QueuedAt: nanoseconds(p.GetQueuedAt()),
			Held: p.GetHeld(), Given: p.GetClaims(), HeldReason: store.HeldReason(p),
		})
	}
	return queue, nil
}
