package controller_test

import (
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestAnAgentAnswersPromptsInOrder(t *testing.T) {
	withAgent(t, nil, func(t *testing.T, p *player, _, id string) {
		p.prompt(t, id, "first")
		p.prompt(t, id, "second")
		p.prompt(t, id, "first") // a retry
		pass(50 * time.Millisecond)
		p.wantAgent(t, id, agentBusy)
		pass(time.Second)
		p.wantAgent(t, id, agentIdle)
		p.wantOutcomes(t, id, "first:end_turn second:end_turn")
		p.wantGiven(t, "first", 1)
		p.wantTriggers(t, id, "SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED PROMPT_RECEIVED RESULT_RECEIVED")
	})
}

func TestAnInitialPromptIsGivenOnceInALife(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{InitialPrompt: "begin"}, func(t *testing.T, p *player, _, id string) {
		p.wantOutcomes(t, id, "initial.1:end_turn")
		p.ask(t, p.store.RequestAgentStop, id)
		pass(time.Second)
		p.wantAgent(t, id, agentStopped)
		p.ask(t, p.store.RequestAgentRun, id)
		pass(time.Second)
		p.wantAgent(t, id, agentIdle)
		if n := len(p.shim.said.prompts("initial.1")); n != 1 {
			t.Errorf("given %d times", n)
		}
	})
}

// TestWhatEndsATurn has a row for each way in which a turn can end without its result.
func TestWhatEndsATurn(t *testing.T) {
	const begin = "SPAWN CONNECTED PROMPT_RECEIVED "
	for _, row := range []struct {
		name, text, hold, want, outcomes, queue string
		given                                   int
	}{
		{name: "a crash: given once more, in the next process", text: "crash-before 2", given: 2,
			want: begin + "PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED RESULT_RECEIVED", outcomes: ":interrupted :end_turn"},
		{name: "two crashes: given no more", text: "crash", given: 2,
			want: begin + "PROCESS_CRASHED SPAWN CONNECTED PROMPT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":interrupted :interrupted", queue: "*"},
		{name: "hold: not given again", text: "crash", hold: "hold", given: 1,
			want: begin + "PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":interrupted", queue: "*"},
		{name: "gone with code 0 without a result", text: "exit", given: 2,
			want: begin + "PROCESS_EXITED SPAWN CONNECTED PROMPT_RECEIVED PROCESS_EXITED SPAWN CONNECTED", outcomes: ":interrupted :interrupted", queue: "*"},
		{name: "a result, and then the end: the result counts", text: "result-then-die", given: 1,
			want: begin + "RESULT_RECEIVED PROCESS_CRASHED SPAWN CONNECTED", outcomes: ":end_turn"},
		{name: "a result, and then code 0: stays stopped", text: "result-then-exit", given: 1,
			want: begin + "RESULT_RECEIVED PROCESS_EXITED", outcomes: ":end_turn"},
	} {
		t.Run(row.name, func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{OnInterrupted: row.hold}, func(t *testing.T, p *player, _, id string) {
				p.prompt(t, id, row.text)
				pass(30 * time.Second)
				p.wantTriggers(t, id, row.want)
				p.wantGiven(t, row.text, row.given)
				p.wantOutcomes(t, id, named(row.outcomes, ":", row.text))
				if got, want := p.queue(t, id), named(row.queue, "*", row.text); got != want {
					t.Errorf("queue %q, want %q", got, want)
				}
			})
		})
	}
}

// named puts a prompt's ID before each mark.
func named(pattern, mark, text string) string {
	return strings.ReplaceAll(pattern, mark, promptID(text)+mark)
}
