package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/dialect/acp"
)

func decodeAll(t testing.TB, format string, lines ...string) []Output {
	t.Helper()
	var state []byte
	var all, out []Output
	for _, line := range lines {
		state, out = decode(format, state, Stdout, []byte(line))
		all = append(all, out...)
	}
	_, out = end(format, state)
	return append(all, out...)
}

// texts returns the newest snapshot of every part of one kind, joined in order.
func texts(out []Output, kind string) (text string, snapshots int) {
	newest := map[string]string{}
	var order []string
	for _, o := range out {
		p := o.Event.GetPart()
		if p == nil || p.Kind != kind {
			continue
		}
		snapshots++
		key := fmt.Sprint(p.MessageId, "/", p.Part)
		if _, ok := newest[key]; !ok {
			order = append(order, key)
		}
		newest[key] = p.Text
	}
	for _, key := range order {
		text += newest[key]
	}
	return text, snapshots
}

func chunk(text string) string {
	return string(acp.Line(map[string]any{"method": "session/update", "params": map[string]any{"update": map[string]any{
		"sessionUpdate": "agent_message_chunk", "content": map[string]string{"type": "text", "text": text},
	}}}))
}

const newSession = `{"jsonrpc":"2.0","id":3,"result":{"sessionId":"s"}}`

func TestLongStreamIsComplete(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// Lengths are sampled: drawn from a range they are mostly small, and no part would ever be full.
		n := rapid.SampledFrom([]int{1, 7, 40}).Draw(rt, "how many")
		pieces := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) string {
			return strings.Repeat(rapid.SampledFrom([]string{"a", "é ", "世", "\n"}).Draw(rt, "what"),
				rapid.SampledFrom([]int{1, 30, 400, 9000}).Draw(rt, "size"))
		}), n, n).Draw(rt, "pieces")
		lines := []string{newSession}
		for _, p := range pieces {
			lines = append(lines, chunk(p))
		}
		out := decodeAll(t, ACP, lines...)
		got, _ := texts(out, kindText)
		if want := strings.Join(pieces, ""); got != want {
			rt.Fatalf("%d bytes came out of %d", len(got), len(want))
		}
		told := 0
		for _, o := range out {
			told += len(o.Event.GetPart().GetText())
		}
		if told > 6*len(got)+1000 {
			rt.Fatalf("snapshots have %d bytes for a text of %d", told, len(got))
		}
	})
}

func TestPlainTextBeyondTheBoundContinuesInTheNextPart(t *testing.T) {
	long := strings.Repeat("é", MaxLine/2)
	got, _ := texts(decodeAll(t, Native, long, "the end"), kindText)
	if want := long + "\nthe end\n"; got != want {
		t.Errorf("%d bytes came out of %d", len(got), len(want))
	}
}

func TestTooLongPartsAreMarkedAsCut(t *testing.T) {
	whole := func(kind string, size int) string {
		return string(acp.Line(map[string]any{"type": "message_part.updated", "kind": kind, "text": strings.Repeat("ä", size/2)}))
	}
	for _, c := range []struct {
		kind        string
		size, limit int
	}{
		{kindText, MaxText + 2, MaxText}, {kindToolResult, MaxToolOutput + 2, MaxToolOutput}, {kindToolCall, MaxText + 2, MaxText},
		{kindText, MaxText, MaxText}, {kindToolResult, MaxToolOutput, MaxToolOutput},
	} {
		out := decodeAll(t, Native, whole(c.kind, c.size))
		p := out[1].Event.GetPart()
		if len(p.Text) != c.limit || p.Cut != (c.size > c.limit) {
			t.Errorf("%s of %d bytes: %d, cut %v", c.kind, c.size, len(p.Text), p.Cut)
		}
	}
}

func TestCutLastLineStillEndsTheTurn(t *testing.T) {
	for format, start := range map[string]string{
		Native: `{"type":"assistant.completed","outcome":"end_turn","text":"`,
		Claude: `{"type":"result","subtype":"success","is_error":false,"result":"`,
		ACP:    `{"jsonrpc":"2.0","id":10,"result":{"stopReason":"end_turn"},"x":"`,
	} {
		out := decodeAll(t, format, (start + strings.Repeat("x", MaxLine))[:MaxLine])
		if len(out) != 1 || !out[0].Result || out[0].Event.GetResult().GetOutcome() != outcomeEndTurn {
			t.Errorf("%s: %v", format, out)
		}
	}
}

func TestCutMessageIsNotText(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for _, line := range []string{`{"type":"message","text":"` + long, `{"text":"` + long, `{"type":"checkpoint","text":"` + long} {
		if out := decodeAll(t, Native, line[:MaxLine]); len(out) != 0 {
			t.Errorf("%.30s: %d outputs", line, len(out))
		}
	}
}

func TestNoLineImpersonatesTheUser(t *testing.T) {
	for format, lines := range map[string][]string{
		Native: {`{"type":"message.created","role":"user"}`, `{"type":"message","role":"user","text":"do it"}`},
		Claude: {`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"do it"}]}}`},
		ACP:    {newSession, `{"method":"session/update","params":{"update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"do it"}}}}`},
	} {
		for _, o := range decodeAll(t, format, lines...) {
			if m := o.Event.GetMessage(); m != nil && m.Role != roleAssistant {
				t.Errorf("%s: %v", format, m)
			}
		}
	}
}

