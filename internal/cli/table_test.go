package cli

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
)

const bidi = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"

func TestNothingTurnsTheDirectionOfAShownTextAround(t *testing.T) {
	escaped := strings.Trim(strconv.QuoteToASCII(bidi), `"`)
	for _, show := range map[string]func(string) string{
		"a line": termsafe.Line, "a text": termsafe.Text,
	} {
		if got, want := show("a"+bidi+"b שלום é"), "a"+escaped+"b שלום é"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	master, terminal := openTerminal(t, 80)
	raw(t, terminal)
	talk := newTalk(termsafe.NewDisplay(terminal), termsafe.NewDisplay(terminal))
	for _, e := range []*agboxv1.AgentEvent{
		created("m.1", "assistant", ""), part("m.1", 0, "text", "rm \u202e-rf"), part("m.1", 1, "tool_call", "ls \u2066x"), completed("m.1"),
	} {
		if err := talk.show(e); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := readSome(t, master), `rm \u202e-rf`+"\n"+`[sh] ls \u2066x`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJSONSaysTheSameWithoutTurningAround(t *testing.T) {
	said := "a\\\"" + bidi + "b"
	var out bytes.Buffer
	if err := printLines(&out, []*agboxv1.ConversationTurn{{Content: said}}); err != nil {
		t.Fatal(err)
	}
	var got struct{ Content string }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Content != said {
		t.Errorf("%s says %q: %v", out.Bytes(), got.Content, err)
	}
	if strings.ContainsAny(out.String(), bidi) || !strings.Contains(out.String(), `\u202e`) {
		t.Errorf("printed as %q", out.String())
	}
}
