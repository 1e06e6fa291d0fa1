package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/conversation"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

// claim records the agent's next prompt, its offset in the inbox, and the past that goes with it. The inbox is written only after that.
func (p *pass) claim(ctx context.Context) error {
	if closed, out := dialect.Close(format(p.a.Spec), p.Position.GetDecoder()); len(out) > 0 {
		if err := p.closeMessage(ctx, closed, out); err != nil {
			return err
		}
	}
	size, err := p.r.cfg.Files.InboxSize(p.a.SandboxID, p.ExecID)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	claim := store.Claim{InboxOffset: size}
	if p.givesPast(size) {
		if claim.Past, err = p.past(ctx); err != nil {
			return err
		}
	}
	claim.Again = conversation.Again(claim.Past)
	_, _, err = p.r.cfg.Store.ClaimPrompt(ctx, p.a.ID, p.a.Status.GetVersion(), claim)
	return err
}

// closeMessage completes a message that the agent wrote without a prompt, so that it does not become part of the next answer.
func (p *pass) closeMessage(ctx context.Context, decoder []byte, list []dialect.Output) (err error) {
	next := proto.CloneOf(p.Position)
	next.Decoder = decoder
	if err := p.ingest(ctx, next, list); err != nil {
		return err
	}
	p.Position = next
	p.a, err = p.r.cfg.Store.Agent(ctx, p.a.ID)
	return err
}

// first returns the first bytes of the inbox of the present incarnation.
func (v *Observation) first() []byte {
	_, first := dialect.Launch(format(v.a.Spec), v.launch(v.a.Status.GetIncarnation(), v.a.Status.GetRung()))
	return first
}

// givesPast reports whether the next prompt is the first of an incarnation that receives its past with it.
func (v *Observation) givesPast(inbox int64) bool {
	return v.a.Status.GetRung() == agboxv1.AgentRung_AGENT_RUNG_CONTEXT && inbox == int64(len(v.first()))
}

// write writes data into the inbox at an offset derived from the record, so it may be repeated.
func (p *pass) write(offset int64, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	_, err := p.r.cfg.Files.AppendInbox(p.a.SandboxID, p.ExecID, offset, data)
	return err
}

// deliver writes what the inbox lacks: its first bytes, the claimed prompt, and then a nudge or an interrupt.
func (p *pass) deliver() error {
	if p.a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_STARTING {
		if err := p.write(0, p.first()); err != nil {
			return err
		}
	}
	if p.prompt != nil {
		if err := p.deliverPrompt(); err != nil {
			return err
		}
	}
	p.r.scratch.Change(p.a.ID, func(s *memory) { s.delivered = p.message() })
	return nil
}

// deliverPrompt writes the prompt in the agent's format, with the past if it was claimed with one.
func (p *pass) deliverPrompt() error {
	text := conversation.WithContext(p.prompt.GetPast(), p.prompt.GetText())
	line := dialect.Prompt(format(p.a.Spec), p.prompt.GetPromptId(), text)
	if err := p.write(p.prompt.GetInboxOffset(), line); err != nil {
		return err
	}
	end := p.prompt.GetInboxOffset() + int64(len(line))
	nudge := dialect.Prompt(format(p.a.Spec), nudgePromptID, cmp.Or(p.a.Desired.GetDefaultNudge(), p.a.Spec.GetNudge()))
	interrupt := dialect.Interrupt(format(p.a.Spec))
	if nudged(p.a) {
		if err := p.writeAfter(end, nudge, interrupt); err != nil {
			return err
		}
	}
	if interrupted(p.a) {
		return p.writeAfter(end, interrupt, nudge)
	}
	return nil
}

// nudgePromptID is the prompt ID of the nudge for the program. The nudge is in no conversation.
const nudgePromptID = "nudge"

// writeAfter writes data after a prompt: at offset, or after other if other was written there first. The order of the two is not recorded.
func (p *pass) writeAfter(offset int64, data, other []byte) error {
	err := p.write(offset, data)
	if !errdefs.IsFailedPrecondition(err) {
		return err
	}
	if err := p.write(offset, other); err != nil { // a crash may have left a part of it
		return err
	}
	return p.write(offset+int64(len(other)), data)
}

// past returns the context of all recorded events.
func (p *pass) past(ctx context.Context) (string, error) {
	events, err := p.events(ctx)
	if err != nil {
		return "", err
	}
	return conversation.Context(conversation.Reconstruct(events), conversation.Checkpoint(events), p.a.Spec.GetContext(), p.summary), nil
}

// eventBatch is the number of events per read.
const eventBatch = 256

// events returns the events of the agent, as of its record.
func (v *Observation) events(ctx context.Context) (all []*agboxv1.AgentEvent, err error) {
	last := v.a.Status.GetLastSequence()
	for after := uint64(0); after < last; after = all[len(all)-1].GetSequence() {
		batch, err := v.o.store.AgentEvents(ctx, v.a.ID, after, eventBatch)
		if err != nil {
			return nil, err
		}
		if len(batch) == 0 {
			break
		}
		all = append(all, batch...)
	}
	return slices.DeleteFunc(all, func(e *agboxv1.AgentEvent) bool { return e.GetSequence() > last }), nil
}
