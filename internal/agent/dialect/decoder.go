package dialect

import (
	"bytes"
	"slices"
)

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
