package dialect

import (
	"bytes"
	"cmp"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// nativeLine is every line of the native format; docs/agents.md describes it for those who write such lines.
type nativeLine struct {
	Type       string  `json:"type"`
	MessageID  string  `json:"message_id"`
	Part       *uint32 `json:"part"`
	Kind       string  `json:"kind"`
	Text       *string `json:"text"`
	ToolName   string  `json:"tool_name"`
	ToolCallID string  `json:"tool_call_id"`
	Outcome    string  `json:"outcome"`
	Error      string  `json:"error"`
	Reason     string  `json:"reason"`
}

// native takes a line of stdout: one of ours, or plain text that the agent says. What is left of an object that was cut is
// neither.
func (e *emitter) native(line []byte) {
	if l := nativeObject(line); l != nil {
		e.nativeMessage(l)
		return
	}
	if len(line) >= MaxLine && line[0] == '{' {
		return
	}
	if len(line) > 0 || e.s.Stream != nil {
		e.piece(kindText, string(line)+"\n")
	}
}

// nativeObject is a line of ours; nil: it is none.
func nativeObject(line []byte) *nativeLine {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return nil // plain text may come fast
	}
	var l nativeLine
	if !parse(line, &l) || l.Type == "" {
		return nil
	}
	return &l
}

// text is what the line says. A line that lost it on its way says nothing, but for those that end a turn.
func (l *nativeLine) text() string {
	if l.Text == nil {
		return ""
	}
	return *l.Text
}

func (e *emitter) nativeMessage(l *nativeLine) {
	switch l.Type {
	case "ready":
		if !e.s.Ready {
			e.complete() // what it said before it was ready answers nothing
		}
		e.ready()
	case "message.created":
		e.complete()
		e.begin(l.MessageID)
	case "message_part.updated":
		e.nativePart(l)
	case "message.completed":
		e.nativeCompleted(l)
	case "message":
		e.nativeWhole(l)
	case "assistant.completed":
		if text := l.text(); text != "" {
			e.whole(&agboxv1.AgentMessagePart{Kind: kindText, Text: text})
		}
		e.result(l.Outcome, l.Error)
	default:
		e.shared(l, true)
	}
}

func (e *emitter) nativeWhole(l *nativeLine) {
	if l.Text != nil {
		e.complete()
		e.begin(l.MessageID)
		e.whole(&agboxv1.AgentMessagePart{Kind: kindText, Text: l.text()})
		e.complete()
	}
}

// nativePart tells a snapshot. Without a number it is part 0.
func (e *emitter) nativePart(l *nativeLine) {
	p := &agboxv1.AgentMessagePart{Kind: nativeKind(l.Kind), Text: l.text(), ToolName: l.ToolName, ToolCallId: l.ToolCallID}
	if l.Part != nil {
		p.Part = *l.Part
	}
	if p.Part >= maxPart || l.Text == nil {
		return
	}
	id := cmp.Or(l.MessageID, e.s.Foreign)
	if e.s.Grown > 0 && p.Part+1 >= e.s.Grown {
		e.complete() // its number may be that of plain text, whose place it must not take
	}
	e.begin(id)
	e.endStream()
	e.part(p)
}

func nativeKind(kind string) string {
	switch kind {
	case kindReasoning, kindToolCall, kindToolResult:
		return kind
	default:
		return kindText
	}
}

// nativeCompleted ends the message that is named, or the open one. One that is not open has nothing to end.
func (e *emitter) nativeCompleted(l *nativeLine) {
	if l.MessageID == "" || short(l.MessageID, maxID) == e.s.Foreign {
		e.complete()
	}
}

// outbox takes a line of the outbox, where programs that the agent runs may speak up. What ends a turn is believed of a
// native agent only: the others end theirs by their protocol.
func (e *emitter) outbox(format string, line []byte) {
	var l nativeLine
	if parse(bytes.TrimSpace(line), &l) {
		e.shared(&l, format == Native)
	}
}

func (e *emitter) shared(l *nativeLine, ends bool) {
	switch l.Type {
	case "checkpoint":
		if l.Text != nil {
			e.checkpoint(l.text())
		}
	case "status":
		e.status(l.text())
	case "done":
		if ends {
			e.result(l.Outcome, l.Error)
		}
	}
}

// status is a thought aloud: it is shown as it comes and is no part of what is said. Without an open message it gets one.
func (e *emitter) status(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	alone := !e.s.Open
	e.begin("")
	e.aside(&agboxv1.AgentMessagePart{Kind: kindReasoning, Text: text})
	if alone {
		e.complete()
	}
}
