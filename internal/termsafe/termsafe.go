// Package termsafe shows untrusted bytes on a terminal and escapes control sequences, which could rewrite printed lines, set the
// clipboard, or have the terminal type a command.
package termsafe

import (
	"fmt"
	"io"
	"unicode/utf8"
)

// maxColour bounds a colour sequence in bytes; a longer one is escaped.
const maxColour = 64

// Mode selects the control sequences that are not escaped, besides line feeds, tabs, and carriage returns before a line feed.
type Mode int

const (
	// Plain is for stored output. Control characters are escaped: "^[" for an escape, "^H" for a backspace, "\x9b" for a byte
	// that is not text.
	Plain Mode = iota
	// Live is for output that is followed while it is written: colour sequences (SGR) and all carriage returns pass too, for colours
	// and progress bars.
	Live
)

// Writer is a filter in front of a terminal. Make one with New, and Close it when the output ends.
type Writer struct {
	to       io.Writer
	mode     Mode
	rest     []byte // of a sequence that is not whole yet; at most maxColour bytes
	coloured bool
	last     rune // that was written; 0: an escape
	out      []byte
}

// New returns a filter that writes to w.
func New(w io.Writer, mode Mode) *Writer { return &Writer{to: w, mode: mode} }

// Write implements io.Writer. It may hold back the end of p, which could be the start of a sequence, until the next call or Close.
func (w *Writer) Write(p []byte) (int, error) {
	in := append(w.rest, p...) //nolint:gocritic // rest is replaced below
	used := w.filter(in, false)
	w.rest = append([]byte(nil), in[used:]...)
	if err := w.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes held-back bytes and resets a colour that is still set. It does not close the terminal.
func (w *Writer) Close() error {
	w.filter(w.rest, true)
	w.rest = nil
	if w.coloured {
		w.out = append(w.out, "\x1b[0m"...)
		w.coloured = false
	}
	return w.flush()
}

func (w *Writer) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.to.Write(w.out)
	w.out = w.out[:0]
	return err
}

// filter appends what may be shown of in to out, and returns how many bytes it has used. All of them, if they are the last ones.
func (w *Writer) filter(in []byte, last bool) int {
	used := 0
	for used < len(in) {
		n := w.one(in[used:], last)
		if n == 0 {
			break
		}
		used += n
	}
	return used
}

// one takes a character or a sequence from the start of in; 0: it is not whole.
func (w *Writer) one(in []byte, last bool) int {
	switch c := in[0]; {
	case c == '\x1b' && w.mode == Live:
		return w.escape(in, last)
	case c == '\r' && w.mode == Plain:
		if len(in) == 1 && !last {
			return 0
		}
		if len(in) > 1 && in[1] == '\n' {
			w.out = append(w.out, c)
			return 1
		}
		w.show(rune(c))
		return 1
	case c == '\n' || c == '\t' || c == '\r':
		w.out, w.last = append(w.out, c), rune(c)
		return 1
	case c < utf8.RuneSelf:
		w.show(rune(c))
		return 1
	}
	if !utf8.FullRune(in) && !last {
		return 0
	}
	r, n := utf8.DecodeRune(in)
	if r == utf8.RuneError && n == 1 {
		w.out = fmt.Appendf(w.out, `\x%02x`, in[0])
		return 1
	}
	w.show(r)
	return n
}

// show appends a character, or what stands for one that a terminal would obey.
func (w *Writer) show(r rune) {
	switch {
	case r < 0x20 || r == 0x7f:
		w.out = append(w.out, '^', byte(r)^0x40)
	case r >= 0x80 && r < 0xa0:
		w.out = fmt.Appendf(w.out, `\x%02x`, r)
	case unseen(r, w.last) && r > 0xffff:
		w.out = fmt.Appendf(w.out, `\U%08x`, r)
	case unseen(r, w.last):
		w.out = fmt.Appendf(w.out, `\u%04x`, r)
	default:
		w.out, w.last = utf8.AppendRune(w.out, r), r
		return
	}
	w.last = 0 // an escape ends in ASCII
}

// escape lets a colour sequence through, ESC [ digits and separators m, and shows the escape of any other.
func (w *Writer) escape(in []byte, last bool) int {
	for i := 1; i < min(len(in), maxColour); i++ {
		c := in[i]
		switch {
		case i == 1 && c == '[':
		case i > 1 && (c >= '0' && c <= '9' || c == ';' || c == ':'):
		case i > 1 && c == 'm':
			w.out = append(w.out, in[:i+1]...)
			w.coloured = string(in[2:i]) != "" && string(in[2:i]) != "0"
			return i + 1
		default:
			w.show('\x1b')
			return 1
		}
	}
	if len(in) < maxColour && !last {
		return 0
	}
	w.show('\x1b')
	return 1
}
