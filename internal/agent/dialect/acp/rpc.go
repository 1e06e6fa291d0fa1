package acp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind is the kind of one of the client's requests.
type Kind int

// The kinds. The first four are sent at most once each, with the kind as the request ID; every ID from Prompt on is a prompt.
const (
	// Initialize starts a new session, InitializeToLoad one that is to be loaded.
	Initialize       Kind = 1
	InitializeToLoad Kind = 2
	NewSession       Kind = 3
	LoadSession      Kind = 4
	Prompt           Kind = 10
)

func (k Kind) initializes() bool { return k == Initialize || k == InitializeToLoad }

// KindOf returns the kind of the request that a response answers, by its ID. ok is false for an ID that the client never sends.
func KindOf(id json.RawMessage) (k Kind, ok bool) {
	n, err := strconv.Atoi(string(id))
	if err != nil || n < int(Initialize) || n > int(LoadSession) && n < int(Prompt) {
		return 0, false
	}
	return Kind(min(n, int(Prompt))), true
}

// version is the version of the protocol that the client supports.
const version = 1

// maxVersion bounds how much of a version is quoted, in bytes.
const maxVersion = 20

// OtherVersion describes the version that an agent has chosen by the protocolVersion of its response to initialize, if it is
// not the client's; otherwise it returns "". An agent that does not support the requested version names its newest one, so a
// response without the required member is not a refusal.
func OtherVersion(chosen json.RawMessage) string {
	text := string(chosen)
	if text == "" || text == "null" || text == fmt.Sprint(version) {
		return ""
	}
	word := "version " + text
	if len(text) > maxVersion || strings.Trim(text, `"0123456789.`) != "" {
		word = "an unknown version"
	}
	return fmt.Sprintf("the agent speaks %s of the Agent Client Protocol, not %d", word, version)
}

// Message is a line of the agent: a response, a request, or a notification.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result struct {
		Version      json.RawMessage `json:"protocolVersion"`
		SessionID    string          `json:"sessionId"`
		StopReason   string          `json:"stopReason"`
		Capabilities struct {
			LoadSession bool `json:"loadSession"`
		} `json:"agentCapabilities"`
	} `json:"result"`
	Error *Error `json:"error"`
}

// Error is that of a response.
type Error struct {
	Message string `json:"message"`
	Data    struct {
		Details string `json:"details"`
	} `json:"data"`
}

// Error returns the message, and the details that most agents add to an "Internal error".
func (e *Error) Error() string {
	if e.Data.Details == "" {
		return e.Message
	}
	return e.Message + ": " + e.Data.Details
}

// Decode decodes JSON; members of an unexpected type are left out. It returns false if data is not JSON.
func Decode(data []byte, v any) bool {
	err := json.Unmarshal(data, v)
	var typed *json.UnmarshalTypeError
	return err == nil || errors.As(err, &typed)
}

func (l *Message) asks() bool { return len(l.ID) > 0 && string(l.ID) != "null" }

// reply answers a request of the agent: permission requests are granted if allowed; other methods are not supported.
func (l *Message) reply(allowed bool) []byte {
	if l.Method == "session/request_permission" {
		return Line(map[string]any{
			"jsonrpc": "2.0", "id": l.ID, "result": map[string]any{"outcome": l.permission(allowed)},
		})
	}
	return Line(map[string]any{
		"jsonrpc": "2.0", "id": l.ID,
		"error": map[string]any{"code": -32601, "message": "method not found: " + l.Method},
	})
}

// permission selects the option to allow once, else the one to allow always. Without such an option it cancels.
func (l *Message) permission(allowed bool) map[string]string {
	var p struct {
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	if allowed && Decode(l.Params, &p) {
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
	return Line(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

func notification(method string, params any) []byte {
	return Line(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// Line encodes one message. JSON escapes newlines in it; invalid UTF-8 becomes U+FFFD.
func Line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // v contains only strings, numbers and valid JSON
	}
	return append(b, '\n')
}
