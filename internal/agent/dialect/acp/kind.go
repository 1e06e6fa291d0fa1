package acp

import (
	"encoding/json"
	"strconv"
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
	switch {
	case err != nil || n < int(Initialize):
		return 0, false
	case n >= int(Prompt):
		return Prompt, true
	case n <= int(LoadSession):
		return Kind(n), true
	default:
		return 0, false
	}
}
