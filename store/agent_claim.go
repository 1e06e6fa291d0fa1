package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Claim says how a prompt is delivered.
type Claim struct {
	// InboxOffset is the prompt's offset in the inbox.
	InboxOffset int64
	// Past is the context delivered with the prompt, and Again that of a prompt that was claimed before; empty: none.
	Past, Again string
}

// ClaimPrompt makes an IDLE agent BUSY with its first waiting prompt, in one transaction with the user's message. Of several callers with
// the same version one succeeds. Errors: ErrAborted when version, unless it is 0, is not the current one, when the agent is not wanted to
// run, or during a drain; ErrNotFound when no prompt waits; SANDBOX_NOT_READY; *agentstate.IllegalError when the agent is not IDLE;
// AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) ClaimPrompt(ctx context.Context, id string, version uint64, c Claim) (Agent, *storev1.AgentPrompt, error) {
	var p *storev1.AgentPrompt
	a, err := changedAgent(onAgent(ctx, s, id, func(d *agentDraft) (_ *agentDraft, err error) {
		p, err = d.claim(version, c)
		return d, err
	}))
	if err != nil {
		return Agent{}, nil, err
	}
	return a, proto.CloneOf(p), nil
}

func (d *agentDraft) claim(version uint64, c Claim) (*storev1.AgentPrompt, error) {
	st := d.Status
	tr := Transition{
		Incarnation: st.GetIncarnation(), Version: version, Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED,
	}
	if err := d.fence(tr); err != nil {
		return nil, err
	}
	if err := d.gate(); err != nil {
		return nil, err
	}
	n, p := d.nextPrompt(d.Agent)
	if p == nil {
		return nil, fmt.Errorf("agent %s: no prompt waits: %w", d.ID, errdefs.ErrNotFound)
	}
	past := c.Past
	if p.GetClaims() > 0 {
		past = c.Again
	}
	p.Incarnation, p.InboxOffset, p.Past = st.GetIncarnation(), c.InboxOffset, valid(past)
	p.Claims++
	d.Queued--
	tr.Reason = "prompt " + p.GetPromptId()
	d.recordPrompt(n, p)
	// An interrupt or nudge requested for the turn that was cut off does not apply to this one.
	d.forgetTurn()
	st.PromptId, st.Parked = p.GetPromptId(), false
	d.transition(tr)
	d.putNumbered(prefixAgentPrompts+d.ID, n, p)
	d.save()
	return p, nil
}

// recordPrompt appends the events of the user's message.
func (d *agentDraft) recordPrompt(n uint64, p *storev1.AgentPrompt) {
	m := &agboxv1.AgentMessage{
		MessageId: fmt.Sprintf("%s%d.%d", promptMessage, n, p.GetClaims()), Role: roleUser, PromptId: p.GetPromptId(),
	}
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_CREATED, Details: &agboxv1.AgentEvent_Message{Message: m},
	})
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED,
		Details: &agboxv1.AgentEvent_Part{Part: &agboxv1.AgentMessagePart{
			MessageId: m.GetMessageId(), Kind: "text", Text: p.GetText(),
		}},
	})
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED, Details: &agboxv1.AgentEvent_Message{Message: proto.CloneOf(m)},
	})
}

const (
	roleUser = "user"
	// promptMessage is the prefix of the message IDs of users, and of no others.
	promptMessage = "prompt."
)