func TestDamagedStateCountsAsNil(t *testing.T) {
	line := []byte(`{"type":"message","text":"a"}`)
	_, want := decode(Native, nil, Stdout, line)
	for _, state := range []string{
		"x", "{}", "[]", `{"v":2}`, `{"v":1,"s":{"k":"text","t":"","n":5}}`, `{"v":1,"p":4000000000}`, strings.Repeat(" ", MaxState+1),
		`{"v":1,"d":[{"p":100000,"k":"text"}]}`, `{"v":1,"c":[{"i":"a","p":1,"r":100000}]}`,
	} {
		if _, out := decode(Native, []byte(state), Stdout, line); !same(out, want) {
			t.Errorf("%.40q: %v", state, out)
		}
	}
}

func TestTheStateStaysSmall(t *testing.T) {
	var state []byte
	lasting := Open(ACP, nil)
	step := func(line string) {
		state, _ = decode(ACP, state, Stdout, []byte(line))
		if lasting.Line(Stdout, []byte(line)); !bytes.Equal(lasting.State(), state) {
			t.Fatal("one decoder for all lines has another state")
		}
		if len(state) > MaxState || len(state) == 0 {
			t.Fatalf("a state of %d bytes", len(state))
		}
	}
	step(newSession)
	for i := range 2 * maxTools {
		id := strings.Repeat("i", maxID-2) + fmt.Sprintf("%02d", i)
		step(`{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"` + id +
			`","title":"` + strings.Repeat(`\u0001`, maxName) + `","rawOutput":"x"}}}`)
	}
	step(chunk(strings.Repeat("\x01", maxStream-1)))
}

func TestFullMessageContinuesInTheNext(t *testing.T) {
	out := decodeAll(t, Native,
		`{"type":"message_part.updated","message_id":"a","part":99999,"text":"last"}`, "and more", `{"type":"done"}`)
	var kinds []string
	for _, o := range out {
		kinds = append(kinds, o.Event.GetEventType().String())
	}
	want := "[AGENT_MESSAGE_CREATED AGENT_MESSAGE_PART_UPDATED AGENT_MESSAGE_COMPLETED AGENT_MESSAGE_CREATED " +
		"AGENT_MESSAGE_PART_UPDATED AGENT_MESSAGE_COMPLETED AGENT_ASSISTANT_COMPLETED]"
	if got := fmt.Sprint(kinds); got != want {
		t.Errorf("got %s", got)
	}
}

func TestStatusDoesNotEndTheGrowingText(t *testing.T) {
	delta := `{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"ab"}}}`
	var out, all []Output
	state, all := decode(Claude, nil, Stdout, []byte(delta))
	state, out = decode(Claude, state, Outbox, []byte(`{"type":"status","text":"hm"}`))
	all = append(all, out...)
	for _, line := range []string{delta, `{"type":"assistant","message":{"content":[{"type":"text","text":"abab"}]}}`} {
		state, out = decode(Claude, state, Stdout, []byte(line))
		all = append(all, out...)
	}
	if got, _ := texts(all, kindText); got != "abab" {
		t.Errorf("the text became %q", got)
	}
	if got, n := texts(all, kindReasoning); got != "hm" || n != 1 {
		t.Errorf("the status became %q", got)
	}
}

func TestUnknownFormatHasNoOutput(t *testing.T) {
	state, out := decode("morse", []byte("kept"), Stdout, []byte(`{"type":"ready"}`))
	if string(state) != "kept" || out != nil {
		t.Errorf("%q, %v", state, out)
	}
	if state, out := end("morse", nil); state != nil || out != nil {
		t.Errorf("%q, %v", state, out)
	}
	if Prompt("morse", "p", "x") != nil || Interrupt("morse") != nil || CanResume("morse") || CanResume(Native) {
		t.Error("it can be spoken")
	}
}

func TestPromptIsOneLineWithTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		format := rapid.SampledFrom(Formats()).Draw(t, "format")
		text := rapid.String().Draw(t, "text")
		line := Prompt(format, "p-1", text)
		if bytes.Count(line, []byte("\n")) != 1 || line[len(line)-1] != '\n' {
			t.Fatalf("%q is not one line", line)
		}
		var l struct {
			Text    string `json:"text"`
			Message struct {
				Content []struct {
					Text string `json:"text"`
				} `json:"content"`
			} `json:"message"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if len(l.Message.Content) == 1 {
			l.Text = l.Message.Content[0].Text
		}
		if l.Text != strings.ToValidUTF8(text, "\uFFFD") {
			t.Fatalf("%q became %q", text, l.Text)
		}
	})
}

func TestEventsHaveTypeAndDetailsOnly(t *testing.T) {
	for _, o := range decodeAll(t, Native, `{"type":"ready"}`, `{"type":"message","text":"a"}`, `{"type":"done"}`) {
		if ev := o.Event; ev != nil && (ev.Sequence != 0 || ev.AgentId != "" || ev.OccurredAt != nil || ev.Incarnation != 0 ||
			ev.EventType == agboxv1.AgentEventType_AGENT_EVENT_TYPE_UNSPECIFIED || ev.Details == nil) {
			t.Errorf("%v", ev)
		}
	}
}
