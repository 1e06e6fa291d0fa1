package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func created(id, role, promptID string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_CREATED, Incarnation: 1,
		Details: &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{MessageId: id, Role: role, PromptId: promptID}},
	}
}

func part(id string, n uint32, kind, text string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_PART_UPDATED, Incarnation: 1,
		Details: &agboxv1.AgentEvent_Part{Part: &agboxv1.AgentMessagePart{MessageId: id, Part: n, Kind: kind, Text: text, ToolName: "sh"}},
	}
}

func completed(id string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_MESSAGE_COMPLETED, Incarnation: 1,
		Details: &agboxv1.AgentEvent_Message{Message: &agboxv1.AgentMessage{MessageId: id}},
	}
}

func result(promptID, outcome, text string) *agboxv1.AgentEvent {
	return &agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED, Incarnation: 1,
		Details: &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{PromptId: promptID, Outcome: outcome, Error: text}},
	}
}

func TestTalkShowsWhatIsNew(t *testing.T) {
	var out, side bytes.Buffer
	talk := newTalk(&out, &side)
	for _, e := range []*agboxv1.AgentEvent{
		created("p", "user", "prompt-1"), part("p", 0, "text", "a question"), completed("p"),
		created("m.1", "assistant", ""), part("m.1", 0, "reasoning", "hm"), part("m.1", 1, "text", "one"), part("m.1", 1, "text", "one two"),
		part("m.1", 1, "text", "one two"), part("m.1", 2, "text", " three"), part("m.1", 3, "tool_call", "ls\n-l"), part("m.1", 4, "tool_result", "files"),
		part("m.1", 5, "text", "four"), completed("m.1"),
		created("m.2", "assistant", ""), part("m.2", 0, "text", "five\n"), part("m.2", 0, "text", "six"),
	} {
		if err := talk.show(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := talk.end(); err != nil {
		t.Fatal(err)
	}
	if want := "one two three\nfour\nfive\n\nsix\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if want := "[sh] ls -l\n"; side.String() != want {
		t.Errorf("beside it: got %q, want %q", side.String(), want)
	}
	if len(talk.messages) != 1 {
		t.Errorf("keeps messages that are complete: %v", talk.messages)
	}
}

func TestTalkShowsBothSides(t *testing.T) {
	var out bytes.Buffer
	talk := newTalk(&out, &out)
	talk.users, talk.results, talk.own["mine"] = true, true, true
	for _, e := range []*agboxv1.AgentEvent{
		created("p", "user", "prompt-1"), part("p", 0, "text", "a\nb"), created("q", "user", "mine"), part("q", 0, "text", "typed"),
		created("m.1", "assistant", ""), part("m.1", 0, "text", "x"), part("m.1", 1, "tool_result", "\x1b[2J\nok"),
	} {
		if err := talk.show(e); err != nil {
			t.Fatal(err)
		}
	}
	if want := "> a\n> b\nx\n  -> ^[[2J ok\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestATurnBelongsToItsPromptAlone(t *testing.T) {
	var out bytes.Buffer
	turn := &turn{talk: newTalk(&out, &out), prompt: "mine"}
	all := []*agboxv1.AgentEvent{
		part("m.1", 0, "text", "to somebody else"), result("other", "end_turn", ""), created("p", "user", "mine"), part("p", 0, "text", "hi"),
		created("m.2", "assistant", ""), part("m.2", 0, "text", "yes"), result("other", "end_turn", ""), result("mine", "end_turn", ""),
	}
	for i, e := range all {
		if took := turn.accepts(e); took != (i >= 2) {
			t.Errorf("event %d: takes %v", i, took)
		}
		done, err := turn.observe(e)
		if err != nil || done != (i == len(all)-1) {
			t.Fatalf("event %d: %v, %v", i, done, err)
		}
	}
	if out.String() != "yes" || turn.result.GetOutcome() != "end_turn" {
		t.Errorf("got %q, %v", out.String(), turn.result)
	}
}

func TestATurnContinuesAfterItsPromptWasRedelivered(t *testing.T) {
	var out, side bytes.Buffer
	turn := &turn{talk: newTalk(&out, &side), prompt: "mine"}
	cut := result("mine", "interrupted", "")
	cut.GetResult().Again = true
	all := []*agboxv1.AgentEvent{
		created("p", "user", "mine"), created("m.1", "assistant", ""), part("m.1", 0, "text", "half"), cut,
		created("q", "user", "other"), part("m.9", 0, "text", "to somebody else"), result("other", "end_turn", ""),
		created("r", "user", "mine"), created("m.2", "assistant", ""), part("m.2", 0, "text", "whole"), result("mine", "interrupted", ""),
	}
	for i, e := range all {
		done, err := turn.observe(e)
		if err != nil || done != (i == len(all)-1) {
			t.Fatalf("event %d: %v, %v", i, done, err)
		}
		if begun := i < 3 || i >= 7; turn.begun.Load() != begun {
			t.Errorf("event %d: begun is %v", i, !begun)
		}
	}
	if out.String() != "half\nwhole" || side.String() != "-- "+turnAgain+"\n" || turn.result.GetOutcome() != "interrupted" {
		t.Errorf("got %q, beside it %q, %v", out.String(), side.String(), turn.result)
	}
}

func TestTransitionsEndTurns(t *testing.T) {
	const busy, idle = agboxv1.AgentState_AGENT_STATE_BUSY, agboxv1.AgentState_AGENT_STATE_IDLE
	given := func(id string) *agboxv1.AgentTransition {
		return &agboxv1.AgentTransition{From: idle, To: busy, PromptId: id}
	}
	ended := func(id, outcome string, again bool) *agboxv1.AgentTransition {
		return &agboxv1.AgentTransition{From: busy, To: idle, PromptId: id, Outcome: outcome, Again: again}
	}
	over := turnsOver([]*agboxv1.AgentTransition{
		given("a"), ended("a", "end_turn", false),
		given("b"), ended("b", "interrupted", true), {To: agboxv1.AgentState_AGENT_STATE_STARTING},
		given("c"), ended("c", "interrupted", true), given("c"), ended("c", "error", false), given("d"),
	})
	for id, want := range map[string]string{"": "", "a": "end_turn", "b": "", "c": "error", "d": ""} {
		if got := over[id].GetOutcome(); got != want {
			t.Errorf("%q: ended with %q, want %q", id, got, want)
		}
	}
}

// losesEvents has dropped the events of the first subscription; the next one brings none.
type losesEvents struct {
	scripted
	subscribed bool
}

func (s *losesEvents) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	if !s.subscribed {
		s.subscribed = true
		return nil, status.Error(codes.OutOfRange, "the events were dropped")
	}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

func TestAttachEndsWithTheErrorOfANote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &losesEvents{scripted: scripted{answers: map[string]func(any) (proto.Message, error){
			agboxv1.AgentService_GetAgent_FullMethodName:             func(any) (proto.Message, error) { return &agboxv1.GetAgentResponse{}, nil },
			agboxv1.AgentService_ListAgentTransitions_FullMethodName: func(any) (proto.Message, error) { return &agboxv1.ListAgentTransitionsResponse{}, nil },
		}}}
		closed := writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE })
		a := &app{Streams: Streams{In: strings.NewReader(""), Out: closed, Err: io.Discard}, conn: func() *client.Client { return client.New(s) }}
		err := a.attachAgent(t.Context(), &agboxv1.AgentHandle{AgentId: "abcd"}, false)
		if code := a.finish(t.Context(), err); code != exitBrokenOut {
			t.Errorf("exit code %d (%v), want %d", code, err, exitBrokenOut)
		}
	})
}

