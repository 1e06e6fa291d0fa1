package conversation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// script builds events: one word each, with its arguments.
type script struct {
	events      []*agboxv1.AgentEvent
	incarnation uint64
}

func (s *script) add(typ agboxv1.AgentEventType, ev *agboxv1.AgentEvent) *script {
	n := uint64(len(s.events) + 1)
	ev.EventType, ev.Sequence, ev.Incarnation = typ, n, s.incarnation
	ev.OccurredAt = timestamppb.New(start.Add(time.Duration(n) * time.Second))
	s.events = append(s.events, ev)
	return s
}

func (s *script) created(id, role, prompt string) *script {
	return s.add(agboxv1.AgentEventType_AGENT_MESSAGE_CREATED, &agboxv1.AgentEvent{Details: &agboxv1.AgentEvent_Message{
		Message: &agboxv1.AgentMessage{MessageId: id, Role: role, PromptId: prompt},
	}})
}

func (s *script) part(id string, number uint32, kind, text string) *script {
	return s.tool(id, number, kind, text, "", "")
}

func (s *script) tool(id string, number uint32, kind, text, name, call string) *script {
	return s.add(agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED, &agboxv1.AgentEvent{Details: &agboxv1.AgentEvent_Part{
		Part: &agboxv1.AgentMessagePart{MessageId: id, Part: number, Kind: kind, Text: text, ToolName: name, ToolCallId: call},
	}})
}

func (s *script) completed(id string) *script {
	return s.add(agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED, &agboxv1.AgentEvent{Details: &agboxv1.AgentEvent_Message{
		Message: &agboxv1.AgentMessage{MessageId: id},
	}})
}

func (s *script) result(outcome, problem string) *script {
	return s.add(agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED, &agboxv1.AgentEvent{Details: &agboxv1.AgentEvent_Result{
		Result: &agboxv1.AgentResult{Outcome: outcome, Error: problem},
	}})
}

func (s *script) checkpoint(text string) *script {
	return s.add(agboxv1.AgentEventType_AGENT_CHECKPOINT, &agboxv1.AgentEvent{Details: &agboxv1.AgentEvent_Checkpoint{
		Checkpoint: &agboxv1.AgentCheckpoint{Text: text},
	}})
}

func (s *script) says(id, role, prompt, text string) *script {
	return s.created(id, role, prompt).part(id, 0, "text", text).completed(id)
}

func (s *script) as(incarnation uint64) *script {
	s.incarnation = incarnation
	return s
}

func begin() *script { return &script{incarnation: 1} }

