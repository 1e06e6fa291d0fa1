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

// followed is the stream of an agent's events as somebody reads it who may be slower than the agent speaks: then the oldest
// events are dropped before they were read, the results of turns among them.
type followed struct {
	*app
	agentID string
	// away is called when the daemon went away and is not back in a moment; it is waited for.
	away func()
	// seen is the sequence of the newest event that was handed over.
	seen uint64
	// over are the prompts whose turns have ended, by the record of transitions, although their results may be dropped: they are
	// told once everything up to until was handed over.
	over  map[string]*agboxv1.AgentResult
	until uint64
}

// events iterates over what is newer than from, each once and in order, as AgentEvents does. Where some was dropped it goes on
// with what is kept, after it called lost.
func (f *followed) events(ctx context.Context, from uint64, lost func(one *agboxv1.AgentHandle)) iter.Seq2[*agboxv1.AgentEvent, error] {
	return func(yield func(*agboxv1.AgentEvent, error) bool) {
		f.seen = from
		for {
			err := f.stream(ctx, from, yield)
			if err == nil {
				return
			}
			if client.IsOutOfRange(err) {
				err = f.look(ctx, lost)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			from = 0 // all that is kept
		}
	}
}

// errBack says that a daemon that was away has sent something.
var errBack = errors.New("the daemon is back")

// awayAfter is when a daemon that went away is told to be.
const awayAfter = 750 * time.Millisecond

// stream hands over until the stream fails for another reason than that the daemon went away; nil: nobody wants more, or the agent
// is gone. A daemon that is about to end may answer still while its streams have ended: then it is asked again.
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
			lost, told = true, f.tellAway(ctx)
		}
	}
}

// endingPause is between two looks at a daemon that seems to be ending.
const endingPause = 100 * time.Millisecond

// connection hands over until the connection fails, and moves from along. With wait the daemon is waited for; errBack follows the
// first event after a loss.
func (f *followed) connection(ctx context.Context, from *uint64, lost, wait bool, yield func(*agboxv1.AgentEvent, error) bool) error {
	for e, err := range f.conn.AgentEvents(ctx, f.agentID, client.AgentEventOptions{From: *from, Reconnect: wait}) {
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

// tellAway says that the daemon is away, unless it answers.
func (f *followed) tellAway(ctx context.Context) (told bool) {
	moment, cancel := context.WithTimeout(ctx, awayAfter)
	defer cancel()
	if _, err := f.conn.Ping(moment); err == nil || ctx.Err() != nil {
		return false
	}
	f.away()
	return true
}

// awayText says that the daemon is away, and that nothing is lost by that.
func awayText(one *agboxv1.AgentHandle) string {
	return fmt.Sprintf("agboxd does not answer; agent %s goes on, and is shown when it does", agentName(one))
}

// look finds out which turns have ended.
func (f *followed) look(ctx context.Context, lost func(*agboxv1.AgentHandle)) error {
	one, err := f.conn.GetAgent(ctx, f.agentID)
	if err != nil {
		return err
	}
	all, err := f.conn.AgentTransitions(ctx, f.agentID, 0)
	if err != nil {
		return err
	}
	f.over, f.until = turnsOver(all), one.GetLastEventSequence()
	lost(one)
	return nil
}

// endOf is the end of a prompt's turn, by the record of transitions, once all events that are kept of it were handed over; nil: it
// has not ended for good.
func (f *followed) endOf(promptID string) *agboxv1.AgentResult {
	if f.seen < f.until {
		return nil
	}
	return f.over[promptID]
}

// turnsOver are the turns that have ended, whose prompts are not given again.
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
