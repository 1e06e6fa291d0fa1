package dialect

import (
	"strings"
	"unicode/utf8"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// piece appends to the growing part, or starts one.
func (e *emitter) piece(kind, text string) {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if text == "" {
		return
	}
	e.begin("")
	for text != "" {
		t := e.growing(kind)
		take := roomFor(t, text)
		t.Text = append(t.Text, text[:take]...)
		text = text[take:]
		e.snapshot(false)
		if text != "" {
			e.endStream()
		}
	}
}

// draft is piece for a text that a later line repeats as a whole: text beyond the bound is dropped until then.
func (e *emitter) draft(kind, text string) {
	e.begin("")
	if e.s.Stream == nil || e.s.Stream.Kind != kind {
		t := e.growing(kind)
		if len(e.s.Drafts) < maxDrafts {
			e.s.Drafts = append(e.s.Drafts, draft{Part: t.Part, Kind: kind})
		}
	}
	t := e.s.Stream
	if t.Full {
		return
	}
	take := roomFor(t, text)
	t.Full = take < len(text)
	t.Text = append(t.Text, text[:take]...)
	e.snapshot(false)
}

// growing returns the stream of a kind; it ends one of another kind.
func (e *emitter) growing(kind string) *stream {
	if e.s.Stream != nil && e.s.Stream.Kind == kind && len(e.s.Stream.Text) < maxStream-utf8.UTFMax {
		return e.s.Stream
	}
	e.endStream()
	e.ensureRoom()
	e.s.Stream = &stream{Part: e.s.Parts, Kind: kind}
	e.s.Parts++
	if e.s.Grown == 0 {
		e.s.Grown = e.s.Parts
	}
	return e.s.Stream
}

// roomFor returns how many bytes of text fit into the stream, in whole characters.
func roomFor(t *stream, text string) int {
	room := maxStream - len(t.Text)
	if len(text) <= room {
		return len(text)
	}
	for room > 0 && !utf8.RuneStart(text[room]) {
		room--
	}
	return room
}

// snapshot emits the stream if it has grown by a quarter, or at all if all is set.
func (e *emitter) snapshot(all bool) {
	t := e.s.Stream
	fresh := len(t.Text) - t.Told
	if fresh == 0 || !all && fresh*4 < t.Told {
		return
	}
	t.Told = len(t.Text)
	e.part(&agboxv1.AgentMessagePart{
		Part: t.Part, Kind: t.Kind, Text: strings.ToValidUTF8(string(t.Text), string(utf8.RuneError)), Cut: t.Full,
	})
}

// endStream emits the rest of the stream. The next piece starts a part of its own.
func (e *emitter) endStream() {
	if e.s.Stream == nil {
		return
	}
	e.snapshot(true)
	e.s.Stream = nil
}
