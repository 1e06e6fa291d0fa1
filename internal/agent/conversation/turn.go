package conversation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The roles of turns.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"

	interrupted = "interrupted"
)

// Turn is a contribution of one side. All messages of an agent between a prompt and its result are one turn. Its JSON is a line of the input
// of summary commands.
type Turn struct {
	// Role is RoleUser or RoleAssistant.
	Role    string `json:"role"`
	Content string `json:"content"`
	// PromptID is the turn's own prompt, or the one that an assistant's turn answers; empty if there is none.
	PromptID string `json:"prompt_id,omitempty"`
	// Interrupted: a message was never completed, or the result says so. On a user's turn: it was cut off before any answer.
	Interrupted bool `json:"interrupted,omitempty"`
	// At and Sequence are those of its first event.
	At       time.Time `json:"at"`
	Sequence uint64    `json:"-"`
}

// Reconstruct builds turns from events in any order. The newest snapshot of each part counts; parts are in the order of their
// numbers. Turns without content are left out, unless they were interrupted. The events of a
// message whose creation was dropped count as the assistant's.
func Reconstruct(events []*agboxv1.AgentEvent) []Turn {
	ordered := slices.Clone(events)
	slices.SortStableFunc(ordered, func(a, b *agboxv1.AgentEvent) int { return cmp.Compare(a.GetSequence(), b.GetSequence()) })
	r := &reader{messages: map[key]*message{}}
	for _, ev := range ordered {
		r.event(ev)
	}
	return r.finish()
}

// Checkpoint returns the newest checkpoint; empty if there is none.
func Checkpoint(events []*agboxv1.AgentEvent) string {
	var newest *agboxv1.AgentEvent
	for _, ev := range events {
		if ev.GetCheckpoint() != nil && ev.GetSequence() >= newest.GetSequence() {
			newest = ev
		}
	}
	return newest.GetCheckpoint().GetText()
}

// key identifies a message: its ID is unique within an incarnation.
type key struct {
	incarnation uint64
	id          string
}

type message struct {
	parts    map[uint32]*agboxv1.AgentMessagePart
	complete bool
}

// open is a turn under construction.
type open struct {
	turn        Turn
	incarnation uint64
	messages    []*message
	ended       bool
	notes       []string
}

type reader struct {
	messages map[key]*message
	turns    []*open
}

func (r *reader) event(ev *agboxv1.AgentEvent) {
	switch ev.GetEventType() {
	case agboxv1.AgentEventType_AGENT_MESSAGE_CREATED:
		m := ev.GetMessage()
		r.begin(ev, m.GetMessageId(), m.GetRole(), m.GetPromptId())
	case agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED:
		p := ev.GetPart()
		r.message(ev, p.GetMessageId()).parts[p.GetPart()] = p
	case agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED:
		r.message(ev, ev.GetMessage().GetMessageId()).complete = true
	case agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED:
		r.result(ev)
	}
}

// message returns the message of an event. One whose creation event is missing is the assistant's.
func (r *reader) message(ev *agboxv1.AgentEvent, id string) *message {
	if m := r.messages[key{ev.GetIncarnation(), id}]; m != nil {
		return m
	}
	return r.begin(ev, id, RoleAssistant, "")
}

func (r *reader) begin(ev *agboxv1.AgentEvent, id, role, promptID string) *message {
	m := &message{parts: map[uint32]*agboxv1.AgentMessagePart{}}
	r.messages[key{ev.GetIncarnation(), id}] = m
	if role != RoleUser {
		role = RoleAssistant
	}
	t := r.last()
	if role == RoleUser || t == nil || t.ended || t.turn.Role != role || t.incarnation != ev.GetIncarnation() {
		t = r.add(ev, role, promptID)
	}
	t.messages = append(t.messages, m)
	return m
}

func (r *reader) last() *open {
	if len(r.turns) == 0 {
		return nil
	}
	return r.turns[len(r.turns)-1]
}

func (r *reader) add(ev *agboxv1.AgentEvent, role, promptID string) *open {
	if before := r.last(); role == RoleAssistant && before != nil && !before.ended {
		promptID = before.turn.PromptID // it answers the preceding turn
	}
	t := &open{incarnation: ev.GetIncarnation(), turn: Turn{Role: role, PromptID: promptID, Sequence: ev.GetSequence()}}
	if at := ev.GetOccurredAt(); at != nil {
		t.turn.At = at.AsTime()
	}
	r.turns = append(r.turns, t)
	return t
}

// result ends the turn. An error is appended to the turn's content.
func (r *reader) result(ev *agboxv1.AgentEvent) {
	res, t := ev.GetResult(), r.last()
	if t == nil || t.ended {
		return
	}
	if res.GetError() != "" && t.turn.Role == RoleUser {
		t = r.add(ev, RoleAssistant, "")
	}
	t.ended = true
	t.turn.Interrupted = t.turn.Interrupted || res.GetOutcome() == interrupted
	t.turn.PromptID = cmp.Or(t.turn.PromptID, res.GetPromptId())
	if res.GetError() != "" {
		t.notes = append(t.notes, "[error: "+OneLine(res.GetError(), maxNote)+"]")
	}
}

func (r *reader) finish() []Turn {
	var turns []Turn
	for _, t := range r.turns {
		var said []string
		for _, m := range t.messages {
			t.turn.Interrupted = t.turn.Interrupted || !m.complete
			said = append(said, content(m.parts))
		}
		t.turn.Content = joinLines(append(said, t.notes...))
		if t.turn.Content != "" || t.turn.Interrupted {
			turns = append(turns, t.turn)
		}
	}
	return turns
}

func joinLines(texts []string) string {
	texts = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
	return strings.Join(texts, "\n")
}
