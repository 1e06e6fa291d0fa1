package testagent

import "encoding/json"

// native speaks the format of docs/agents.md.
type native struct{ *agent }

type nativeLine struct {
	Type     string `json:"type"`
	PromptID string `json:"prompt_id,omitempty"`
	Text     string `json:"text,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
}

func (n *native) hello() int {
	n.tell(nativeLine{Type: "ready"})
	return 0
}

func (n *native) read(line []byte) input {
	var l nativeLine
	if json.Unmarshal(line, &l) != nil {
		return input{}
	}
	switch l.Type {
	case "prompt":
		return input{kind: prompt, id: l.PromptID, text: l.Text}
	case "interrupt":
		return input{kind: interrupt}
	}
	return input{}
}

func (n *native) say(text string) { n.tell(nativeLine{Type: "message", Text: text}) }

func (n *native) checkpoint(text string) { n.tell(nativeLine{Type: "checkpoint", Text: text}) }

func (n *native) end(_ input, interrupted bool) {
	l := nativeLine{Type: "assistant.completed"}
	if interrupted {
		l.Outcome = "interrupted"
	}
	n.tell(l)
}
