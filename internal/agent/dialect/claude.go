package dialect

import (
	"bytes"
	"encoding/json"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// IDs of Launch's requests, which the responses repeat to show how the process was launched: a program that resumes a session
// reports a new ID, but only the ID that it was launched with can be resumed again.
const (
	claudeNew       = "agbox-new:"
	claudeResume    = "agbox-resume:"
	claudeInterrupt = "agbox-interrupt"

	// claudeNoSession is how every known version reports a missing session; in a result, or as a line of text.
	claudeNoSession = "no conversation found"
	// claudeStopped starts the user message of an interrupted turn.
	claudeStopped = "[Request interrupted by user"
)

type claudeLine struct {
	Type      string        `json:"type"`
	Subtype   string        `json:"subtype"`
	SessionID string        `json:"session_id"`
	Parent    string        `json:"parent_tool_use_id"`
	Message   claudeMessage `json:"message"`
	Event     claudeEvent   `json:"event"`
	Response  struct {
		RequestID string `json:"request_id"`
	} `json:"response"`
	IsError bool            `json:"is_error"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
	Errors  []string        `json:"errors"`
}

type claudeMessage struct {
	ID string `json:"id"`
	// Content is a string or a list of blocks.
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

func (e *emitter) claude(line []byte) {
	line = bytes.TrimSpace(line)
	var l claudeLine
	if !parse(line, &l) {
		e.claudePlain(line)
		return
	}
	if l.Parent != "" {
		return // a message of a subagent
	}
	switch l.Type {
	case "system":
		e.claudeSystem(&l)
	case "control_response":
		e.claudeAnswer(l.Response.RequestID)
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

// claudePlain handles a line that is not JSON. It recognizes only claudeNoSession.
func (e *emitter) claudePlain(line []byte) {
	if !e.s.Ready && strings.HasPrefix(strings.ToLower(string(line)), claudeNoSession) {
		e.reset("the session could not be resumed")
	}
}

// claudeSystem handles the init message that precedes each turn. The program's session is on disk only from then on.
func (e *emitter) claudeSystem(l *claudeLine) {
	if l.Subtype != "init" {
		return
	}
	if e.s.Session == "" && validSessionID(l.SessionID) {
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

// claudeAnswer handles the response to one of agboxd's requests.
func (e *emitter) claudeAnswer(request string) {
	if request == claudeInterrupt {
		e.s.Interrupted = true
		return
	}
	for _, prefix := range []string{claudeNew, claudeResume} {
		id, ok := strings.CutPrefix(request, prefix)
		if !ok {
			continue
		}
		if e.s.Session == "" && validSessionID(id) {
			e.s.Session = id
		}
		e.ready() // an older version refuses the unknown request, which also shows that it reads
	}
}

// claudeAssistant handles blocks of a message; one message may be split over several lines.
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

// claudeFinal replaces the draft of a part, or appends the part when it has no draft.
func (e *emitter) claudeFinal(message string, p *agboxv1.AgentMessagePart) {
	e.begin(message)
	for i, d := range e.s.Drafts {
		if d.Kind == p.Kind {
			if e.s.Stream != nil && e.s.Stream.Part == d.Part {
				e.s.Stream = nil // p has the whole text
			}
			e.s.Drafts = append(e.s.Drafts[:i:i], e.s.Drafts[i+1:]...)
			p.Part = d.Part
			e.part(p)
			return
		}
	}
	e.addPart(p)
}

// claudeUser handles messages to the model: results of tools, and the mark of an interrupted turn. Prompts that the
// program repeats are ignored.
func (e *emitter) claudeUser(m *claudeMessage) {
	for _, b := range claudeBlocks(m.Content) {
		switch {
		case b.Type == "tool_result":
			e.addPart(&agboxv1.AgentMessagePart{
				Kind: kindToolResult, Text: claudeOutput(b.Content), ToolName: e.toolName(b.ToolUseID), ToolCallId: b.ToolUseID,
			})
		case b.Type == "text" && strings.HasPrefix(b.Text, claudeStopped):
			e.s.Interrupted = true
		}
	}
}
