package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
)

// Kinds of the parts of a message.
const (
	partText       = "text"
	partToolCall   = "tool_call"
	partToolResult = "tool_result"
)

// toolWidth is how many characters of a tool's call and result are shown.
const toolWidth = 100

// talk writes a conversation as it arrives: new text of the agent to out, and one line per tool use to side. It omits reasoning.
type talk struct {
	out, side io.Writer
	// results also shows results of tools; users also shows messages of users, except the prompts in own.
	results, users bool
	own            map[string]bool

	messages map[messageKey]shown
	inRow    bool // the current line has no line end yet
	last     messageKey
}

// shown is how far a message is shown: the text of its last part.
type shown struct {
	role, text string
	part       uint32
}

type messageKey struct {
	incarnation uint64
	id          string
}

func newTalk(out, side io.Writer) *talk {
	return &talk{out: out, side: side, own: map[string]bool{}, messages: map[messageKey]shown{}}
}

// show writes an event. Errors are those of writing.
func (t *talk) show(e *agboxv1.AgentEvent) error {
	switch e.GetEventType() {
	case agboxv1.AgentEventType_AGENT_MESSAGE_CREATED:
		m := e.GetMessage()
		key := messageKey{e.GetIncarnation(), m.GetMessageId()}
		role := m.GetRole()
		if role == roleUser && t.own[m.GetPromptId()] {
			role = roleHidden
		}
		t.messages[key] = shown{role: role}
	case agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED:
		return t.showPart(messageKey{e.GetIncarnation(), e.GetPart().GetMessageId()}, e.GetPart())
	case agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED:
		delete(t.messages, messageKey{e.GetIncarnation(), e.GetMessage().GetMessageId()})
	}
	return nil
}

const (
	roleUser   = "user"
	roleHidden = "hidden"
)

func (t *talk) showPart(key messageKey, p *agboxv1.AgentMessagePart) error {
	role := t.messages[key].role
	switch {
	case role == roleHidden, role == roleUser && !t.users:
		return nil
	case role == roleUser:
		return t.line(t.out, "> "+strings.ReplaceAll(strings.TrimRight(p.GetText(), "\n"), "\n", "\n> "))
	case p.GetKind() == partText:
		return t.text(key, p)
	case p.GetKind() == partToolCall:
		return t.line(t.side, fmt.Sprintf("[%s] %s", p.GetToolName(), clip(termsafe.Line(p.GetText()), toolWidth)))
	case p.GetKind() == partToolResult && t.results:
		return t.line(t.side, "  -> "+clip(termsafe.Line(strings.TrimSpace(p.GetText())), toolWidth))
	}
	return nil
}

// text writes what a snapshot adds to the previous one. It joins the parts of a message, and starts each message on a new line.
func (t *talk) text(key messageKey, p *agboxv1.AgentMessagePart) error {
	if t.last != key {
		if err := t.end(); err != nil {
			return err
		}
	}
	m := t.messages[key]
	if m.part != p.GetPart() {
		m.text = ""
	}
	more, grown := strings.CutPrefix(p.GetText(), m.text)
	if !grown {
		more = "\n" + p.GetText() // the part was rewritten
	}
	m.part, m.text = p.GetPart(), p.GetText()
	t.messages[key], t.last = m, key
	return t.write(more)
}

func (t *talk) write(text string) error {
	if text == "" {
		return nil
	}
	t.inRow = !strings.HasSuffix(text, "\n")
	out := t.out
	if !isTerminal(out) {
		out = termsafe.Unfiltered(out) // a program may read it
	}
	_, err := io.WriteString(out, text)
	return err
}

// line writes whole lines, also between two pieces of a text.
func (t *talk) line(w io.Writer, text string) error {
	if err := t.end(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, termsafe.Text(text))
	return err
}

// end writes a line end if the current line has none.
func (t *talk) end() error {
	if !t.inRow {
		return nil
	}
	t.inRow = false
	_, err := fmt.Fprintln(t.out)
	return err
}

// agentEventLine is "12  2026-01-02T15:04:05Z  STATE_CHANGED  IDLE -> BUSY ..." on one line.
func agentEventLine(e *agboxv1.AgentEvent) string {
	parts := []string{
		fmt.Sprintf("%-4d", e.GetSequence()), localTime(e.GetOccurredAt()),
		fmt.Sprintf("%-20s", strings.TrimPrefix(e.GetEventType().String(), "AGENT_")),
	}
	switch d := e.GetDetails().(type) {
	case *agboxv1.AgentEvent_Message:
		parts = append(parts, d.Message.GetRole(), d.Message.GetPromptId())
	case *agboxv1.AgentEvent_Part:
		parts = append(parts, d.Part.GetKind(), d.Part.GetToolName(), clip(strings.TrimSpace(d.Part.GetText()), toolWidth))
	case *agboxv1.AgentEvent_Transition:
		parts = append(parts, transitionText(d.Transition))
	case *agboxv1.AgentEvent_Checkpoint:
		parts = append(parts, clip(strings.TrimSpace(d.Checkpoint.GetText()), toolWidth))
	case *agboxv1.AgentEvent_Result:
		if d.Result.GetOutcome() == "withdrawn" {
			parts = append(parts, d.Result.GetPromptId())
		}
		parts = append(parts, d.Result.GetOutcome(), d.Result.GetError())
	case *agboxv1.AgentEvent_Move:
		parts = append(parts, d.Move.GetFromSandboxId(), "to", d.Move.GetToSandboxId())
	case *agboxv1.AgentEvent_Drain:
		parts = append(parts, drainPhaseText(d.Drain))
	case *agboxv1.AgentEvent_Session:
		parts = append(parts, d.Session.GetProblem())
	case *agboxv1.AgentEvent_Truncation:
		parts = append(parts, fmt.Sprintf("through %d: %s", d.Truncation.GetThroughSequence(), d.Truncation.GetReason()))
	}
	return termsafe.Line(strings.Join(nonEmpty(parts), "  "))
}

// nonEmpty removes empty texts from list, which it changes.
func nonEmpty(list []string) []string {
	return slices.DeleteFunc(list, func(one string) bool { return one == "" })
}

// drainPhaseText describes the phase of a drain.
func drainPhaseText(d *agboxv1.AgentDrain) string {
	return cmp.Or(map[agboxv1.DrainPhase]string{
		agboxv1.DrainPhase_DRAIN_PHASE_WAITING: "the daemon drains: turns may finish, prompts are queued",
		agboxv1.DrainPhase_DRAIN_PHASE_SAVING:  "the daemon drains: agents that still work are ended, and their work is saved",
		agboxv1.DrainPhase_DRAIN_PHASE_DONE:    "the daemon has drained",
	}[d.GetPhase()], "the drain has ended") + given(" (", termsafe.Line(d.GetReason()), ")")
}

// transitionText is "IDLE -> BUSY (PROMPT_RECEIVED: reason)".
func transitionText(t *agboxv1.AgentTransition) string {
	return fmt.Sprintf("%s -> %s (%s)", enum.Word(t.GetFrom()), enum.Word(t.GetTo()), joinError(enum.Word(t.GetTrigger()), t.GetReason()))
}
