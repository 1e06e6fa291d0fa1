package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func (a *app) agentTransitionsCommand() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{
		Use: "transitions NAME", SuggestFor: []string{"events", "states"}, Short: "Show the state changes of an agent and their reasons", ValidArgsFunction: a.agentKind().first,
		Long: `Show the state changes of an agent, oldest first; the newest 1,000 are kept. -o wide adds the time, the process number, how that
process received the conversation, and the whole reason.`,
		Example: "  agbox agent transitions coder\n  agbox agent transitions coder -o wide",
		Args:    one(oneAgent),
	}
	output := outputFlag(cmd, "wide", "json")
	cmd.Flags().Uint64Var(&after, "after", 0, "only transitions with a greater number")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		one, err := a.resolveAgent(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		all, err := a.conn().AgentTransitions(cmd.Context(), one.GetAgentId(), after)
		switch {
		case err != nil:
			return err
		case *output == "json":
			return printLines(a.Out, all)
		case len(all) == 0:
			fmt.Fprintln(a.Err, "no transitions")
			return nil
		}
		a.printTransitions(all, "", *output == "wide")
		return nil
	}
	return cmd
}

func (a *app) printTransitions(all []*agboxv1.AgentTransition, indent string, wide bool) {
	t := newTable(wide)
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
			dash(client.AgentRungName(tr.GetRung())), oneLine(tr.GetReason()),
		}
	}
	return []string{number, age(tr.GetOccurredAt().AsTime(), time.Now()), from, to, trigger, oneLine(tr.GetReason())}
}
