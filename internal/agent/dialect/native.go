package dialect

import (
	"bytes"
	"cmp"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// nativeLine is any line of the native format; docs/agents.md documents it for authors of agents.
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

// native handles a line of stdout: a JSON message, or plain text of the agent. The rest of a cut JSON object is dropped.
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

// nativeObject decodes a JSON message; nil if the line is plain text.
func nativeObject(line []byte) *nativeLine {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return nil // fast path for plain text
	}
	var l nativeLine
	if !parse(line, &l) || l.Type == "" {
		return nil
	}
	return &l
}

// text returns the line's text. A damaged line without text is ignored, unless it ends a turn.
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
			e.complete() // text from before readiness answers no prompt
		}
		e.ready()
	case "message.created":
		e.complete()
		e.begin(l.MessageID)
	case "message_part.updated":
		e.nativePart(l)
	case "message.completed":
		if l.MessageID == "" || short(l.MessageID, maxID) == e.s.Foreign { // the open one if none is named
			e.complete()
		}
	case "message":
		if l.Text != nil {
			e.complete()
			e.begin(l.MessageID)
			e.addPart(&agboxv1.AgentMessagePart{Kind: kindText, Text: l.text()})
			e.complete()
		}
	case "assistant.completed":
		if text := l.text(); text != "" {
			e.addPart(&agboxv1.AgentMessagePart{Kind: kindText, Text: text})
		}
		e.result(l.Outcome, l.Error)
	default:
		e.shared(l, true)
	}
}

// nativePart emits a snapshot of a part; part 0 if the line has no number.
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
		e.complete() // its number may be that of plain text, which it must not overwrite
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

// outbox handles a line of the outbox, which programs run by the agent may write. Only for a native agent may such a line end
// a turn: the others end it by their protocol.
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

// status emits the text as reasoning, so it is shown but not part of the answer. Without an open message it gets its own.
func (e *emitter) status(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	alone := !e.s.Open
	e.begin("")
	e.appendPart(&agboxv1.AgentMessagePart{Kind: kindReasoning, Text: text})
	if alone {
		e.complete()
	}
}
