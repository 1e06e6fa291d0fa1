package testagent

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/agent/conversation"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

// process is one Run behind the decoder that the daemon has for it.
type process struct {
	format  string
	in      io.WriteCloser
	lines   *bufio.Scanner
	decoder *dialect.Decoder
	client  *acp.Client
	session string
	code    chan int
}

func start(t *testing.T, format, sessions, resume string) *process {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &process{format: format, decoder: dialect.Open(format, nil), in: inW, lines: bufio.NewScanner(outR), code: make(chan int, 1)}
	args, first := []string{strings.TrimSuffix(format, "-stream-json")}, []byte(nil)
	if format == dialect.Claude {
		params := dialect.LaunchParams{Command: args, SessionID: "11111111-2222-4333-8444-555555555555"}
		if resume != "" {
			params.SessionID, params.Resume = resume, true
		}
		args, first = dialect.Launch(format, params)
	}
	if format == dialect.ACP {
		p.client = acp.New(acp.Options{Cwd: "/", Load: resume})
		first = p.client.Start()
	}
	go func() {
		p.code <- Run(Config{Args: args, In: inR, Out: outW, Sessions: sessions})
		_ = outW.Close()
	}()
	go func() { _, _ = inW.Write(first) }()
	t.Cleanup(func() {
		_ = inW.Close()
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		if code := <-p.code; code != 0 {
			t.Errorf("%s ended with %d", format, code)
		}
	})
	return p
}

// turn gives a prompt and returns what is said to it, and its outcome.
func (p *process) turn(text string) (said, outcome string) {
	line := dialect.Prompt(p.format, "p", text)
	if p.client != nil {
		line = p.client.FromInbox(line)
	}
	go func() { _, _ = p.in.Write(line) }()
	for p.lines.Scan() {
		if p.client != nil {
			told, _ := p.client.FromAgent(p.lines.Bytes())
			go func() { _, _ = p.in.Write(told) }()
		}
		for _, o := range p.decoder.Line(dialect.Stdout, p.lines.Bytes()) {
			if o.SessionID != "" {
				p.session = o.SessionID
			}
			if part := o.Event.GetPart(); part != nil {
				said = part.GetText()
			}
			if o.Result {
				return said, o.Event.GetResult().GetOutcome()
			}
		}
	}
	return said, "it ended"
}

func TestItAnswersFromItsPrompt(t *testing.T) {
	for _, format := range dialect.Formats() {
		t.Run(format, func(t *testing.T) {
			sessions := t.TempDir()
			p := start(t, format, sessions, "")
			for _, step := range [][2]string{
				{"what did I say?", "you said nothing"},
				{"remember a plum", "noted a plum"},
				{"what did I say?", "you said: a plum"},
			} {
				if said, outcome := p.turn(step[0]); !strings.HasSuffix(said, step[1]) || outcome != "end_turn" {
					t.Errorf("%s: %q, %s", step[0], said, outcome)
				}
			}
			if !dialect.CanResume(format) {
				return
			}
			if said, _ := start(t, format, sessions, p.session).turn("what did I say?"); !strings.HasSuffix(said, "a plum") {
				t.Errorf("resumed: %q", said)
			}
		})
	}
}

func TestItReadsThePastFromTheContext(t *testing.T) {
	turns := []conversation.Turn{{Role: "user", Content: "remember a plum"}, {Role: "assistant", Content: "noted a plum"}}
	past := conversation.Context(turns, "half done", nil, "")
	said, _ := start(t, dialect.Native, "", "").turn(conversation.WithContext(past, "what did I say?"))
	if want := "you said: checkpoint half done; a plum"; said != want {
		t.Errorf("%q, want %q", said, want)
	}
}

func TestANudgeIsPartOfTheTurn(t *testing.T) {
	p := start(t, dialect.Native, "", "")
	p.lines.Scan() // it is ready
	if _, err := p.in.Write(dialect.Prompt(dialect.Native, "p", "sleep 1000")); err != nil {
		t.Fatal(err)
	}
	if said, outcome := p.turn("echo done"); said != "done" || outcome != "end_turn" {
		t.Errorf("%q, %s", said, outcome)
	}
}

func TestAnInterruptThatComesWithThePromptCounts(t *testing.T) {
	for range 20 {
		p := start(t, dialect.Native, "", "")
		p.lines.Scan() // it is ready
		both := append(dialect.Prompt(dialect.Native, "p", "sleep 1000"), dialect.Interrupt(dialect.Native)...)
		if _, err := p.in.Write(both); err != nil {
			t.Fatal(err)
		}
		p.lines.Scan()
		if got := p.lines.Text(); !strings.Contains(got, `"interrupted"`) {
			t.Fatalf("%s", got)
		}
	}
}