func TestTurnOutcome(t *testing.T) {
	agent := &agboxv1.AgentHandle{Name: "bot"}
	for want, r := range map[string]*agboxv1.AgentResult{
		"":                                         {Outcome: "end_turn"},
		"the turn failed":                          {Outcome: "error"},
		"the turn failed: no credit":               {Outcome: "error", Error: "no credit"},
		"the turn failed: no end":                  {Outcome: "end_turn", Error: "no end"},
		"the turn failed: no word":                 {Error: "no word"},
		"the turn failed (refusal)":                {Outcome: "refusal"},
		"the turn failed (max_tokens)":             {Outcome: "max_tokens"},
		"the turn failed (max_turn_requests)":      {Outcome: "max_turn_requests"},
		"the turn failed (max_turns): 30 turns":    {Outcome: "max_turns", Error: "30 turns"},
		"the turn failed (tired): it went to bed":  {Outcome: "tired", Error: "it went to bed"},
		"the turn failed (interrupted): by itself": {Outcome: "interrupted", Error: "by itself"},
		`the turn was interrupted; "agbox agent transitions bot" shows the reason`: {Outcome: "interrupted"},
	} {
		got := ""
		if err := turnOutcome(agent, r); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := turnOutcome(agent, &agboxv1.AgentResult{Outcome: "done_for_today"}); err != nil {
		t.Errorf("the program's own word: %v", err)
	}
}

func TestAgentEventLine(t *testing.T) {
	transition := &agboxv1.AgentEvent{
		Sequence: 7, EventType: agboxv1.AgentEventType_AGENT_STATE_CHANGED, Details: &agboxv1.AgentEvent_Transition{Transition: &agboxv1.AgentTransition{
			From: agboxv1.AgentState_AGENT_STATE_IDLE, To: agboxv1.AgentState_AGENT_STATE_FAILED,
			Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED, Reason: "exit\ncode 3",
		}},
	}
	for want, e := range map[string]*agboxv1.AgentEvent{
		"STATE_CHANGED         IDLE -> FAILED (PROCESS_CRASHED: exit code 3)": transition,
		"MESSAGE_PART_UPDATED  tool_call  sh  ls -l":                          part("m.1", 0, "tool_call", "ls\n-l\n"),
		"ASSISTANT_COMPLETED   error  no credit":                              result("p", "error", "no credit"),
		"PROMPT_WITHDRAWN      p  withdrawn": {
			EventType: agboxv1.AgentEventType_AGENT_PROMPT_WITHDRAWN, Details: &agboxv1.AgentEvent_Result{Result: &agboxv1.AgentResult{PromptId: "p", Outcome: "withdrawn"}},
		},
		"MESSAGE_CREATED       user  prompt-1": created("p", "user", "prompt-1"),
	} {
		if got := agentEventLine(e); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
