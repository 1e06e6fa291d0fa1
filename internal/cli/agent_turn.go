package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/agbox/agbox/internal/wait"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// showTurn shows the answer to a prompt until its turn has ended.
func (a *app) showTurn(ctx context.Context, one *agboxv1.AgentHandle, p *agboxv1.PromptAgentResponse, timeout time.Duration) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if timeout > 0 {
		var stop context.CancelFunc
		waiting, stop = context.WithTimeout(waiting, timeout)
		defer stop()
	}
	t := &turn{talk: newTalk(a.Out, a.Err), prompt: p.GetPromptId()}
	quiet := a.tellTurn(waiting, cancel, one, t)
	err := a.followTurn(waiting, one, p.GetLastEventSequence(), t)
	quiet()
	if endErr := t.end(); err == nil {
		err = endErr
	}
	var hopeless *hopelessError
	switch {
	case errors.As(context.Cause(waiting), &hopeless):
		return hopeless
	case errors.Is(err, context.DeadlineExceeded) && !t.begun.Load():
		return fmt.Errorf("agent %s has not begun with the prompt after %s; it stays in the queue; \"agbox agent describe %s\" says what it waits for",
			agentName(one), timeout, agentName(one))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the turn has not ended after %s; agent %s goes on with it", timeout, agentName(one))
	case isInterrupt(ctx) && !t.begun.Load():
		fmt.Fprintf(a.Err, "the prompt stays in the queue of agent %s\n", agentName(one))
		return err
	case isInterrupt(ctx):
		fmt.Fprintf(a.Err, "agent %s goes on; \"agbox agent interrupt %s\" ends its turn\n", agentName(one), agentName(one))
		return err
	case errors.Is(err, syscall.EPIPE):
		return &exitError{code: exitBrokenOut}
	case err != nil:
		return err
	}
	return turnOutcome(one, t.result)
}

// hopelessError says that a prompt will not be given by itself.
type hopelessError struct{ why string }

func (e *hopelessError) Error() string { return e.why }

// turn is the turn of one prompt as it is being followed.
type turn struct {
	*talk
	prompt string
	begun  atomic.Bool // the agent has it
	result *agboxv1.AgentResult
}

// takes reports whether an event is of the turn, which begins with the message of its prompt.
func (t *turn) takes(e *agboxv1.AgentEvent) bool {
	if e.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED && e.GetMessage().GetPromptId() == t.prompt {
		t.begun.Store(true)
	}
	return t.begun.Load()
}

// observe takes one event in, and reports whether it was the last one. A turn that was cut off is not the end where its prompt is
// given again.
func (t *turn) observe(e *agboxv1.AgentEvent) (done bool, err error) {
	switch r := e.GetResult(); {
	case !t.takes(e):
		return false, nil
	case r == nil || r.GetPromptId() != t.prompt:
		return false, t.show(e)
	case r.GetAgain():
		t.begun.Store(false)
		return false, t.line(t.side, "-- "+turnAgain)
	default:
		t.result = r
		return true, nil
	}
}

const turnAgain = "the turn was cut off; its prompt is given again"

// followTurn returns when the turn has its result, or has ended and the result is no longer kept: then t.result stays nil.
func (a *app) followTurn(ctx context.Context, one *agboxv1.AgentHandle, from uint64, t *turn) error {
	f := &followed{app: a, agentID: one.GetAgentId(), away: func() {
		a.notes.clear()
		_ = t.line(t.side, "-- "+awayText(one)) // stderr
	}}
	lost := func(now *agboxv1.AgentHandle) {
		t.begun.Store(now.GetPromptId() == t.prompt || f.over[t.prompt] != nil)
		a.notes.clear()
		_ = t.line(t.side, "-- "+outputDropped) // stderr
	}
	for e, err := range f.events(ctx, from, lost) {
		if err != nil {
			return err
		}
		if t.takes(e) {
			a.notes.clear() // what other turns say is not shown: the note stands
		}
		if done, err := t.observe(e); done || err != nil {
			return err
		}
		if end := f.endOf(t.prompt); end != nil {
			return errors.Join(t.line(t.side, "-- the turn has ended; its result is no longer kept"), turnOutcome(one, end))
		}
	}
	return fmt.Errorf("agent %s was deleted", agentName(one))
}

const outputDropped = "some of the output was dropped before it was read: more was said than is kept"

// looksIdle is after how many looks an agent that has nothing to do has had the prompt before: the events of one that is given
// come within a moment.
const looksIdle = 3

// tellTurn says every now and then what the prompt waits for, while the agent has not got it, or not again, and ends the wait when
// nothing will come of it. The returned function ends it.
func (a *app) tellTurn(ctx context.Context, giveUp context.CancelCauseFunc, one *agboxv1.AgentHandle, t *turn) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		idle := 0 // looks in a row that found it with nothing to do
		for now := one; ; {
			why := asleep(now)
			if idle == looksIdle {
				why = fmt.Sprintf("prompt %s is not in the queue of agent %s: it was given before, and the events of its turn are no longer kept", t.prompt, agentName(one))
			}
			if why != "" && !t.begun.Load() {
				giveUp(&hopelessError{why})
				return
			}
			if wait.For(ctx, lookEvery) != nil {
				return
			}
			if t.begun.Load() {
				idle = 0
				continue
			}
			if seen, err := a.conn.GetAgent(ctx, one.GetAgentId()); err == nil {
				now = seen
			}
			idle++
			if now.GetState() != agboxv1.AgentState_AGENT_STATE_IDLE || now.GetQueuedPrompts() > 0 {
				idle = 0
			}
			if !t.begun.Load() && ctx.Err() == nil {
				a.notes.say(waitingText(now))
			}
		}
	}()
	return func() {
		cancel()
		<-gone
		a.notes.clear()
	}
}

// waitingText is "waiting for agent coder: BUSY; 2 prompts queued".
func waitingText(one *agboxv1.AgentHandle) string {
	return strings.Join(nonEmpty([]string{fmt.Sprintf("waiting for agent %s: %s", agentName(one), agentState(one)), agentTrouble(one)}), "; ")
}

// turnOutcome is the end of a turn as an exit code. A program's own words for an end are no failures.
func turnOutcome(one *agboxv1.AgentHandle, r *agboxv1.AgentResult) error {
	outcome, text := oneLine(r.GetOutcome()), "the turn failed"
	switch {
	case r.GetError() == "" && outcome == "interrupted":
		return fmt.Errorf("the turn was interrupted; \"agbox agent transitions %s\" says why", agentName(one))
	case r.GetError() == "" && !isFailure(outcome):
		return nil
	case outcome != "" && outcome != "end_turn" && outcome != "error":
		text += " (" + outcome + ")"
	}
	return errors.New(strings.Join(nonEmpty([]string{text, r.GetError()}), ": "))
}

// isFailure reports whether an outcome says that something failed, or that the answer is refused or is not whole: there are
// max_tokens, max_turns, max_turn_requests and more of the kind.
func isFailure(outcome string) bool {
	return outcome == "error" || outcome == "refusal" || strings.HasPrefix(outcome, "max_")
}
