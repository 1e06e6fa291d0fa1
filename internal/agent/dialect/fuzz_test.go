package dialect

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func FuzzNative(f *testing.F) { fuzz(f, Native) }
func FuzzClaude(f *testing.F) { fuzz(f, Claude) }
func FuzzACP(f *testing.F)    { fuzz(f, ACP) }

// For any lines and any state, the bounds and rules hold.
func fuzz(f *testing.F, format string) {
	files, _ := filepath.Glob(filepath.Join("testdata", format, "*.ndjson"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte(nil), false)
		f.Add(text[len(text)/3:], text[:len(text)/3], true)
	}
	f.Add([]byte("\xff\xfe\n{\n"), []byte(`{"v":1,"o":true,"p":1,"s":{"k":"text","t":"YQ==","n":0}}`), false)
	f.Add([]byte("x\n"), []byte(`{"v":1,"o":true,"p":100000,"c":[{"i":"a","p":99999}],"d":[{"p":0,"k":"text"}]}`), false)
	f.Fuzz(func(t *testing.T, text, state []byte, outbox bool) {
		src := Stdout
		if outbox {
			src = Outbox
		}
		checkDecoder(t, format, state, src, bytes.SplitAfter(text, []byte("\n")))
	})
}

// checkDecoder decodes lines and checks every output, that a second run gives the same, and that one decoder for all lines does, too.
func checkDecoder(t *testing.T, format string, state []byte, src Source, lines [][]byte) {
	t.Helper()
	c := &checker{t: t, known: len(state) == 0}
	lasting := Open(format, state)
	for _, line := range lines {
		kept, was := bytes.Clone(line), bytes.Clone(state)
		next, out := decode(format, state, src, line)
		again, outAgain := decode(format, state, src, line)
		if !bytes.Equal(kept, line) || !bytes.Equal(was, state) {
			t.Fatal("the decoder changed its input")
		}
		if !bytes.Equal(next, again) || !same(out, outAgain) {
			t.Fatal("two runs decoded one line differently")
		}
		if !same(out, lasting.Line(src, line)) || !bytes.Equal(next, lasting.State()) {
			t.Fatal("the result depends on where the state was saved")
		}
		if len(next) == 0 || len(next) > MaxState || len(out) > MaxOutputs {
			t.Fatalf("a state of %d bytes, %d outputs", len(next), len(out))
		}
		c.check(out)
		state = next
	}
	_, out := end(format, state)
	c.check(out)
}

func same(a, b []Output) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if !proto.Equal(x.Event, y.Event) {
			return false
		}
		x.Event, y.Event = nil, nil
		if x != y {
			return false
		}
	}
	return true
}

// checker checks a stream of outputs. known: it has seen the stream from its start.
type checker struct {
	t     *testing.T
	known bool
	open  string
	ready bool
}

func (c *checker) check(out []Output) {
	c.t.Helper()
	for _, o := range out {
		c.ready = c.ready || o.Ready
		if o.Event == nil && !o.Ready && o.SessionID == "" {
			c.t.Fatal("an empty output")
		}
		if o.SessionID != "" && !validSessionID(o.SessionID) {
			c.t.Fatalf("session %q", o.SessionID)
		}
		if o.Result && c.known && !c.ready {
			c.t.Fatal("a result of an agent that was never ready")
		}
		if o.Event != nil {
			c.event(o)
		}
	}
}

func (c *checker) event(o Output) {
	c.t.Helper()
	ev := o.Event
	b, err := proto.Marshal(ev)
	if err != nil {
		c.t.Fatalf("an event that can't be stored: %v", err)
	}
	if len(b) > MaxText+8<<10 {
		c.t.Fatalf("an event of %d bytes", len(b))
	}
	switch ev.EventType {
	case agboxv1.AgentEventType_AGENT_MESSAGE_CREATED:
		if c.open != "" || ev.GetMessage().Role != roleAssistant || ev.GetMessage().PromptId != "" {
			c.t.Fatalf("%s while %q is open", ev.GetMessage(), c.open)
		}
		c.open = ev.GetMessage().MessageId
	case agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED:
		c.part(ev.GetPart())
	case agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED:
		c.isOpen(ev.GetMessage().GetMessageId())
		c.open, c.known = "", true
	case agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED:
		if !o.Result || c.open != "" || ev.GetResult().GetOutcome() == "" {
			c.t.Fatalf("result %v while %q is open", ev.GetResult(), c.open)
		}
	case agboxv1.AgentEventType_AGENT_CHECKPOINT:
		if ev.GetCheckpoint() == nil || len(ev.GetCheckpoint().Text) > MaxCheckpoint {
			c.t.Fatal("a checkpoint beyond its bound")
		}
	case agboxv1.AgentEventType_AGENT_RESET:
		if !o.SessionLost {
			c.t.Fatal("a reset without a lost session")
		}
	default:
		c.t.Fatalf("a decoder said %s", ev.EventType)
	}
}

func (c *checker) part(p *agboxv1.AgentMessagePart) {
	c.t.Helper()
	c.isOpen(p.GetMessageId())
	if p.Kind == kindToolResult && len(p.Text) > MaxToolOutput || len(p.Text) > MaxText || !utf8.ValidString(p.Text) {
		c.t.Fatalf("a %s of %d bytes", p.Kind, len(p.Text))
	}
	if p.Part >= maxPart || nativeKind(p.Kind) != p.Kind {
		c.t.Fatalf("part %d of kind %q", p.Part, p.Kind)
	}
}

func (c *checker) isOpen(id string) {
	c.t.Helper()
	if !c.known && c.open == "" {
		c.open, c.known = id, true // it was open in the initial state
	}
	if id == "" || id != c.open {
		c.t.Fatalf("message %q while %q is open", id, c.open)
	}
}
