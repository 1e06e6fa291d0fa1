package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
)

// AgentOutput is one thing that an agent's process said.
type AgentOutput struct {
	// Event has a type and details: what was said, a result, a checkpoint, or that the past was forgotten. Sequence, agent,
	// incarnation, time, and the prompt of a result are the store's. Nil: only the rest counts.
	Event *agboxv1.AgentEvent
	// Ready and Result are CONNECTED and RESULT_RECEIVED, which come after the event. Where the table has no answer, as for
	// what is read after an end was recorded, they change nothing.
	Ready, Result bool
	// SessionID is the program's name of a session that it can resume; empty: nothing new.
	SessionID string
	// SessionLost: that session can't be resumed.
	SessionLost bool
}

// Ingest takes in what the present incarnation has said between two positions, exactly once: from must be the position
// as it is recorded. Events, what follows from them and the new position are one transaction. Errors: ErrAborted when from
// is not the recorded position, or the incarnation is not the present one; ErrInvalidArgument for events that no process
// can say; AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
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
		have, err := loader{t.tx, t.note}.position(id)
		switch {
		case err != nil:
			return err
		case d.Status.GetIncarnation() != incarnation, !proto.Equal(have, orEmpty(from)):
			return agentMoved(id, "output of incarnation %d is not what comes next", incarnation)
		}
		return d.ingest(have, to, out, events)
	})
}

// ingestible copies the events, and refuses those that only the store writes.
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

func orEmpty(p *storev1.AgentPosition) *storev1.AgentPosition {
	if p == nil {
		return &storev1.AgentPosition{}
	}
	return p
}

func (d *agentDraft) ingest(have, to *storev1.AgentPosition, out []AgentOutput, events []*agboxv1.AgentEvent) error {
	was := proto.CloneOf(d.Status)
	for i, o := range out {
		if err := d.take(o, events[i]); err != nil {
			return err
		}
	}
	if !proto.Equal(have, to) {
		if err := d.put(bucketAgentPosition, d.ID, to); err != nil {
			return err
		}
	}
	if proto.Equal(was, d.Status) {
		return nil
	}
	return d.save()
}

func (d *agentDraft) take(o AgentOutput, ev *agboxv1.AgentEvent) error {
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
	}
	if o.Ready {
		if err := d.takeTrigger(Transition{Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED, Reason: "it said that it is ready"}); err != nil {
			return err
		}
	}
	if o.Result {
		return d.takeTrigger(Transition{
			Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED, Reason: "its turn has ended", outcome: ev.GetResult().GetOutcome(),
		})
	}
	return nil
}

// knowsPast reports whether the present process was told what it is to know: one that is told its past with its first prompt knows
// nothing before that, and a session without it is not worth to be resumed.
func (d *agentDraft) knowsPast() bool {
	return d.Status.GetRung() != agboxv1.AgentRung_AGENT_RUNG_CONTEXT || d.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
}

// takeTrigger applies a trigger where the table has an answer.
func (d *agentDraft) takeTrigger(tr Transition) error {
	_, changed, err := agentstate.Next(d.Status.GetState(), tr.Trigger, d.tableOptions())
	if err != nil || !changed {
		return nil //nolint:nilerr // illegal: it came too late to mean anything
	}
	return d.transition(tr)
}

// position reads how far an agent was read. Errors: ErrDataLoss.
func (l loader) position(id string) (*storev1.AgentPosition, error) {
	p := &storev1.AgentPosition{}
	if get(l.tx, bucketAgentPosition, []byte(id)) == nil {
		return p, nil
	}
	return p, l.message(bucketAgentPosition, id, "", p)
}
