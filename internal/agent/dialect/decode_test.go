package dialect

// decode returns Line and State of a Decoder for one line.
func decode(format string, state []byte, src Source, line []byte) (next []byte, out []Output) {
	d := Open(format, state)
	out = d.Line(src, line)
	return d.State(), out
}

// end returns End and State of a Decoder.
func end(format string, state []byte) (next []byte, out []Output) {
	d := Open(format, state)
	out = d.End()
	return d.State(), out
}
