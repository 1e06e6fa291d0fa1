package store

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store/internal/txlog"
)

type (
	agentStatus  = storev1.AgentStatus
	agentDesired = storev1.AgentDesired
)

// agentDraft is an agent that one request changes. save stages the appended events; parts superseded within the same request are never
// written.
type agentDraft struct {
	*txn
	*Agent
	events  []*agboxv1.AgentEvent // appended; superseded ones are set to nil
	staged  int                   // number of appended events that were staged
	dropped map[uint64]bool       // stored events whose removal is staged
	wake    bool                  // call the agent hooks
}

// agent returns a draft. Errors: AGENT_NOT_FOUND; ErrDataLoss.
func (t *txn) agent(id string) (*agentDraft, error) {
	a := t.agentBefore(id)
	switch {
	case a == nil:
		return nil, agentNotFound(id)
	case a.Corrupt:
		return nil, corruptAgent(id)
	}
	return t.draft(a), nil
}

// onAgent runs fn with a draft of an agent in one transaction. Errors: those of txn.agent and of fn.
func onAgent[T any](ctx context.Context, s *Store, id string, fn func(*agentDraft) (T, error)) (T, error) {
	return updated(ctx, s, func(t *txn) (out T, err error) {
		d, err := t.agent(id)
		if err != nil {
			return out, err
		}
		return fn(d)
	})
}

func (t *txn) draft(a *Agent) *agentDraft {
	c := a.copied()
	return &agentDraft{txn: t, Agent: &c, dropped: map[uint64]bool{}}
}

// append assigns the event its sequence and incarnation and adds it to the history.
func (d *agentDraft) append(ev *agboxv1.AgentEvent) {
	st := d.Status
	st.LastSequence++
	ev.Sequence, ev.AgentId, ev.Incarnation = st.GetLastSequence(), d.ID, st.GetIncarnation()
	ev.OccurredAt = timestamppb.New(d.now)
	d.events = append(d.events, ev)
	switch ev.GetEventType() {
	case agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED:
		d.compact(ev.GetMessage().GetMessageId())
	case agboxv1.AgentEventType_AGENT_CHECKPOINT:
		st.CheckpointSequence = ev.GetSequence()
	}
}

// save stages the draft with its history, and the resulting change of its sandbox.
func (d *agentDraft) save() {
	d.stageEvents()
	d.trimHistory()
	d.Status.Version++
	d.put(bucketAgentStatus, d.ID, d.Status)
	d.put(bucketAgentDesired, d.ID, d.Desired)
	d.changes.agents[d.ID] = d.Agent
	if d.wake {
		d.touched = append(d.touched, Change{AgentID: d.ID})
	}
	d.settle(d.SandboxID)
}

// stageEvents stages the appended events that were not superseded.
func (d *agentDraft) stageEvents() {
	for _, ev := range d.events {
		if ev == nil {
			continue
		}
		b, err := encodeEvent(ev)
		if err != nil {
			d.fail(fmt.Errorf("event %d of agent %s: %w", ev.GetSequence(), d.ID, err))
			return
		}
		d.stage(putOp(prefixAgentEvents+d.ID, encodeInt(ev.GetSequence()), b))
		d.staged++
		d.Status.Events++
		d.Status.EventBytes += uint64(len(b))
	}
	d.events = nil
}

// encodeEvent encodes an event of program output: text that is not UTF-8 is converted first.
func encodeEvent(ev *agboxv1.AgentEvent) ([]byte, error) {
	b, err := encode(ev)
	if err == nil {
		return b, nil
	}
	makeValid(ev.ProtoReflect())
	return encode(ev)
}

func makeValid(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList(), f.IsMap():
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(valid(v.String())))
		case f.Kind() == protoreflect.MessageKind:
			makeValid(v.Message())
		}
		return true
	})
}

// forget stages the removal of a stored event.
func (d *agentDraft) forget(key, value []byte) {
	d.Status.Events -= min(d.Status.GetEvents(), 1)
	d.Status.EventBytes -= min(d.Status.GetEventBytes(), uint64(len(value)))
	d.ops = append(d.ops, op{Kind: txlog.Delete, Bucket: prefixAgentEvents + d.ID, Key: bytes.Clone(key)})
}

// putNumbered stages a record whose key is a number.
func (t *txn) putNumbered(bucket string, n uint64, m proto.Message) {
	t.put(bucket, string(encodeInt(n)), m)
}

func (t *txn) deleteNumbered(bucket string, n uint64) { t.delete(bucket, string(encodeInt(n))) }
