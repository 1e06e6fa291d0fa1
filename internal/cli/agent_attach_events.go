package cli

import (
	"context"
	"fmt"
	"strings"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// agentNews is an event of the agent, or a note in place of events that were dropped.
type agentNews struct {
	event *agboxv1.AgentEvent
	aside string
	// over are prompts whose turns have ended, sent after the last event that could show that.
	over map[string]*agboxv1.AgentResult
}

// events sends the agent's events, and finally the error that ended them.
func (at *attached) events(ctx context.Context, from uint64) (<-chan agentNews, <-chan error) {
	all, failed := make(chan agentNews), make(chan error, 1)
	tell := func(n agentNews) bool {
		select {
		case all <- n:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		f := &followed{app: at.app, agentID: at.agent.GetAgentId(), away: func() { tell(agentNews{aside: awayText(at.agent)}) }}
		lost := func(*agboxv1.AgentHandle) { tell(agentNews{aside: outputDropped}) }
		for e, err := range f.events(ctx, from, lost) {
			if err != nil {
				failed <- err
				return
			}
			n := agentNews{event: e}
			if f.seen >= f.until {
				n.over, f.over = f.over, nil
			}
			if !tell(n) {
				failed <- context.Cause(ctx)
				return
			}
		}
		failed <- fmt.Errorf("agent %s was deleted", agentName(at.agent))
	}()
	return all, failed
}

func (at *attached) handle(ctx context.Context, n agentNews) error {
	if n.event == nil {
		return at.aside(n.aside)
	}
	if err := at.see(n.event); err != nil {
		return err
	}
	for id := range n.over {
		delete(at.open, id)
	}
	if t := n.event.GetTransition(); t != nil && !routine(t) {
		return at.hopeless(ctx)
	}
	return nil
}

// hopeless ends the wait for answers when the input has ended and the agent gets no prompt without a user's command.
func (at *attached) hopeless(ctx context.Context) error {
	if !at.eof || len(at.open) == 0 {
		return nil
	}
	now, err := at.conn().GetAgent(ctx, at.agent.GetAgentId())
	if err != nil {
		return nil //nolint:nilerr // the stream returns the error
	}
	if why := asleep(now); why != "" {
		return &hopelessError{why}
	}
	return nil
}

func (at *attached) see(e *agboxv1.AgentEvent) error {
	switch e.GetEventType() {
	case agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED:
		if e.GetResult().GetAgain() {
			return at.aside(turnAgain)
		}
		delete(at.open, e.GetResult().GetPromptId())
		if err := turnOutcome(at.agent, e.GetResult()); err != nil {
			return at.aside(err.Error())
		}
		return at.talk.end()
	case agboxv1.AgentEventType_AGENT_STATE_CHANGED:
		if routine(e.GetTransition()) {
			return nil
		}
		return at.aside(transitionText(e.GetTransition()))
	case agboxv1.AgentEventType_AGENT_CHECKPOINT:
		return at.aside("checkpoint: " + clip(oneLine(strings.TrimSpace(e.GetCheckpoint().GetText())), toolWidth))
	case agboxv1.AgentEventType_AGENT_TRUNCATED:
		return at.aside("older events were dropped")
	case agboxv1.AgentEventType_AGENT_MOVED:
		return at.aside("it is in another sandbox now, and is told its past with the next prompt")
	case agboxv1.AgentEventType_AGENT_DRAIN_PHASE:
		return at.aside(drainPhaseText(e.GetDrain()))
	case agboxv1.AgentEventType_AGENT_RESET:
		return at.aside("the agent has started over: it does not remember what was before")
	}
	return at.talk.show(e)
}

// aside writes a note that is not part of the conversation.
func (at *attached) aside(text string) error { return at.talk.line(at.Out, "-- "+text) }

// routine reports whether a transition is between IDLE and BUSY, as in every turn.
func routine(t *agboxv1.AgentTransition) bool {
	return t.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED || t.GetTrigger() == agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED
}
