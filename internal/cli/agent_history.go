package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/manifest"
	"github.com/agbox/agbox/internal/termsafe"
)

type conversationOptions struct {
	asContext bool
	last      uint32
	output    *output
}

func (a *app) agentConversationCommand() *cobra.Command {
	var o conversationOptions
	cmd := &cobra.Command{
		Use: "conversation NAME", SuggestFor: []string{"history", "messages", "log"}, Short: "Show the conversation of an agent", ValidArgsFunction: a.agentKind().first,
		Long: `Show the conversation of an agent as turns, oldest first. With --as-context show exactly what a new process would receive of
it with its first prompt.`,
		Example: "  agbox agent conversation coder --last 4\n  agbox agent conversation coder --as-context",
		Args:    one(a.agentKind().one),
	}
	o.output = outputFlag(cmd, "json")
	cmd.Flags().Uint32Var(&o.last, "last", 0, "only this many of the newest turns")
	cmd.Flags().BoolVar(&o.asContext, "as-context", false, "print what a new process would receive")
	show := withOne(a.agentKind().resolve, func(ctx context.Context, one *agboxv1.AgentHandle) error { return a.conversation(ctx, one, o) })
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.asContext && (o.last > 0 || o.output.given()) {
			return usagef(cmd, "--as-context prints one whole text; leave out --last and -o")
		}
		return show(cmd, args)
	}
	return cmd
}

func (a *app) conversation(ctx context.Context, one *agboxv1.AgentHandle, o conversationOptions) error {
	if o.asContext {
		text, err := a.conn().AgentContext(ctx, one.GetAgentId())
		if err == nil && text == "" {
			fmt.Fprintf(a.Err, "a new process of agent %s would receive no context\n", agentName(one))
		}
		if err != nil {
			return err
		}
		return a.printText(text)
	}
	resp, err := a.conn().AgentConversation(ctx, one.GetAgentId(), o.last)
	if err != nil {
		return err
	}
	a.hint(textIf(resp.GetTruncated(), "note: older turns were dropped"))
	if o.output.given() {
		return printLines(a.Out, resp.GetTurns())
	}
	if len(resp.GetTurns()) == 0 {
		fmt.Fprintf(a.Err, "no messages yet; \"agbox agent prompt %s TEXT\" sends the first\n", agentName(one))
	}
	for i, t := range resp.GetTurns() {
		if i > 0 {
			fmt.Fprintln(a.Out)
		}
		if err := a.printTurn(t); err != nil {
			return err
		}
	}
	return nil
}

// printTurn indents the text, so that it can't be mistaken for a heading.
func (a *app) printTurn(t *agboxv1.ConversationTurn) error {
	head := t.GetRole() + "  " + localTime(t.GetAt()) + textIf(t.GetInterrupted(), "  (interrupted)")
	text := strings.ReplaceAll(strings.TrimRight(t.GetContent(), "\n"), "\n", "\n  ")
	_, err := fmt.Fprintf(a.Out, "%s\n  %s\n", termsafe.Line(head), termsafe.Text(text))
	return err
}

// printText prints data that is text: unchanged to a file or a pipe, and with a final line end to a terminal.
func (a *app) printText(text string) error {
	out := a.Out
	switch {
	case !isTerminal(out):
		out = termsafe.Unfiltered(out)
	case text != "" && !strings.HasSuffix(text, "\n"):
		text += "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// printLines prints one JSON object a line.
func printLines[M proto.Message](w io.Writer, list []M) error {
	for _, one := range list {
		text, err := manifest.JSON(one)
		if err != nil {
			return fmt.Errorf("print as JSON: %w", err)
		}
		if err := printLine(w, text); err != nil {
			return err
		}
	}
	return nil
}

// printLine prints one JSON value in a line.
func printLine(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", termsafe.JSON(text))
	}
	if err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	return nil
}

func localTime(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return t.AsTime().Local().Format(time.RFC3339)
}

func (a *app) agentCheckpointCommand() *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint NAME", Short: "Show the newest checkpoint of an agent", ValidArgsFunction: a.agentKind().first,
		Long: `Show the newest checkpoint: a note by the agent about its own progress. A new process always receives it. Programs in the
sandbox write one with "agbox-shim checkpoint TEXT".`,
		Example: "  agbox agent checkpoint coder",
		Args:    one(a.agentKind().one),
		RunE:    withOne(a.agentKind().resolve, a.checkpoint),
	}
}

