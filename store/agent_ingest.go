package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
)

// AgentOutput is one decoded item of an agent's output.
type AgentOutput struct {
	// Event has a type and details: a message, a result, a checkpoint or a reset. The store sets its sequence, agent, incarnation and
	// time, and the prompt of a result. Nil: only the other fields apply.
	Event *agboxv1.AgentEvent
	// Ready and Result stand for the triggers CONNECTED and RESULT_RECEIVED, applied after the event. A trigger that is illegal in the
	// current state, such as one from output read after the end was recorded, is ignored.
	Ready, Result bool
	// SessionID is the ID of a session that the program can resume; empty: unchanged.
	SessionID string
	// SessionLost: the session cannot be resumed.
	SessionLost bool
}

// Ingest records the output of the current incarnation between two positions exactly once: from must equal the recorded position. The
// events, their effects and the new position are committed in one transaction. Errors: ErrAborted when from is not the recorded position,
// or the incarnation is not the current one; ErrInvalidArgument for events that no process can emit; AGENT_NOT_FOUND; ErrDataLoss;
// ErrUnavailable.
func (s *Store) Ingest(ctx context.Context, id string, incarnation uint64, from, to *storev1.AgentPosition, out []AgentOutput) error {
	to = proto.CloneOf(to)
	if to.GetIncarnation() != incarnation || incarnation == 0 {
		return fmt.Errorf("agent %s: position of incarnation %d for %d: %w", id, to.GetIncarnation(), incarnation, errdefs.ErrInvalidArgument)
	}
	events, err := ingestible(out)
	if err != nil {
		return fmt.Errorf("agent %s: %w", id, err)
	}
	return s.update(ctx, func(t *txn) error {
		d, err := t.agent(id)
		if err != nil {
			return err
		}
		have, err := t.position(id)
		switch {
		case err != nil:
			return err
		case d.Status.GetIncarnation() != incarnation, !proto.Equal(have, cmp.Or(from, &storev1.AgentPosition{})):
			return agentMoved(id, "output of incarnation %d is not what comes next", incarnation)
		}
		d.ingest(have, to, out, events)
		return nil
	})
}

// ingestible copies the events, and refuses types that only the store writes.
func ingestible(out []AgentOutput) ([]*agboxv1.AgentEvent, error) {
	events := make([]*agboxv1.AgentEvent, len(out))
	for i, o := range out {
		if o.Event == nil {
			continue
		}
		switch typ := o.Event.GetEventType(); typ {
		case agboxv1.AgentEventType_AGENT_MESSAGE_CREATED, agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED,
			agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED, agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED,
			agboxv1.AgentEventType_AGENT_CHECKPOINT, agboxv1.AgentEventType_AGENT_RESET:
			events[i] = proto.CloneOf(o.Event)
		default:
			return nil, fmt.Errorf("event %s in the output: %w", typ, errdefs.ErrInvalidArgument)
		}
	}
	return events, nil
}

func (d *agentDraft) ingest(have, to *storev1.AgentPosition, out []AgentOutput, events []*agboxv1.AgentEvent) {
	was := proto.CloneOf(d.Status)
	for i, o := range out {
		d.apply(o, events[i])
	}
	if !proto.Equal(have, to) {
		d.put(bucketAgentPosition, d.ID, to)
	}
	if !proto.Equal(was, d.Status) {
		d.save()
	}
}

func (d *agentDraft) apply(o AgentOutput, ev *agboxv1.AgentEvent) {
	st := d.Status
	if o.SessionID != "" && o.SessionID != st.GetSessionId() && d.knowsPast() {
		st.SessionId, st.SessionLost, d.wake = valid(o.SessionID), false, true
	}
	if o.SessionLost {
		st.SessionLost, d.wake = true, true
	}
	if ev != nil {
		if r := ev.GetResult(); r != nil {
			r.PromptId = st.GetPromptId()
		}
		d.append(ev)
		if ev.GetResult() != nil {
			st.ResultSequence = st.GetLastSequence()
		}
	}
	if o.Ready {
		d.applyTrigger(Transition{Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED, Reason: "it said that it is ready"})
	}
	if o.Result {
		d.applyTrigger(Transition{
			Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED, Reason: "its turn has ended", outcome: ev.GetResult().GetOutcome(),
		})
	}
}

// knowsPast reports whether the current process has received its context. A process that receives it with its first prompt knows nothing
// before that, so its session is not worth resuming.
func (d *agentDraft) knowsPast() bool {
	return d.Status.GetRung() != agboxv1.AgentRung_AGENT_RUNG_CONTEXT || d.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
}

// applyTrigger makes the transition if the state table allows it; an illegal one came too late to mean anything.
func (d *agentDraft) applyTrigger(tr Transition) {
	if _, changed, err := agentstate.Next(d.Status.GetState(), tr.Trigger, d.tableOptions()); err == nil && changed {
		d.transition(tr)
	}
}

// position reads how far an agent's output was ingested; empty: nothing was. Errors: ErrDataLoss.
func (l loader) position(id string) (*storev1.AgentPosition, error) {
	return optional[*storev1.AgentPosition](l, bucketAgentPosition, id, "")
}
