package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const bidi = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"

func TestNothingTurnsTheDirectionOfAShownTextAround(t *testing.T) {
	for _, show := range map[string]func(string) string{
		"a line": oneLine, "a text": func(s string) string { return harmless(s, "\n\t") },
	} {
		if got, want := show("a"+bidi+"b שלום é"), "a"+strings.Repeat("\ufffd", 12)+"b שלום é"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	var out bytes.Buffer
	talk := newTalk(&out, &out)
	talk.safe = true // as a terminal
	for _, e := range []*agboxv1.AgentEvent{
		created("m.1", "assistant", ""), part("m.1", 0, "text", "rm \u202e-rf"), part("m.1", 1, "tool_call", "ls \u2066x"), completed("m.1"),
	} {
		if err := talk.show(e); err != nil {
			t.Fatal(err)
		}
	}
	if want := "rm \ufffd-rf\n[sh] ls \ufffdx\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
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
