package main

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// S9: an accepted prompt is answered once, or waits for an agent that does not work.
func TestAPromptIsAnsweredOnce(t *testing.T) {
	asked := task{prompt: "p", agent: "a", sandbox: "s"}
	said := func(text string) *agboxv1.ConversationTurn {
		return &agboxv1.ConversationTurn{Role: "assistant", Content: text}
	}
	answer := said(answerTo(asked))
	queued := []*agboxv1.AgentQueuedPrompt{{PromptId: "p"}}
	type agent = agboxv1.AgentHandle
	const idle, off = agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_STOPPED
	for name, row := range map[string]struct {
		box   agboxv1.SandboxState
		agent *agent
		turns []*agboxv1.ConversationTurn
		want  string
	}{
		"answered":                    {readyBox, &agent{State: idle}, []*agboxv1.ConversationTurn{said("20"), answer}, ""},
		"answered to another":         {readyBox, &agent{State: idle}, []*agboxv1.ConversationTurn{said(answerTo(task{prompt: "q"}))}, "was answered 0 times"},
		"answered twice":              {readyBox, &agent{State: idle}, []*agboxv1.ConversationTurn{answer, answer}, "was answered 2 times"},
		"answered twice in one turn":  {readyBox, &agent{State: idle}, []*agboxv1.ConversationTurn{said(answerTo(asked) + answerTo(asked))}, "was answered 2 times"},
		"cut off, then answered":      {readyBox, &agent{State: idle}, []*agboxv1.ConversationTurn{{Role: "assistant", Content: answerTo(asked), Interrupted: true}, answer}, ""},
		"said by the user only":       {readyBox, &agent{State: idle}, []*agboxv1.ConversationTurn{{Role: "user", Content: answerTo(asked)}}, "was answered 0 times"},
		"forgotten":                   {readyBox, &agent{State: idle}, nil, "was answered 0 times"},
		"forgotten in a stopped one":  {stopped, &agent{State: off}, nil, "was answered 0 times"},
		"waits for a stopped agent":   {stopped, &agent{State: off, Queue: queued, QueuedPrompts: 1}, nil, ""},
		"waits for one that works":    {readyBox, &agent{State: idle, Queue: queued, QueuedPrompts: 1}, nil, "was answered 0 times"},
		"its turn was cut off":        {stopped, &agent{State: off, PromptId: "p"}, nil, ""},
		"gone with its sandbox":       {deleted, nil, nil, ""},
		"the agent of a live sandbox": {readyBox, nil, nil, "conversation of a: rpc error: code = NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &storm{book: newBook()}
			s.book.acceptPrompt(asked)
			api := &fakeAPI{sandboxes: []*agboxv1.SandboxHandle{{SandboxId: "s", State: row.box}}}
			s.answers(t.Context(), api, &fakeCrew{agent: row.agent, turns: row.turns})
			s.book.wantProblem(t, row.want)
		})
	}
}
