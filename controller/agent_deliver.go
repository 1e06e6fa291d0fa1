package controller

import (
	"context"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/conversation"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

// claim gives the agent its next prompt. Where in its inbox, and with which past, is on record before anything is written
// there.
func (v *agentView) claim(ctx context.Context) error {
	if closed, out := dialect.Close(format(v.a.Spec), v.position.GetDecoder()); len(out) > 0 {
		if err := v.closeMessage(ctx, closed, out); err != nil {
			return err
		}
	}
	size, err := v.cfg.Execs.InboxSize(v.a.SandboxID, v.execID)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	claim := store.Claim{InboxOffset: size}
	if v.tellsPast(size) {
		if claim.Past, err = v.past(ctx, v.a.Status.GetLastSequence(), v.summary); err != nil {
			return err
		}
	}
	_, _, err = v.cfg.Store.ClaimPrompt(ctx, v.a.ID, v.a.Status.GetVersion(), claim)
	return err
}

// closeMessage completes what the agent said unasked, which is no part of its next answer.
func (v *agentView) closeMessage(ctx context.Context, decoder []byte, list []dialect.Output) (err error) {
	next := proto.CloneOf(v.position)
	next.Decoder = decoder
	var out []store.AgentOutput
	for _, o := range list {
		out = append(out, store.AgentOutput(o))
	}
	if err := v.cfg.Store.Ingest(ctx, v.a.ID, v.a.Status.GetIncarnation(), v.position, next, out); err != nil {
		return err
	}
	v.position = next
	v.a, err = v.cfg.Store.Agent(ctx, v.a.ID)
	return err
}

// first is what the inbox of the present incarnation begins with.
func (v *agentView) first() []byte {
	_, first := dialect.Launch(format(v.a.Spec), v.launch(v.a.Status.GetIncarnation(), v.a.Status.GetRung()))
	return first
}

// tellsPast reports whether the next prompt is the first of an incarnation that is told its past with it.
func (v *agentView) tellsPast(inbox int64) bool {
	return v.a.Status.GetRung() == agboxv1.AgentRung_AGENT_RUNG_CONTEXT && inbox == int64(len(v.first()))
}

// write puts data into the inbox at an offset that follows from the record, so it may be repeated.
func (v *agentView) write(offset int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	_, err := v.cfg.Execs.AppendInbox(v.a.SandboxID, v.execID, offset, data)
	return err
}

// deliver writes into the inbox what is not there: the beginning, the claimed prompt, and then what its turn is told.
func (v *agentView) deliver(ctx context.Context) error {
	if v.a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_STARTING {
		if err := v.write(0, v.first()); err != nil {
			return err
		}
	}
	if v.prompt != nil {
		if err := v.deliverPrompt(ctx); err != nil {
			return err
		}
	}
	if v.prompt != nil && !v.agentBoard.toldPrompt(v.a.ID, v.prompt) {
		v.cfg.Metrics.AgentPrompted()
	}
	v.agentBoard.tell(v.a.ID, v.message())
	return nil
}

func (v *agentView) deliverPrompt(ctx context.Context) error {
	line, err := v.promptLine(ctx)
	if err != nil {
		return err
	}
	if err := v.write(v.prompt.GetInboxOffset(), line); err != nil {
		return err
	}
	end := v.prompt.GetInboxOffset() + int64(len(line))
	nudge := dialect.Prompt(format(v.a.Spec), nudgePromptID, v.a.Spec.GetNudge())
	interrupt := dialect.Interrupt(format(v.a.Spec))
	if nudged(v.a) {
		if err := v.writeAfter(end, nudge, interrupt); err != nil {
			return err
		}
	}
	if interrupted(v.a) {
		return v.writeAfter(end, interrupt, nudge)
	}
	return nil
}

// nudgePromptID names the nudge to the program. It is in nobody's conversation.
const nudgePromptID = "nudge"

// writeAfter puts data behind a prompt: at offset, or behind the one other thing that may have come there first. Which it was
// is not on record, but it can only be one of the two.
func (v *agentView) writeAfter(offset int64, data, other []byte) error {
	err := v.write(offset, data)
	if !errdefs.IsFailedPrecondition(err) {
		return err
	}
	if err := v.write(offset, other); err != nil { // it may be torn
		return err
	}
	return v.write(offset+int64(len(other)), data)
}

// promptLine is the prompt as the agent reads it, with the past where it was claimed with one.
func (v *agentView) promptLine(ctx context.Context) ([]byte, error) {
	past := v.prompt.GetPast()
	//nolint:staticcheck // claimed by an older daemon
	if through, summary := v.prompt.GetContextThrough(), v.prompt.GetSummary(); through > 0 {
		var err error
		if past, err = v.past(ctx, through, summary); err != nil {
			return nil, err
		}
	}
	text := conversation.WithContext(past, v.prompt.GetText())
	return dialect.Prompt(format(v.a.Spec), v.prompt.GetPromptId(), text), nil
}

// past is the context of everything up to an event, with a summary of the older turns unless that is empty.
func (v *agentView) past(ctx context.Context, through uint64, summary string) (string, error) {
	events, err := eventsThrough(ctx, v.cfg.Store, v.a.ID, through)
	if err != nil {
		return "", err
	}
	policy := conversation.PolicyOf(v.a.Spec.GetContext())
	return conversation.Context(conversation.Reconstruct(events), conversation.Checkpoint(events), policy, summary), nil
}

// eventBatch is how many events are read at once.
const eventBatch = 256

func eventsThrough(ctx context.Context, s AgentStore, id string, through uint64) (all []*agboxv1.AgentEvent, err error) {
	for after := uint64(0); after < through; {
		batch, err := s.AgentEvents(ctx, id, after, eventBatch)
		if err != nil {
			return nil, err
		}
		if len(batch) == 0 {
			break
		}
		for _, e := range batch {
			if e.GetSequence() <= through {
				all = append(all, e)
			}
		}
		after = batch[len(batch)-1].GetSequence()
	}
	return all, nil
}
