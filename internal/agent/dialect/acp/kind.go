package acp

import (
	"encoding/json"
	"strconv"
)

// Kind is what one of our requests was.
type Kind int

// The kinds. The first four are sent once each at most and are their own numbers; every number from Prompt on is a prompt.
const (
	// Initialize begins a new session, InitializeToLoad one that is to be loaded.
	Initialize       Kind = 1
	InitializeToLoad Kind = 2
	NewSession       Kind = 3
	LoadSession      Kind = 4
	Prompt           Kind = 10
)

func (k Kind) initializes() bool { return k == Initialize || k == InitializeToLoad }

// KindOf tells what a request was from the ID of its answer. ok is false for an ID that is none of ours.
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
