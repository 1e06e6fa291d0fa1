package testagent

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// acpVoice speaks the Agent Client Protocol, version 1, as the agent.
type acpVoice struct {
	*agent
	questions int
}

type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		Prompt    []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	} `json:"params"`
	Result struct {
		Outcome struct {
			Outcome string `json:"outcome"`
		} `json:"outcome"`
	} `json:"result"`
}

func (c *acpVoice) read(line []byte) input {
	var l rpc
	if json.Unmarshal(line, &l) != nil {
		return input{}
	}
	switch l.Method {
	case "initialize":
		c.answer(l.ID, map[string]any{"protocolVersion": 1, "agentCapabilities": map[string]bool{"loadSession": true}})
	case "session/new":
		c.mind.session = fmt.Sprintf("session-%d-%d", os.Getpid(), time.Now().UnixNano())
		c.mind.keep("")
		c.answer(l.ID, map[string]string{"sessionId": c.mind.session})
	case "session/load":
		c.load(&l)
	case "session/prompt":
		if len(l.Params.Prompt) > 0 {
			return input{kind: prompt, id: string(l.ID), text: l.Params.Prompt[0].Text}
		}
	case "session/cancel":
		return input{kind: interrupt}
	case "":
		return input{kind: permission, allowed: l.Result.Outcome.Outcome == "selected"}
	}
	return input{}
}

// load tells the session again from its beginning, as the protocol has it.
func (c *acpVoice) load(l *rpc) {
	texts, ok := c.mind.resume(l.Params.SessionID)
	if !ok {
		c.tell(map[string]any{"jsonrpc": "2.0", "id": l.ID, "error": map[string]any{"code": -32002, "message": "no such session"}})
		return
	}
	for _, text := range texts {
		c.update("user_message_chunk", text)
	}
	c.answer(l.ID, nil)
}

func (c *acpVoice) answer(id json.RawMessage, result any) {
	c.tell(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func (c *acpVoice) update(kind, text string) {
	c.tell(map[string]any{"jsonrpc": "2.0", "method": "session/update", "params": map[string]any{
		"sessionId": c.mind.session,
		"update":    map[string]any{"sessionUpdate": kind, "content": map[string]string{"type": "text", "text": text}},
	}})
}

func (c *acpVoice) say(text string) { c.update("agent_message_chunk", text) }

// ask asks and waits for the answer.
func (c *acpVoice) ask() bool {
	c.questions++
	c.tell(map[string]any{
		"jsonrpc": "2.0", "id": fmt.Sprint("ask-", c.questions), "method": "session/request_permission",
		"params": map[string]any{
			"sessionId": c.mind.session,
			"options":   []any{map[string]string{"optionId": "yes", "name": "Yes", "kind": "allow_once"}},
			"toolCall":  map[string]string{"toolCallId": fmt.Sprint("call-", c.questions)},
		},
	})
	return <-c.allowed
}

func (c *acpVoice) end(in input, interrupted bool) {
	reason := "end_turn"
	if interrupted {
		reason = "cancelled"
	}
	c.answer(json.RawMessage(in.id), map[string]string{"stopReason": reason})
}
