package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/agbox/agbox/internal/wait"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// followed is the event stream of an agent for a reader that may be slower than the agent. Then the daemon drops the oldest events
// before they are read, including results of turns.
type followed struct {
	*app
	agentID string
	// away is called if the daemon does not answer for awayAfter; the stream then waits for it.
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
		for {
			err := f.stream(ctx, from, yield)
			if err == nil {
				return
			}
			if client.IsOutOfRange(err) {
				err = f.refresh(ctx, lost)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			from = 0 // all retained events
		}
	}
}

// errBack means that the daemon sent an event after it had not answered.
var errBack = errors.New("the daemon is back")

// awayAfter is how long the daemon may not answer before the user is notified.
const awayAfter = 750 * time.Millisecond

// stream yields events until the stream fails for a reason other than a daemon that does not answer. It returns nil if the consumer
// stops or the agent was deleted. A daemon that is ending may still answer Ping after its streams have ended; then stream retries.
func (f *followed) stream(ctx context.Context, from uint64, yield func(*agboxv1.AgentEvent, error) bool) error {
	lost, told := false, false
	for {
		switch err := f.connection(ctx, &from, lost, told, yield); {
		case errors.Is(err, errBack):
			lost, told = false, false
		case told || !client.IsUnavailable(err):
			return err
		case lost:
			if err := wait.For(ctx, endingPause); err != nil {
				return err
			}
			fallthrough
		default:
			lost, told = true, f.printAway(ctx)
		}
	}
}

// endingPause is the pause between two tries with a daemon that is ending.
const endingPause = 100 * time.Millisecond

// connection yields events until the connection fails, and advances from. With wait it waits for the daemon. With lost it returns
// errBack after the first event.
func (f *followed) connection(ctx context.Context, from *uint64, lost, wait bool, yield func(*agboxv1.AgentEvent, error) bool) error {
	for e, err := range f.conn().AgentEvents(ctx, f.agentID, client.AgentEventOptions{From: *from, Reconnect: wait}) {
		if err != nil {
			return err
		}
		*from = e.GetSequence()
		if *from > f.seen {
			f.seen = *from
			if !yield(e, nil) {
				return nil
			}
		}
		if lost {
			return errBack
		}
	}
	return nil
}

// printAway notifies the user unless the daemon answers.
func (f *followed) printAway(ctx context.Context) (told bool) {
	moment, cancel := context.WithTimeout(ctx, awayAfter)
	defer cancel()
	if _, err := f.conn().Ping(moment); err == nil || ctx.Err() != nil {
		return false
	}
	f.away()
	return true
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
