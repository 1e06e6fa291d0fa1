package controller_test

import (
	"encoding/json"
	"slices"
	"strings"
)

// claudeTalk lets a fakeAgent speak claude-stream-json: it translates the agent's input and output to that format.
type claudeTalk struct {
	ready string // the ID of the request whose answer means ready
	turn  bool
}

func newClaudeTalk(command []string) *claudeTalk {
	if slices.Contains(command, "--input-format") {
		return &claudeTalk{}
	}
	return nil
}

// told parses a line of the inbox. Its prompts have no IDs: the text after a # is the ID, or else the whole text.
func (c *claudeTalk) told(line []byte) (l nativeLine) {
	var in struct {
		Type      string `json:"type"`
		RequestID string `json:"request_id"`
		Request   struct {
			Subtype string `json:"subtype"`
		} `json:"request"`
		Message struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"message"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		panic(err)
	}
	switch {
	case in.Type == "user":
		text := in.Message.Content[0].Text
		_, behind, ok := strings.Cut(text, "</agbox-context>\n\n")
		if !ok {
			behind = text
		}
		id := promptID(behind)
		if i := strings.LastIndex(behind, " #"); i >= 0 {
			id = behind[i+2:]
		}
		return nativeLine{Type: "prompt", Text: text, PromptID: id}
	case in.Request.Subtype == "interrupt":
		return nativeLine{Type: "interrupt"}
	}
	c.ready = in.RequestID
	return nativeLine{Type: "initialize"}
}

// says returns the lines for one line of the native format.
func (c *claudeTalk) says(l nativeLine) (lines []any) {
	type m = map[string]any
	if l.Type == "ready" {
		return []any{m{"type": "control_response", "response": m{"subtype": "success", "request_id": c.ready}}}
	}
	if !c.turn {
		c.turn = true
		lines = append(lines, m{"type": "system", "subtype": "init", "session_id": "s"})
	}
	switch l.Type {
	case "message_part.updated", "message":
		lines = append(lines, m{"type": "assistant", "message": m{"id": l.Text, "content": []m{{"type": "text", "text": l.Text}}}})
	case "assistant.completed":
		c.turn = false
		lines = append(lines, m{"type": "result", "subtype": "success", "is_error": false, "result": "", "session_id": "s"})
	}
	return lines
}
