package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/termsafe"
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
	quiet := a.showWait(waiting, cancel, one, t)
	err := a.followTurn(waiting, one, p.GetLastEventSequence(), t)
	quiet()
	if endErr := t.end(); err == nil {
		err = endErr
	}
	hopeless, over := errors.AsType[*hopelessError](context.Cause(waiting))
	switch {
	case over:
		return hopeless
	case errors.Is(err, context.DeadlineExceeded) && !t.begun.Load():
		return fmt.Errorf("agent %s has not started the prompt after %s; it stays in the queue; \"agbox agent describe %s\" shows what it waits for",
			agentName(one), timeout, agentName(one))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the turn has not ended after %s; agent %s continues it", timeout, agentName(one))
	case isInterrupt(ctx) && !t.begun.Load():
		fmt.Fprintf(a.Err, "the prompt stays in the queue of agent %s\n", agentName(one))
		return err
	case isInterrupt(ctx):
		fmt.Fprintf(a.Err, "agent %s continues; \"agbox agent interrupt %s\" ends its turn\n", agentName(one), agentName(one))
		return err
	case errors.Is(err, syscall.EPIPE):
		return &exitError{code: exitBrokenOut}
	case err != nil:
		return err
	}
	return turnOutcome(one, t.result)
}

// hopelessError means that a prompt will not be given without a user's command.
type hopelessError struct{ why string }

func (e *hopelessError) Error() string { return e.why }

// turn follows the turn of one prompt.
type turn struct {
	*talk
	prompt string
	begun  atomic.Bool // the agent has it
	result *agboxv1.AgentResult
}

// accepts reports whether an event belongs to the turn, which starts with the message of its prompt.
func (t *turn) accepts(e *agboxv1.AgentEvent) bool {
	if e.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED && e.GetMessage().GetPromptId() == t.prompt {
		t.begun.Store(true)
	}
	return t.begun.Load()
}

// observe processes one event, and reports whether it was the last one. After a turn that was cut off it continues if the prompt is
// given again.
func (t *turn) observe(e *agboxv1.AgentEvent) (done bool, err error) {
	switch r := e.GetResult(); {
	case e.GetEventType() == agboxv1.AgentEventType_AGENT_PROMPT_WITHDRAWN && r.GetPromptId() == t.prompt:
		t.result = r
		return true, nil
	case !t.accepts(e):
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

// followTurn returns when the turn has its result. t.result stays nil if the turn has ended and its result was dropped.
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
		if t.accepts(e) {
			a.notes.clear() // other turns are not shown: keep the note
		}
		if done, err := t.observe(e); done || err != nil {
			return err
		}
		if end := f.endOf(t.prompt); end != nil {
			return errors.Join(t.line(t.side, "-- the turn has ended; its result was dropped"), turnOutcome(one, end))
		}
	}
	return fmt.Errorf("agent %s was deleted", agentName(one))
}

const outputDropped = "some of the output was dropped before it was read: the agent wrote more than the daemon keeps"

// looksIdle is after how many observations in a row an idle agent with an empty queue must have had the prompt before: the events of
// a prompt that is given arrive sooner.
const looksIdle = 3

// showWait regularly shows what the prompt waits for until the agent gets it, and ends the wait if the agent never will. The returned
// function stops it.
func (a *app) showWait(ctx context.Context, giveUp context.CancelCauseFunc, one *agboxv1.AgentHandle, t *turn) (stop func()) {
	idle := 0 // observations in a row of an idle agent
	hopeless := func(now *agboxv1.AgentHandle) bool {
		why := asleep(now)
		if idle == looksIdle {
			why = fmt.Sprintf("prompt %s is not in the queue of agent %s: it was given before, and the events of its turn were dropped", t.prompt, agentName(one))
		}
		if why == "" || t.begun.Load() {
			return false
		}
		giveUp(&hopelessError{why})
		return true
	}
	if hopeless(one) {
		return func() {}
	}
	now := one
	return a.noteWaiting(ctx, nil, func(ctx context.Context) (string, bool) {
		if t.begun.Load() {
			idle = 0
			return "", false
		}
		if seen, err := a.conn().GetAgent(ctx, one.GetAgentId()); err == nil {
			now = seen
		}
		idle++
		if now.GetState() != agboxv1.AgentState_AGENT_STATE_IDLE || now.GetQueuedPrompts() > 0 {
			idle = 0
		}
		if hopeless(now) || t.begun.Load() {
			return "", false
		}
		return fmt.Sprintf("waiting for agent %s: %s", agentName(now), agentFacts(now)), false
	})
}

// turnOutcome returns an error if the turn failed. Outcomes that only the program knows are no failures.
func turnOutcome(one *agboxv1.AgentHandle, r *agboxv1.AgentResult) error {
	outcome, text := termsafe.Line(r.GetOutcome()), "the turn failed"
	switch {
	case outcome == "withdrawn":
		return errors.New("the prompt was withdrawn")
	case r.GetError() == "" && outcome == "interrupted":
		return fmt.Errorf("the turn was interrupted; \"agbox agent transitions %s\" shows the reason", agentName(one))
	case r.GetError() == "" && !isFailure(outcome):
		return nil
	case outcome != "" && outcome != "end_turn" && outcome != "error":
		text += " (" + outcome + ")"
	}
	return errors.New(strings.Join(nonEmpty([]string{text, r.GetError()}), ": "))
}

// isFailure reports whether an outcome means an error, a refusal or an incomplete answer, such as max_tokens, max_turns and
// max_turn_requests.
func isFailure(outcome string) bool {
	return outcome == "error" || outcome == "refusal" || strings.HasPrefix(outcome, "max_")
}
