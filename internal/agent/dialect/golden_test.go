package dialect

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each transcript is the output of a program; its golden file has the decoded events, line by line.
func TestTranscripts(t *testing.T) {
	for _, format := range Formats() {
		// The files of stdout lines, and of outbox lines.
		stdout, _ := filepath.Glob(filepath.Join("testdata", format, "*.ndjson"))
		outbox, _ := filepath.Glob(filepath.Join("testdata", format, "*.txt"))
		if len(stdout) == 0 {
			t.Fatalf("%s has no transcripts", format)
		}
		for _, file := range append(stdout, outbox...) {
			t.Run(format+"/"+filepath.Base(file), func(t *testing.T) { checkTranscript(t, format, file) })
		}
	}
}

func checkTranscript(t *testing.T, format, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	src := Stdout
	if filepath.Ext(file) == ".txt" {
		src = Outbox
	}
	got := told(t, format, src, strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n"))
	golden := file + ".golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s says\n%s\nwant\n%s", file, got, want)
	}
}

// told decodes lines and prints the outputs, numbered by line.
func told(t testing.TB, format string, src Source, lines []string) string {
	t.Helper()
	var b strings.Builder
	var state []byte
	for i, line := range lines {
		var out []Output
		state, out = decode(format, state, src, []byte(line))
		for _, o := range out {
			fmt.Fprintf(&b, "%2d %s\n", i+1, printed(o))
		}
	}
	_, out := end(format, state)
	for _, o := range out {
		fmt.Fprintf(&b, "end %s\n", printed(o))
	}
	return b.String()
}

func printed(o Output) string {
	var words []string
	if o.Ready {
		words = append(words, "READY")
	}
	if o.SessionLost {
		words = append(words, "SESSION LOST")
	}
	if o.Result {
		words = append(words, "RESULT")
	}
	if o.SessionID != "" {
		words = append(words, "session "+o.SessionID)
	}
	if o.Event != nil {
		words = append(words, printedEvent(o.Event))
	}
	return strings.Join(words, " ")
}

func printedEvent(ev *agboxv1.AgentEvent) string {
	name := strings.TrimPrefix(ev.EventType.String(), "AGENT_")
	switch {
	case ev.GetMessage() != nil:
		return fmt.Sprintf("%s %s %s", name, ev.GetMessage().MessageId, ev.GetMessage().Role)
	case ev.GetPart() != nil:
		p := ev.GetPart()
		words := fmt.Sprintf("%s %s/%d %s", name, p.MessageId, p.Part, p.Kind)
		if p.ToolName != "" || p.ToolCallId != "" {
			words += fmt.Sprintf(" %s(%s)", p.ToolName, p.ToolCallId)
		}
		if p.Cut {
			words += " cut"
		}
		return words + fmt.Sprintf(" %q", p.Text)
	case ev.GetResult() != nil:
		return fmt.Sprintf("%s %s %q", name, ev.GetResult().Outcome, ev.GetResult().Error)
	case ev.GetCheckpoint() != nil:
		return fmt.Sprintf("%s %q", name, ev.GetCheckpoint().Text)
	default:
		return fmt.Sprintf("%s %q", name, ev.GetTruncation().GetReason())
	}
}