func (a *app) checkpoint(ctx context.Context, one *agboxv1.AgentHandle) error {
	var newest *agboxv1.AgentEvent
	err := a.eachStored(ctx, one, func(e *agboxv1.AgentEvent) error {
		if e.GetCheckpoint() != nil {
			newest = e
		}
		return nil
	})
	if err != nil {
		return err
	}
	if newest == nil {
		return fmt.Errorf("agent %s has no checkpoint; a program in its sandbox writes one with \"agbox-shim checkpoint TEXT\"", agentName(one))
	}
	fmt.Fprintf(a.Err, "of %s\n", when(newest.GetOccurredAt()))
	text := newest.GetCheckpoint().GetText()
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return a.printText(text)
}

func (a *app) agentTransitionsCommand() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{
		Use: "transitions NAME", SuggestFor: []string{"events", "states"}, Short: "Show the state changes of an agent and their reasons", ValidArgsFunction: a.agentKind().first,
		Long: `Show the state changes of an agent, oldest first; the newest 1,000 are kept. -o wide adds the time, the process number, how that
process received the conversation, and the whole reason.`,
		Example: "  agbox agent transitions coder\n  agbox agent transitions coder -o wide",
		Args:    one(a.agentKind().one),
	}
	output := outputFlag(cmd, "wide", "json")
	cmd.Flags().Uint64Var(&after, "after", 0, "only transitions with a greater number")
	cmd.RunE = withOne(a.agentKind().resolve, func(ctx context.Context, one *agboxv1.AgentHandle) error {
		all, err := a.conn().AgentTransitions(ctx, one.GetAgentId(), after)
		switch {
		case err != nil:
			return err
		case output.given():
			return printLines(a.Out, all)
		case len(all) == 0:
			fmt.Fprintln(a.Err, "no transitions")
			return nil
		}
		a.printTransitions(all, "", output.format == "wide")
		return nil
	})
	return cmd
}

func (a *app) printTransitions(all []*agboxv1.AgentTransition, indent string, wide bool) {
	t := newTable(a.Out, wide)
	t.add(transitionHeader(indent, wide)...)
	for _, tr := range all {
		t.add(transitionRow(tr, indent, wide)...)
	}
	t.write(a.Out)
}

func transitionHeader(indent string, wide bool) []string {
	if wide {
		return []string{indent + "NUMBER", "TIME", "FROM", "TO", "TRIGGER", "PROCESS", "PAST", "REASON"}
	}
	return []string{indent + "NUMBER", "AGE", "FROM", "TO", "TRIGGER", "REASON"}
}

func transitionRow(tr *agboxv1.AgentTransition, indent string, wide bool) []string {
	number := indent + strconv.FormatUint(tr.GetNumber(), 10)
	from, to, trigger := enum.Word(tr.GetFrom()), enum.Word(tr.GetTo()), enum.Word(tr.GetTrigger())
	if wide {
		return []string{
			number, localTime(tr.GetOccurredAt()), from, to, trigger, strconv.FormatUint(tr.GetIncarnation(), 10),
			dash(client.AgentRungName(tr.GetRung())), termsafe.Line(tr.GetReason()),
		}
	}
	return []string{number, age(tr.GetOccurredAt().AsTime(), time.Now()), from, to, trigger, termsafe.Line(tr.GetReason())}
}
