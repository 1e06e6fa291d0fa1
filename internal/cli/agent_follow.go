package cli

import (
	"context"
	"fmt"
	"iter"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// followed is the event stream of an agent for a reader that may be slower than the agent. Then the daemon drops the oldest events
// before they are read, including results of turns.
type followed struct {
	*app
	agentID string
	// away is called if the daemon does not answer; the stream then waits for it.
	away func()
	// seen is the sequence of the newest event that was yielded.
	seen uint64
	// over are the prompts whose turns have ended by the record of transitions; their results may be dropped. endOf returns them once
	// all events up to until were yielded.
	over  map[string]*agboxv1.AgentResult
	until uint64
}

// events iterates over the events newer than from, each once and in order, like AgentEvents. If some were dropped it calls lost and
// continues with the oldest retained event.
func (f *followed) events(ctx context.Context, from uint64, lost func(one *agboxv1.AgentHandle)) iter.Seq2[*agboxv1.AgentEvent, error] {
	return func(yield func(*agboxv1.AgentEvent, error) bool) {
		f.seen = from
		for f.stream(ctx, from, lost, yield) {
			from = 0 // all retained events
		}
	}
}

// stream yields events, and an error that ends them. It returns true if events were dropped and lost was called.
func (f *followed) stream(ctx context.Context, from uint64, lost func(*agboxv1.AgentHandle), yield func(*agboxv1.AgentEvent, error) bool) (dropped bool) {
	for e, err := range f.conn().AgentEvents(ctx, f.agentID, client.AgentEventOptions{From: from, Reconnect: true, OnAway: f.away}) {
		if client.IsOutOfRange(err) {
			if err = f.refresh(ctx, lost); err == nil {
				return true
			}
		}
		if err != nil {
			yield(nil, err)
			return false
		}
		if e.GetSequence() <= f.seen {
			continue
		}
		f.seen = e.GetSequence()
		if !yield(e, nil) {
			return false
		}
	}
	return false
}

// awayText is the note for a daemon that does not answer.
func awayText(one *agboxv1.AgentHandle) string {
	return fmt.Sprintf("agboxd does not answer; agent %s continues, and its output is shown when agboxd answers again", agentName(one))
}

// refresh reads which turns have ended.
func (f *followed) refresh(ctx context.Context, lost func(*agboxv1.AgentHandle)) error {
	one, err := f.conn().GetAgent(ctx, f.agentID)
	if err != nil {
		return err
	}
	all, err := f.conn().AgentTransitions(ctx, f.agentID, 0)
	if err != nil {
		return err
	}
	f.over, f.until = turnsOver(all), one.GetLastEventSequence()
	lost(one)
	return nil
}

// endOf returns the end of a prompt's turn by the record of transitions, once all its retained events were yielded; nil if the turn
// has not ended or the prompt is given again.
func (f *followed) endOf(promptID string) *agboxv1.AgentResult {
	if f.seen < f.until {
		return nil
	}
	return f.over[promptID]
}

// turnsOver returns the turns that have ended and whose prompts are not given again.
func turnsOver(all []*agboxv1.AgentTransition) map[string]*agboxv1.AgentResult {
	over := map[string]*agboxv1.AgentResult{}
	for _, t := range all {
		switch {
		case t.GetTo() == agboxv1.AgentState_AGENT_STATE_BUSY:
			delete(over, t.GetPromptId())
		case t.GetFrom() == agboxv1.AgentState_AGENT_STATE_BUSY && !t.GetAgain():
			over[t.GetPromptId()] = &agboxv1.AgentResult{PromptId: t.GetPromptId(), Outcome: t.GetOutcome()}
		}
	}
	return over
}