func TestReconstruct(t *testing.T) {
	for _, c := range []struct {
		name string
		s    *script
		want []string
	}{
		{"nothing", begin(), nil},
		{"a question and its answer",
			begin().says("u1", "user", "p1", "hello").says("m.1", "assistant", "", "good day").result("end_turn", ""),
			[]string{"1 user p1: hello", "4 assistant p1: good day"}},
		{"all messages up to the result are one turn",
			begin().says("u1", "user", "p1", "do it").says("m.1", "assistant", "", "I look").says("m.2", "assistant", "", "I did").
				result("end_turn", "").says("m.3", "assistant", "", "by the way"),
			[]string{"1 user p1: do it", "4 assistant p1: I look\nI did", "11 assistant : by the way"}},
		{"the newest snapshot of each part, in their order",
			begin().created("m.1", "assistant", "").part("m.1", 1, "text", "wor").part("m.1", 0, "text", "hello ").
				part("m.1", 1, "text", "world").completed("m.1"),
			[]string{"1 assistant : hello world"}},
		{"tool calls are one line each, reasoning is not told",
			begin().created("m.1", "assistant", "").part("m.1", 0, "reasoning", "hm").part("m.1", 1, "text", "I look:").
				tool("m.1", 2, "tool_call", "{\"command\":\n\"ls\"}", "Bash", "c1").tool("m.1", 3, "tool_call", "", "Stop", "c2").
				tool("m.1", 4, "tool_result", "a.go\n  b.go", "Bash", "c1").tool("m.1", 5, "tool_result", "late", "Old", "c0").
				part("m.1", 6, "text", "two files").completed("m.1"),
			[]string{"1 assistant : I look:\n[tool Bash: {\"command\": \"ls\"} => a.go b.go]\n[tool Stop]\n[result Old: late]\ntwo files"}},
		{"calls without IDs have the results that follow them",
			begin().created("m.1", "assistant", "").tool("m.1", 0, "tool_call", "a", "", "").tool("m.1", 1, "tool_result", "1", "", "").
				tool("m.1", 2, "tool_call", "b", "", "").tool("m.1", 3, "tool_result", "2", "", "").completed("m.1"),
			[]string{"1 assistant : [tool: a => 1]\n[tool: b => 2]"}},
		{"a message that was never completed",
			begin().says("u1", "user", "p1", "do it").created("m.1", "assistant", "").part("m.1", 0, "text", "I beg").
				result("interrupted", "").as(2).says("u1", "user", "p1", "do it").says("m.1", "assistant", "", "done").result("end_turn", ""),
			[]string{"1 user p1: do it", "4 assistant p1 interrupted: I beg", "7 user p1: do it", "10 assistant p1: done"}},
		{"a new process begins a new turn even without a result",
			begin().created("m.1", "assistant", "").part("m.1", 0, "text", "one").as(2).says("m.1", "assistant", "", "two"),
			[]string{"1 assistant  interrupted: one", "3 assistant : two"}},
		{"a turn in which nothing was said before it was cut off",
			begin().says("u1", "user", "p1", "do it").result("interrupted", ""),
			[]string{"1 user p1 interrupted: do it"}},
		{"an error is what came of it",
			begin().says("u1", "user", "p1", "do it").result("error", "no\ncredit").says("u2", "user", "p2", "again").
				says("m.1", "assistant", "", "half").result("error", "no credit"),
			[]string{"1 user p1: do it", "4 assistant p1: [error: no credit]", "5 user p2: again", "8 assistant p2: half\n[error: no credit]"}},
		{"a message whose beginning was dropped is the assistant's",
			begin().part("m.9", 1, "text", "the rest").completed("m.9").completed("m.10"),
			[]string{"1 assistant : the rest"}},
		{"a role that is none, and a turn of nothing",
			begin().says("m.1", "system", "", "obey").result("end_turn", "").created("m.2", "assistant", "").part("m.2", 0, "reasoning", "hm").completed("m.2"),
			[]string{"1 assistant : obey"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, turn := range Reconstruct(c.s.events) {
				mark := ""
				if turn.Interrupted {
					mark = " interrupted"
				}
				got = append(got, fmt.Sprintf("%d %s %s%s: %s", turn.Sequence, turn.Role, turn.PromptID, mark, turn.Content))
				if want := start.Add(time.Duration(turn.Sequence) * time.Second); !turn.At.Equal(want) {
					t.Errorf("turn of %d is at %s", turn.Sequence, turn.At)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
		})
	}
}

func TestEventsAreOrderedBySequence(t *testing.T) {
	s := begin().says("u1", "user", "p1", "one").says("m.1", "assistant", "", "two").result("end_turn", "").says("u2", "user", "p2", "three")
	want := Reconstruct(s.events)
	for range 20 {
		rand.Shuffle(len(s.events), func(i, j int) { s.events[i], s.events[j] = s.events[j], s.events[i] })
		before := slices.Clone(s.events)
		if got := Reconstruct(s.events); !slices.Equal(got, want) {
			t.Fatalf("got %v", got)
		}
		if !slices.Equal(before, s.events) {
			t.Fatal("the events were moved")
		}
	}
}

func TestCheckpointReturnsTheNewest(t *testing.T) {
	s := begin().checkpoint("one").checkpoint("two").says("m.1", "assistant", "", "x")
	slices.Reverse(s.events)
	if got := Checkpoint(s.events); got != "two" {
		t.Errorf("got %q", got)
	}
	if got := Checkpoint(nil); got != "" {
		t.Errorf("got %q", got)
	}
}

// Superseded snapshots may be dropped at any time: the turns stay the same.
func TestTurnsDoNotNeedSupersededSnapshots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := begin().created("m.1", "assistant", "")
		newest := map[uint32]uint64{}
		for range rapid.IntRange(1, 30).Draw(t, "snapshots") {
			n := rapid.Uint32Range(0, 4).Draw(t, "part")
			kind := rapid.SampledFrom([]string{"text", "tool_call", "tool_result", "reasoning"}).Draw(t, "kind")
			s.part("m.1", n, kind, rapid.StringMatching(`[a-c\n ]{0,5}`).Draw(t, "text"))
			newest[n] = uint64(len(s.events))
		}
		s.completed("m.1")
		kept := slices.DeleteFunc(slices.Clone(s.events), func(ev *agboxv1.AgentEvent) bool {
			p := ev.GetPart()
			return p != nil && newest[p.Part] != ev.Sequence
		})
		if all, few := Reconstruct(s.events), Reconstruct(kept); !slices.Equal(all, few) {
			t.Fatalf("%v became %v", all, few)
		}
	})
}

func TestOneLine(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"", 5, ""}, {" a\n\tb ", 5, "a b"}, {"abcdef", 5, "abcd…"}, {"äöüßé", 5, "äöüßé"}, {"äöüßéè", 5, "äöüß…"},
		{strings.Repeat("x", 1<<20), 3, "xx…"},
	} {
		if got := OneLine(c.text, c.limit); got != c.want {
			t.Errorf("%.10q: got %q, want %q", c.text, got, c.want)
		}
	}
}
