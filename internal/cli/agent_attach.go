package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) agentAttachCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "attach NAME", SuggestFor: []string{"follow", "watch", "logs", "chat", "talk"}, Short: "Follow an agent, and send it typed lines as prompts",
		ValidArgsFunction: a.agentKind().first,
		Long: `Stream the output of an agent, and send it each line of standard input as a prompt. At the end of the input, attach returns after
the last answer; if no prompt was sent, it continues until ^C. Neither stops the agent.`,
		Example: "  agbox agent attach coder\n  agbox agent attach coder --all",
		Args:    one(a.agentKind().one),
	}
	cmd.RunE = withOne(a.agentKind().full, func(ctx context.Context, one *agboxv1.AgentHandle) error { return a.attachAgent(ctx, one, all) })
	cmd.Flags().BoolVar(&all, "all", false, "show the whole conversation first")
	return cmd
}

// attached is one attachment.
type attached struct {
	*app
	agent *agboxv1.AgentHandle

	mu    sync.Mutex // for what follows, and for output
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
	a.hint(given("note: ", termsafe.Line(asleep(agent)), ""))
	err := at.run(ctx, from)
	at.mu.Lock()
	defer at.mu.Unlock()
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

// errAnswered means that the input has ended and every prompt was answered.
var errAnswered = errors.New("every prompt was answered")

// run returns when the agent is deleted, when ctx ends, or when the input has ended and every prompt was answered.
func (at *attached) run(ctx context.Context, from uint64) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() { end(at.read(ctx)) }() // a blocked read ends with the process
	err := at.follow(ctx, from, end)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, errAnswered) {
		return nil
	}
	return err
}

// read sends the lines of standard input as prompts. At the end of the input it waits until ctx ends, unless the attachment ends too.
func (at *attached) read(ctx context.Context) error {
	in := bufio.NewReader(at.In)
	for {
		line, readErr := in.ReadString('\n')
		if err := at.take(ctx, strings.TrimRight(line, "\r\n"), readErr != nil); err != nil {
			return err
		}
		if readErr != nil {
			<-ctx.Done()
			return nil
		}
	}
}

// take handles a line of the input. It returns an error if the attachment ends.
func (at *attached) take(ctx context.Context, line string, last bool) error {
	at.mu.Lock()
	defer at.mu.Unlock()
	if strings.TrimSpace(line) != "" {
		if err := at.prompt(ctx, line); err != nil {
			return err
		}
	}
	at.eof = last
	switch {
	case !last:
		return nil
	case at.typed():
		return errAnswered // ^D: no answer is awaited
	}
	return at.over(ctx)
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
	at.hint(given("queued", aheadText(resp.GetAhead()), ""))
	return nil
}

// follow shows the agent's events until they end, or all prompts are answered. It calls end with the error of a note.
func (at *attached) follow(ctx context.Context, from uint64, end context.CancelCauseFunc) error {
	note := func(text string) {
		at.mu.Lock()
		defer at.mu.Unlock()
		if err := at.aside(text); err != nil {
			end(err)
		}
	}
	f := &followed{app: at.app, agentID: at.agent.GetAgentId(), away: func() { note(awayText(at.agent)) }}
	for e, err := range f.events(ctx, from, func(*agboxv1.AgentHandle) { note(outputDropped) }) {
		if err == nil {
			err = at.handle(ctx, f, e)
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("agent %s was deleted", agentName(at.agent))
}

// handle shows an event. It returns an error if the attachment ends.
func (at *attached) handle(ctx context.Context, f *followed, e *agboxv1.AgentEvent) error {
	at.mu.Lock()
	defer at.mu.Unlock()
	if err := at.see(e); err != nil {
		return err
	}
	for id := range at.open {
		if f.endOf(id) != nil {
			delete(at.open, id)
		}
	}
	if t := e.GetTransition(); t != nil && !routine(t) || len(at.open) == 0 {
		return at.over(ctx)
	}
	return nil
}

// over returns an error if the input has ended and there is nothing to wait for: every prompt was answered, or the agent gets no prompt
// without a user's command.
func (at *attached) over(ctx context.Context) error {
	switch {
	case !at.eof || !at.asked:
		return nil
	case len(at.open) == 0:
		return errAnswered
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
	case agboxv1.AgentEventType_AGENT_PROMPT_WITHDRAWN:
		delete(at.open, e.GetResult().GetPromptId())
		return at.aside("prompt " + termsafe.Line(e.GetResult().GetPromptId()) + " was withdrawn")
	case agboxv1.AgentEventType_AGENT_STATE_CHANGED:
		if routine(e.GetTransition()) {
			return nil
		}
		return at.aside(transitionText(e.GetTransition()))
	case agboxv1.AgentEventType_AGENT_CHECKPOINT:
		return at.aside("checkpoint: " + clip(termsafe.Line(strings.TrimSpace(e.GetCheckpoint().GetText())), toolWidth))
	case agboxv1.AgentEventType_AGENT_TRUNCATED:
		return at.aside("older events were dropped")
	case agboxv1.AgentEventType_AGENT_MOVED:
		return at.aside("the agent is in another sandbox now")
	case agboxv1.AgentEventType_AGENT_SESSION_NOT_SAVED:
		return at.aside("the session of its program is not saved: " + termsafe.Line(e.GetSession().GetProblem()))
	case agboxv1.AgentEventType_AGENT_SESSION_RESTORED:
		return at.aside("its program has its session in this sandbox too")
	case agboxv1.AgentEventType_AGENT_SESSION_NOT_RESTORED:
		return at.aside("its next prompt comes with the conversation: its program's session is not in this sandbox: " + termsafe.Line(e.GetSession().GetProblem()))
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
