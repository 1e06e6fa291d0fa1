package acp

import (
	"encoding/json"
	"errors"
)

// incoming is a line of the agent: a response, a request, or a notification.
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

// decode decodes one message; members of an unexpected type are left out.
func decode(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	var typed *json.UnmarshalTypeError
	return err == nil || errors.As(err, &typed)
}

func (l *incoming) asks() bool { return len(l.ID) > 0 && string(l.ID) != "null" }

// reply answers a request of the agent: permission requests are granted if allowed; other methods are not supported.
func (l *incoming) reply(allowed bool) []byte {
	if l.Method == "session/request_permission" {
		return answer(l.ID, map[string]any{"outcome": l.permission(allowed)})
	}
	return line(map[string]any{
		"jsonrpc": "2.0", "id": l.ID,
		"error": map[string]any{"code": -32601, "message": "method not found: " + l.Method},
	})
}

// permission selects the option to allow once, else the one to allow always. Without such an option it cancels.
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

// line encodes one message; JSON escapes newlines in it.
func line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // v contains only strings, numbers and valid JSON
	}
	return append(b, '\n')
}
