package dialect

import (
	"bytes"
	"slices"
)

// Decoder takes in line after line of one incarnation. Its state is read and written once for all of them, and is the same as
// if each line had had a Decoder of its own, so that it does not matter where a daemon was cut off.
type Decoder struct {
	format string
	given  []byte   // the state, where nobody can read the format
	e      *emitter // nil: the format is not known
}

// Open begins with a state: nil before the first line of an incarnation, and then what State returned; one that is damaged
// counts as nil. It is not kept. For a format that is not known nothing comes out, and the state stays.
func Open(format string, state []byte) *Decoder {
	d := &Decoder{format: format, given: state}
	if slices.Contains(Formats(), format) {
		d.e = &emitter{s: loadState(state)}
	}
	return d
}

// Line takes one line in, without or with its newline. It is not kept nor changed.
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

// End says that nothing follows: what was read and not told yet comes out. A message that is open stays so; whether it was
// interrupted is for the one who knows how the process ended.
func (d *Decoder) End() []Output {
	if d.e == nil {
		return nil
	}
	d.e.out = nil
	d.e.endStream()
	return d.e.out
}

// State is what the next Decoder begins with; at most MaxState bytes.
func (d *Decoder) State() []byte {
	if d.e == nil {
		return d.given
	}
	return d.e.s.save()
}
