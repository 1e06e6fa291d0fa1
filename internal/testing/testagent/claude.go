package testagent

import (
	"encoding/json"
	"fmt"
)

// claude speaks stream-json, with a session that it keeps under the name that it was given.
type claude struct {
	*agent
	resume   string
	messages int
}

func newClaude(a *agent, args []string) *claude {
	c := &claude{agent: a}
	for i := 0; i+1 < len(args); i++ {
		switch args[i] {
		case "--session-id":
			a.mind.session = args[i+1]
		case "--resume":
			c.resume = args[i+1]
		}
	}
	return c
}

// hello is silent: the program writes nothing before the first request, unless its session is not there.
func (c *claude) hello() int {
	if c.resume == "" {
		return 0
	}
	if _, ok := c.mind.resume(c.resume); !ok {
		c.tell(map[string]any{
			"type": "result", "subtype": "error_during_execution", "is_error": true,
			"errors": []string{"No conversation found with session ID: " + c.resume},
		})
		return 1
	}
	return 0
}

type claudeInput struct {
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

func (c *claude) read(line []byte) input {
	var l claudeInput
	if json.Unmarshal(line, &l) != nil {
		return input{}
	}
	switch {
	case l.Type == "control_request":
		c.tell(map[string]any{
			"type": "control_response", "response": map[string]string{"subtype": "success", "request_id": l.RequestID},
		})
		if l.Request.Subtype == "interrupt" {
			return input{kind: interrupt}
		}
	case l.Type == "user" && len(l.Message.Content) > 0:
		return input{kind: prompt, text: l.Message.Content[0].Text}
	}
	return input{}
}

func (c *claude) begin(input) {
	c.tell(map[string]any{"type": "system", "subtype": "init", "session_id": c.mind.session, "tools": []string{"Bash"}})
	c.messages++
}

func (c *claude) say(text string) {
	c.tell(map[string]any{
		"type": "assistant", "session_id": c.mind.session, "message": map[string]any{
			"id": fmt.Sprint("msg_", c.messages), "role": "assistant", "content": []any{map[string]string{"type": "text", "text": text}},
		},
	})
}

func (c *claude) end(_ input, interrupted bool) {
	l := map[string]any{"type": "result", "subtype": "success", "is_error": false, "result": "", "session_id": c.mind.session}
	if interrupted {
		l["subtype"], l["is_error"] = "error_during_execution", true
	}
	c.tell(l)
}
