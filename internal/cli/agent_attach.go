package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
)

func (a *app) agentAttachCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "attach NAME", SuggestFor: []string{"follow", "watch", "logs", "chat", "talk"}, Short: "Follow an agent, and send it typed lines as prompts",
		ValidArgsFunction: a.agentKind().first,
		Long: `Stream the output of an agent, and send it each line of standard input as a prompt. At the end of the input, attach returns after
the last answer; if no prompt was sent, it continues until ^C. Neither stops the agent.`,
		Example: "  agbox agent attach coder\n  agbox agent attach coder --all",
		Args:    one(oneAgent),
	}
	cmd.RunE = withOne(a.agentKind().full, func(ctx context.Context, one *agboxv1.AgentHandle) error { return a.attachAgent(ctx, one, all) })
	cmd.Flags().BoolVar(&all, "all", false, "show the whole conversation first")
	return cmd
}

// attached is one attachment.
type attached struct {
	*app
	agent *agboxv1.AgentHandle
	talk  *talk
	open  map[string]bool // prompts of this attachment whose turn has not ended
	asked bool
	eof   bool
}

func (a *app) attachAgent(ctx context.Context, agent *agboxv1.AgentHandle, all bool) error {
	from := agent.GetLastEventSequence()
	if all {
		from = 0
	}
	at := &attached{app: a, agent: agent, talk: newTalk(a.Out, a.Out), open: map[string]bool{}}
	at.talk.users, at.talk.results = true, true
	fmt.Fprintf(a.Err, "attached to agent %s, which is %s; ^C detaches\n", agentName(agent), agentState(agent))
	if hint := asleep(agent); hint != "" {
		fmt.Fprintln(a.Err, "note: "+oneLine(hint))
	}
	err := at.run(ctx, from)
	if endErr := at.talk.end(); err == nil {
		err = endErr
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &exitError{code: exitBrokenOut}
	case isInterrupt(ctx):
		fmt.Fprintf(a.Err, "detached; agent %s continues\n", agentName(agent))
	}
	return err
}

// run returns when the agent is deleted, when ctx ends, or when the input has ended and every prompt was answered.
func (at *attached) run(ctx context.Context, from uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := at.input(ctx)
	events := at.events(ctx, from)
	for !at.eof || !at.asked || len(at.open) > 0 {
		select {
		case line, more := <-lines:
			if !more {
				at.eof, lines = true, nil
				if at.typed() {
					return nil // ^D
				}
				if err := at.hopeless(ctx); err != nil {
					return err
				}
				continue
			}
			if err := at.prompt(ctx, line); err != nil {
				return err
			}
		case n := <-events:
			if err := at.handle(ctx, n); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// input sends the lines of standard input, and closes the channel at its end. A blocked read ends with the process.
func (at *attached) input(ctx context.Context) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		in := bufio.NewReader(at.In)
		for {
			line, err := in.ReadString('\n')
			if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// typed reports whether the input is a terminal.
func (at *attached) typed() bool {
	f, ok := at.In.(*os.File)
	return ok && isTerminal(f)
}

// prompt queues a prompt. It prints a refusal and returns no error, so that the user can send another prompt.
func (at *attached) prompt(ctx context.Context, text string) error {
	req := &agboxv1.PromptAgentRequest{AgentId: at.agent.GetAgentId(), Text: text, PromptId: uuid.NewString()}
	at.asked, at.open[req.PromptId] = true, true
	if at.typed() && isTerminal(at.Out) {
		at.talk.own[req.PromptId] = true // the terminal has echoed it
	}
	err := validate.PromptAgent(req).Err()
	var resp *agboxv1.PromptAgentResponse
	if err == nil {
		resp, err = at.conn().PromptAgent(ctx, req)
	}
	if err != nil {
		delete(at.open, req.PromptId)
		if ctx.Err() != nil || client.IsNotFound(err) {
			return err
		}
		at.complain(at.agentRefused(ctx, "prompt", at.agent, err))
		return nil
	}
	if resp.GetAhead() > 0 {
		fmt.Fprintf(at.Err, "queued%s\n", aheadText(resp.GetAhead()))
	}
	return nil
}

// agentNews is an event of the agent, or a note in place of events that were dropped.
type agentNews struct {
	event *agboxv1.AgentEvent
	aside string
	err   error // the stream has ended with it
	// over are prompts whose turns have ended, sent after the last event that could show that.
	over map[string]*agboxv1.AgentResult
}

// events sends the agent's events, and finally the error that ended them.
func (at *attached) events(ctx context.Context, from uint64) <-chan agentNews {
	all := make(chan agentNews)
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
			n := agentNews{event: e, err: err}
			if err == nil && f.seen >= f.until {
				n.over, f.over = f.over, nil
			}
			if !tell(n) || err != nil {
				return
			}
		}
		tell(agentNews{err: fmt.Errorf("agent %s was deleted", agentName(at.agent))})
	}()
	return all
}

func (at *attached) handle(ctx context.Context, n agentNews) error {
	if n.err != nil {
		return n.err
	}
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
		return at.aside("the agent is in another sandbox now; its next prompt comes with the conversation")
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
