package acp

import (
	"encoding/json"
	"errors"
)

// incoming is a line of the agent: an answer to us, a request to us, or a notification.
type incoming struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result struct {
		Version      json.RawMessage `json:"protocolVersion"`
		SessionID    string          `json:"sessionId"`
		Capabilities struct {
			LoadSession bool `json:"loadSession"`
		} `json:"agentCapabilities"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// decode reads one message; members of an unexpected type are left out.
func decode(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	var typed *json.UnmarshalTypeError
	return err == nil || errors.As(err, &typed)
}

func (l *incoming) asks() bool { return len(l.ID) > 0 && string(l.ID) != "null" }

// reply answers a request of the agent: permission is given where it is allowed, and nothing else is known here.
func (l *incoming) reply(allowed bool) []byte {
	if l.Method == "session/request_permission" {
		return answer(l.ID, map[string]any{"outcome": l.permission(allowed)})
	}
	return line(map[string]any{
		"jsonrpc": "2.0", "id": l.ID,
		"error": map[string]any{"code": -32601, "message": "method not found: " + l.Method},
	})
}

// permission allows: once if that is offered, else for good. Without such an option there is nothing to choose.
func (l *incoming) permission(allowed bool) map[string]string {
	var p struct {
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	if allowed && decode(l.Params, &p) {
		for _, kind := range []string{"allow_once", "allow_always"} {
			for _, o := range p.Options {
				if o.Kind == kind {
					return map[string]string{"outcome": "selected", "optionId": o.ID}
				}
			}
		}
	}
	return map[string]string{"outcome": "cancelled"}
}

func request(id int, method string, params any) []byte {
	return line(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

func notification(method string, params any) []byte {
	return line(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

func answer(id json.RawMessage, result any) []byte {
	return line(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

// line encodes one message; json escapes every newline inside it.
func line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // only strings, numbers and what was valid JSON go in
	}
	return append(b, '\n')
}
