package dialect

import (
	"cmp"
	"encoding/json"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// acpUpdate is one variant of session/update. Content is a block in chunks, and a list in tool calls.
type acpUpdate struct {
	Variant    string          `json:"sessionUpdate"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"toolCallId"`
	Name       string          `json:"name"`
	Title      string          `json:"title"`
	Kind       string          `json:"kind"`
	Status     string          `json:"status"`
	RawInput   json.RawMessage `json:"rawInput"`
	RawOutput  json.RawMessage `json:"rawOutput"`
}

func (e *emitter) acpUpdate(u *acpUpdate) {
	switch u.Variant {
	case "agent_message_chunk":
		e.acpNamed()
		e.piece(kindText, u.chunk())
	case "agent_thought_chunk":
		e.acpNamed()
		e.piece(kindReasoning, u.chunk())
	case "tool_call", "tool_call_update":
		e.acpNamed()
		e.acpTool(u)
	}
}

func (u *acpUpdate) chunk() string {
	var c acpContent
	if !acp.Decode(u.Content, &c) {
		return ""
	}
	return c.text()
}

// acpTool emits a call when it is announced and when its description changes, and its result whenever that has grown.
// An update contains only the changed members.
func (e *emitter) acpTool(u *acpUpdate) {
	t := e.tool(u.ToolCallID)
	if t == nil {
		e.addPart(u.call(""))
		t = e.remember(u.ToolCallID, u.name())
	} else if input := compact(u.RawInput); input != "" || u.Name != "" {
		// Programs put the command into later titles: only the first title is a name.
		if u.Name != "" {
			t.Name = short(u.Name, maxName)
		}
		e.updatePart(t.Part, u.call(t.Name))
	}
	if t != nil {
		e.acpToolResult(t, u)
	}
}

func (e *emitter) acpToolResult(t *tool, u *acpUpdate) {
	text := cmp.Or(acpOutput(u.Content), compact(u.RawOutput))
	ended := u.Status == "completed" || u.Status == "failed"
	if text == "" && (!ended || t.Result != nil) {
		return
	}
	p := &agboxv1.AgentMessagePart{Kind: kindToolResult, Text: text, ToolName: t.Name, ToolCallId: t.ID}
	if t.Result != nil {
		e.updatePart(*t.Result, p)
		return
	}
	id := t.ID
	part := e.addPart(p)
	if t := e.tool(id); t != nil { // dropped if the message was full
		t.Result = &part
	}
}

// updatePart emits another snapshot of a part. It flushes the growing text first, so that snapshots have the order of the
// lines.
func (e *emitter) updatePart(number uint32, p *agboxv1.AgentMessagePart) {
	e.endStream()
	p.Part = number
	e.part(p)
}

func (u *acpUpdate) name() string { return cmp.Or(u.Name, u.Title, u.Kind) }

func (u *acpUpdate) call(name string) *agboxv1.AgentMessagePart {
	name = cmp.Or(u.Name, name, u.name())
	text := compact(u.RawInput)
	if text == "" && u.Title != name {
		text = u.Title
	}
	return &agboxv1.AgentMessagePart{Kind: kindToolCall, Text: text, ToolName: name, ToolCallId: u.ToolCallID}
}
