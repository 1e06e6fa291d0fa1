package dialect

import (
	"bytes"
	"encoding/json"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// What Launch asks, so that the answers tell how the process was launched: the program names its session again when it
// resumes one, and only the name that it was given can be resumed again.
const (
	claudeNew       = "agbox-new:"
	claudeResume    = "agbox-resume:"
	claudeInterrupt = "agbox-interrupt"

	// What a session that is not there is called by every version known; in a result, or as a line of text.
	claudeNoSession = "no conversation found"
	// What stands in the user's place when a turn was interrupted.
	claudeStopped = "[Request interrupted by user"
)

type claudeLine struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	SessionID string          `json:"session_id"`
	Parent    string          `json:"parent_tool_use_id"`
	Message   claudeMessage   `json:"message"`
	Event     claudeEvent     `json:"event"`
	Response  claudeResponse  `json:"response"`
	IsError   bool            `json:"is_error"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`
	Errors    []string        `json:"errors"`
}

type claudeMessage struct {
	ID string `json:"id"`
	// Text or blocks.
	Content json.RawMessage `json:"content"`
}

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

type claudeResponse struct {
	Subtype   string `json:"subtype"`
	RequestID string `json:"request_id"`
}

func (e *emitter) claude(line []byte) {
	line = bytes.TrimSpace(line)
	var l claudeLine
	if !parse(line, &l) {
		e.claudeNoise(line)
		return
	}
	if l.Parent != "" {
		return // a helper of the agent speaks, not the agent
	}
	switch l.Type {
	case "system":
		e.claudeSystem(&l)
	case "control_response":
		e.claudeAnswer(&l.Response)
	case "stream_event":
		e.claudeStream(&l.Event)
	case "assistant":
		e.claudeAssistant(&l.Message)
	case "user":
		e.claudeUser(&l.Message)
	case "result":
		e.claudeResult(&l)
	}
}

// claudeNoise is a line of text. Only one such line means something.
func (e *emitter) claudeNoise(line []byte) {
	if !e.s.Ready && strings.HasPrefix(strings.ToLower(string(line)), claudeNoSession) {
		e.reset("the session could not be resumed")
	}
}

// claudeSystem takes the init that precedes each turn. Only by then is the session on the program's disk.
func (e *emitter) claudeSystem(l *claudeLine) {
	if l.Subtype != "init" {
		return
	}
	if e.s.Session == "" && soundID(l.SessionID) {
		e.s.Session = l.SessionID
	}
	o := Output{Ready: !e.s.Ready}
	if !e.s.Named && e.s.Session != "" {
		o.SessionID, e.s.Named = e.s.Session, true
	}
	if o.Ready || o.SessionID != "" {
		e.add(o)
	}
	e.s.Ready, e.s.Begun, e.s.Interrupted = true, true, false
}

// claudeAnswer takes the answer to a request of ours.
func (e *emitter) claudeAnswer(r *claudeResponse) {
	if r.RequestID == claudeInterrupt {
		e.s.Interrupted = true
		return
	}
	id, isNew := strings.CutPrefix(r.RequestID, claudeNew)
	if !isNew {
		var resumed bool
		if id, resumed = strings.CutPrefix(r.RequestID, claudeResume); !resumed {
			return
		}
	}
	if e.s.Session == "" && soundID(id) {
		e.s.Session = id
	}
	// A refusal by an older version that knows no such request still shows that it reads.
	e.ready()
}

// claudeAssistant takes blocks of a message; one message may come in several lines.
func (e *emitter) claudeAssistant(m *claudeMessage) {
	for _, b := range claudeBlocks(m.Content) {
		switch b.Type {
		case "text":
			e.claudeText(m.ID, b.Text)
		case "thinking":
			e.claudeFinal(m.ID, &agboxv1.AgentMessagePart{Kind: kindReasoning, Text: b.Thinking})
		case "tool_use", "server_tool_use":
			e.claudeFinal(m.ID, &agboxv1.AgentMessagePart{
				Kind: kindToolCall, Text: compact(b.Input), ToolName: b.Name, ToolCallId: b.ID,
			})
			e.remember(b.ID, b.Name)
		}
	}
}

func (e *emitter) claudeText(message, text string) {
	e.begin(message)
	if e.s.LastText && len(e.s.Drafts) == 0 {
		text = "\n" + text // adjacent text parts are one text
	}
	e.claudeFinal(message, &agboxv1.AgentMessagePart{Kind: kindText, Text: text})
}

// claudeFinal tells a part in the place of its draft, if it has one.
func (e *emitter) claudeFinal(message string, p *agboxv1.AgentMessagePart) {
	e.begin(message)
	for i, d := range e.s.Drafts {
		if d.Kind == p.Kind {
			if e.s.Stream != nil && e.s.Stream.Part == d.Part {
				e.s.Stream = nil // this is all of it
			}
			e.s.Drafts = append(e.s.Drafts[:i:i], e.s.Drafts[i+1:]...)
			p.Part = d.Part
			e.part(p)
			return
		}
	}
	e.whole(p)
}

// claudeUser takes what is put to the model: results of tools, and the mark of an interrupted turn. Prompts that the
// program repeats are no news.
func (e *emitter) claudeUser(m *claudeMessage) {
	for _, b := range claudeBlocks(m.Content) {
		switch {
		case b.Type == "tool_result":
			e.whole(&agboxv1.AgentMessagePart{
				Kind: kindToolResult, Text: claudeOutput(b.Content), ToolName: e.toolName(b.ToolUseID), ToolCallId: b.ToolUseID,
			})
		case b.Type == "text" && strings.HasPrefix(b.Text, claudeStopped):
			e.s.Interrupted = true
		}
	}
}
