package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
)

type promptOptions struct {
	wait    bool
	timeout time.Duration
	id      string
}

func (a *app) agentPromptCommand() *cobra.Command {
	var o promptOptions
	cmd := &cobra.Command{
		Use: "prompt NAME (TEXT | -)", SuggestFor: []string{"ask", "send", "say", "tell"}, Short: "Send an agent a prompt", ValidArgsFunction: a.agentKind().first,
		Long: `Queue a prompt for an agent; "-" reads it from standard input. The prompt is recorded before this command returns, and the agent
receives it exactly once. With --wait the answer is streamed: text to standard output, tool calls to standard error. The exit code is 0
if the turn completed, 1 if it was interrupted or failed. A turn that its process did not survive is repeated, and --wait
follows the repetition. ^C ends only the display.`,
		Example: "  agbox agent prompt coder \"add a test for the parser\" --wait\n  agbox agent prompt coder - < task.md",
		Args:    exactly(2, "NAME and TEXT or -, a text with blanks in quotes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.timeout != 0 && !o.wait {
				return usagef(cmd, "--timeout is for --wait")
			}
			return a.agentPrompt(cmd, args[0], args[1], o)
		},
	}
	cmd.Flags().BoolVar(&o.wait, "wait", false, "show the answer, and return when the turn has ended")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.timeout, 0), "timeout", "with --wait: give up after this long; the agent continues (default: never)")
	cmd.Flags().StringVar(&o.id, "id", "", "ID of the prompt; sending the same ID and text again has no effect (default a random one)")
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
	one, err := a.agentKind().full(ctx, ref)
	if err != nil {
		return err
	}
	req := &agboxv1.PromptAgentRequest{AgentId: one.GetAgentId(), Text: text, PromptId: cmp.Or(o.id, uuid.NewString())}
	if err := validate.PromptAgent(req).Err(); err != nil { // gRPC would refuse a text that is far too long
		return usagef(cmd, "%v", err)
	}
	resp, err := a.conn().PromptAgent(ctx, req)
	if client.Reason(err) == "PROMPT_ID_ALREADY_EXISTS" {
		return fmt.Errorf("%w with another text; choose another --id", err)
	}
	if err != nil {
		return a.agentRefused(ctx, "prompt", one, err)
	}
	if o.wait {
		return a.showTurn(ctx, one, resp, o.timeout)
	}
	fmt.Fprintf(a.Out, "agent/%s prompt %s queued%s\n", agentName(one), resp.GetPromptId(), aheadText(resp.GetAhead()))
	a.hint(given("note: ", termsafe.Line(cmp.Or(asleep(one), held(one))), ""))
	return nil
}

// held returns why a prompt waits although the agent will get it without a user's command, or "". It does not report a start or a
// turn.
func held(one *agboxv1.AgentHandle) string {
	switch one.GetState() {
	case agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_BUSY:
		return ""
	}
	return given(fmt.Sprintf("agent %s is %s: ", agentName(one), agentState(one)), one.GetStatusMessage(), "; the prompt waits in its queue")
}

func aheadText(n uint32) string { return textIf(n > 0, fmt.Sprintf(", %d ahead", n)) }

// asleep returns why an agent gets no prompt before a user starts it, or "". It needs the spec.
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
