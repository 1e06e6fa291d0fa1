package cli

import (
	"bytes"
	"errors"
	"testing"
)

// Whoever writes the text of an error, a registry or a hook, can neither drive the terminal nor make lines that look like
// ours.
func TestComplaintsAreHarmless(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}, notes: &notes{out: &out}}
	a.complain(errors.New("it ends: \x1b]0;title\x07one\r\n\ttwo\nsandbox/web ready\u009b31m"))
	if want := "error: it ends: ^[]0;title^Gone\r\n  \ttwo\n  sandbox/web ready\\x9b31m\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
