package dialect

import (
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Bounds, in bytes.
const (
	// MaxLine is the longest line that is looked at; a decoder cuts what is longer.
	MaxLine = 1 << 20
	// MaxText bounds a part, MaxToolOutput the result of a tool, MaxCheckpoint a checkpoint.
	MaxText       = 256 << 10
	MaxToolOutput = 64 << 10
	MaxCheckpoint = 64 << 10
	// MaxState bounds the state of a decoder.
	MaxState = 64 << 10
	// MaxOutputs bounds what one line can bring.
	MaxOutputs = 1024
)

// The formats.
const (
	Native = "native"
	Claude = "claude-stream-json"
	ACP    = "acp"
)

// Output is one thing that a line says. An event has type and details only; sequence, agent, incarnation, time and the
// prompt of a result are the store's.
type Output struct {
	// Event is nil where only the flags matter.
	Event *agboxv1.AgentEvent
	// Ready: the agent takes prompts. Result: its turn has ended. Ready may come again and may come with Result.
	Ready, Result bool
	// SessionID is the program's name of a session that it can resume; empty: nothing new.
	SessionID string
	// SessionLost: the session that was to be resumed can't be, and the process ends. The next one starts over.
	SessionLost bool
}

// Source tells where a line was read.
type Source int

// Lines of the process's stdout are of the agent's format. Lines of the outbox are native in every format.
const (
	Stdout Source = iota
	Outbox
)

// Formats returns the known formats.
func Formats() []string { return []string{Native, Claude, ACP} }

// CanResume says whether programs of the format can go on with a session of their own.
func CanResume(format string) bool { return format == Claude || format == ACP }

// Close completes the message that is open, so that what comes next is not taken for a part of it.
func Close(format string, state []byte) (next []byte, out []Output) {
	if !slices.Contains(Formats(), format) {
		return state, nil
	}
	e := &emitter{s: loadState(state)}
	e.complete()
	return e.s.save(), e.out
}

// InTurn reports whether a turn has begun, by what was read, and has not ended.
func InTurn(state []byte) bool {
	s := loadState(state)
	return s.Open || s.Spoke || s.Begun
}

// Settles is how long after a turn another one may begin for a prompt that was given during it: programs of the format take
// some of those as a part of the turn and others as a turn of their own. 0: always a part of it.
func Settles(format string) time.Duration {
	switch format {
	case Claude: // says at once that a turn begins
		return 5 * time.Second
	case ACP: // says nothing before the model does
		return 15 * time.Second
	}
	return 0
}
