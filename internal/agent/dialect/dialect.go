package dialect

import (
	"bytes"
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Bounds, in bytes.
const (
	// MaxLine is the longest line that is decoded; a decoder cuts longer ones.
	MaxLine = 1 << 20
	// MaxText bounds a part, MaxToolOutput the result of a tool, and MaxCheckpoint a checkpoint.
	MaxText       = 256 << 10
	MaxToolOutput = 64 << 10
	MaxCheckpoint = 64 << 10
	// MaxState bounds the state of a decoder.
	MaxState = 64 << 10
	// MaxOutputs bounds the outputs of one line.
	MaxOutputs = 1024
)

// The formats.
const (
	Native = "native"
	Claude = "claude-stream-json"
	ACP    = "acp"
)

// Output is one result of decoding a line. Its event has only type and details; the store sets sequence, agent, incarnation,
// time and the prompt of a result.
type Output struct {
	// Event is nil where only the flags matter.
	Event *agboxv1.AgentEvent
	// Ready: the agent accepts prompts. Result: its turn has ended. Ready may be repeated and may occur with Result.
	Ready, Result bool
	// SessionID is the program's ID of a session that it can resume; empty: no change.
	SessionID string
	// SessionLost: the session can't be resumed, and the process exits. The next incarnation starts a new session.
	SessionLost bool
}

// Source is where a line was read.
type Source int

// Stdout lines are in the agent's format. Outbox lines are native in every format.
const (
	Stdout Source = iota
	Outbox
)

// Formats returns the known formats.
func Formats() []string { return []string{Native, Claude, ACP} }

// CanResume reports whether programs of the format can resume a session of their own.
func CanResume(format string) bool { return format == Claude || format == ACP }

// Close completes the open message, so that later parts are not added to it.
func Close(format string, state []byte) (next []byte, out []Output) {
	d := Open(format, state)
	if d.e == nil {
		return state, nil
	}
	d.e.complete()
	return d.State(), d.e.out
}

// InTurn reports whether, according to the lines read, a turn has started and not ended.
func InTurn(state []byte) bool {
	s := loadState(state)
	return s.Open || s.Spoke || s.Begun
}

// Settles is how long after a turn another turn may start for a prompt that was sent during it: programs of the format treat
// some such prompts as part of the turn and others as a turn of their own. 0: always as part of it.
func Settles(format string) time.Duration {
	return map[string]time.Duration{
		Claude: 5 * time.Second,  // reports the start of a turn at once
		ACP:    15 * time.Second, // reports nothing before the model's first output
	}[format]
}

// Decoder decodes consecutive lines of one incarnation. Its state is loaded and saved once for all of them, with the same
// result as one Decoder per line, so a restart of the daemon between any two lines makes no difference.
type Decoder struct {
	format string
	given  []byte   // the state, for an unknown format
	e      *emitter // nil: unknown format
}

// Open starts with a state: nil before the first line of an incarnation, afterwards the result of State; a damaged one
// counts as nil. It is not retained. For an unknown format there is no output, and the state is unchanged.
func Open(format string, state []byte) *Decoder {
	d := &Decoder{format: format, given: state}
	if slices.Contains(Formats(), format) {
		d.e = &emitter{s: loadState(state)}
	}
	return d
}

// Line decodes one line, with or without its newline. It neither retains nor changes line.
func (d *Decoder) Line(src Source, line []byte) []Output {
	if d.e == nil {
		return nil
	}
	line = bytes.TrimRight(line[:min(len(line), MaxLine)], "\r\n")
	e := d.e
	e.out = nil
	switch {
	case src == Outbox:
		e.outbox(d.format, line)
	case d.format == Native:
		e.native(line)
	case d.format == Claude:
		e.claude(line)
	default:
		e.acp(line)
	}
	e.s.fit()
	return e.out
}

// End flushes pending text after the last line. An open message stays open; whether it was interrupted is decided by the
// caller, who knows how the process ended.
func (d *Decoder) End() []Output {
	if d.e == nil {
		return nil
	}
	d.e.out = nil
	d.e.endStream()
	return d.e.out
}

// State returns the state for the next Decoder; at most MaxState bytes.
func (d *Decoder) State() []byte {
	if d.e == nil {
		return d.given
	}
	return d.e.s.save()
}
