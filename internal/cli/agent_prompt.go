package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

type promptOptions struct {
	wait    bool
	timeout time.Duration
	id      string
}

func (a *app) agentPromptCommand() *cobra.Command {
	var o promptOptions
	cmd := &cobra.Command{
		Use: "prompt NAME (TEXT | -)", SuggestFor: []string{"ask", "send", "say", "tell"}, Short: "Give an agent a prompt", ValidArgsFunction: a.completeAgent,
		Long: `Queue a prompt for an agent; "-" reads it from standard input. It is kept whatever happens, and given to the agent, once, when
its turn comes. With --wait its answer is shown as it comes: what the agent says on standard output, the tools it uses on standard
error. Ends with the turn: 0 when it was done, 1 when it was interrupted or failed. ^C only ends the showing.`,
		Example: "  agbox agent prompt coder \"add a test for the parser\" --wait\n  agbox agent prompt coder - < task.md",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef(cmd, "expected NAME and TEXT or -, got %d arguments; put a text with blanks in quotes", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout != 0 && !o.wait {
				return usagef(cmd, "--timeout is for --wait")
			}
			return a.agentPrompt(cmd, args[0], args[1], o)
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "show the answer, and return when the turn has ended")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "with --wait: give up after this long; the agent goes on (default: never)")
	cmd.Flags().StringVar(&o.id, "id", "", "ID of the prompt: the same ID and text again are one prompt (default a random one)")
	return cmd
}

func (a *app) agentPrompt(cmd *cobra.Command, ref, text string, o promptOptions) error {
	ctx := cmd.Context()
	if text == "-" {
		input, err := a.readText(ctx, "-")
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return readError("standard input", err)
		}
		text = strings.TrimSuffix(string(input), "\n")
	}
	if strings.TrimSpace(text) == "" {
		return usagef(cmd, "the prompt is empty")
	}
	if !utf8.ValidString(text) {
		return usagef(cmd, "the prompt is not UTF-8 text")
	}
	one, err := a.fullAgent(ctx, ref)
	if err != nil {
		return err
	}
	if o.id == "" {
		o.id = uuid.NewString()
	}
	resp, err := a.conn.PromptAgent(ctx, &agboxv1.PromptAgentRequest{AgentId: one.GetAgentId(), Text: text, PromptId: o.id})
	if err != nil {
		return a.agentRefused(ctx, "prompt", one, err)
	}
	if o.wait {
		return a.showTurn(ctx, one, resp, o.timeout)
	}
	fmt.Fprintf(a.Out, "agent/%s prompt %s queued%s\n", agentName(one), resp.GetPromptId(), aheadText(resp.GetAhead()))
	if hint := asleep(one); hint != "" {
		fmt.Fprintln(a.Err, "note: "+hint)
	}
	return nil
}

func aheadText(n uint32) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d ahead", n)
}

// asleep says why an agent takes no prompt until somebody does something, or "". It needs the spec.
func asleep(one *agboxv1.AgentHandle) string {
	up := one.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE || one.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY ||
		one.GetState() == agboxv1.AgentState_AGENT_STATE_STARTING
	if client.AgentComesBack(one) || up && one.GetDesiredState() == "running" {
		return ""
	}
	text := fmt.Sprintf("agent %s is %s", agentName(one), agentState(one))
	switch {
	case one.GetDesiredState() == wantDeleted:
		return text + " and being deleted"
	case one.GetNeedsAttention() && one.GetStatusMessage() != "":
		text += " (" + one.GetStatusMessage() + ")"
	}
	return text + fmt.Sprintf("; the prompt waits in its queue; \"agbox agent start %s\" starts it", agentName(one))
}

// showTurn shows the answer to a prompt until its turn has ended.
func (a *app) showTurn(ctx context.Context, one *agboxv1.AgentHandle, p *agboxv1.PromptAgentResponse, timeout time.Duration) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if timeout > 0 {
		var stop context.CancelFunc
		waiting, stop = context.WithTimeout(waiting, timeout)
		defer stop()
	}
	t := &turn{talk: newTalk(a.Out, a.Err), prompt: p.GetPromptId(), begun: make(chan struct{})}
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
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the turn has not ended after %s; agent %s goes on with it", timeout, agentName(one))
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
	begun  chan struct{} // closed when the agent has it
	result *agboxv1.AgentResult
}

// observe takes one event in, and reports whether it was the last one.
func (t *turn) observe(e *agboxv1.AgentEvent) (done bool, err error) {
	if e.GetEventType() == agboxv1.AgentEventType_AGENT_MESSAGE_CREATED && e.GetMessage().GetPromptId() == t.prompt && !t.isBegun() {
		close(t.begun)
	}
	if !t.isBegun() {
		return false, nil
	}
	if e.GetEventType() == agboxv1.AgentEventType_AGENT_ASSISTANT_COMPLETED && e.GetResult().GetPromptId() == t.prompt {
		t.result = e.GetResult()
		return true, nil
	}
	return false, t.show(e)
}

func (t *turn) isBegun() bool {
	select {
	case <-t.begun:
		return true
	default:
		return false
	}
}

func (a *app) followTurn(ctx context.Context, one *agboxv1.AgentHandle, from uint64, t *turn) error {
	for e, err := range a.conn.AgentEvents(ctx, one.GetAgentId(), client.AgentEventOptions{From: from, Reconnect: true}) {
		if err != nil {
			return err
		}
		a.notes.clear()
		if done, err := t.observe(e); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("agent %s was deleted", agentName(one))
}

// tellTurn says every now and then what the prompt waits for, until the agent has it, and ends the wait when nothing will
// come of it. The returned function ends it.
func (a *app) tellTurn(ctx context.Context, giveUp context.CancelCauseFunc, one *agboxv1.AgentHandle, t *turn) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for now := one; !t.isBegun(); {
			if why := asleep(now); why != "" {
				giveUp(&hopelessError{why})
				return
			}
			if pause(ctx, lookEvery) != nil {
				return
			}
			if seen, err := a.conn.GetAgent(ctx, one.GetAgentId()); err == nil {
				now = seen
			}
			if !t.isBegun() && ctx.Err() == nil {
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

// turnOutcome is the end of a turn as an exit code.
func turnOutcome(one *agboxv1.AgentHandle, r *agboxv1.AgentResult) error {
	switch {
	case r.GetError() != "":
		return fmt.Errorf("the turn failed: %s", r.GetError())
	case r.GetOutcome() == "error":
		return errors.New("the turn failed")
	case r.GetOutcome() == "interrupted":
		return fmt.Errorf("the turn was interrupted; \"agbox agent transitions %s\" says why", agentName(one))
	}
	return nil
}
