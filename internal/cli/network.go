package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) networkCommand() *cobra.Command {
	var o *output
	var learn bool
	cmd := &cobra.Command{
		Use: "network NAME", SuggestFor: []string{"net", "netstat", "firewall"}, Short: "Show what a sandbox reached, and what its network policy denied",
		ValidArgsFunction: a.sandboxKind().first,
		Long: `Show what a sandbox reached in the last hour, and what its network policy denied it. COUNT is of packets that began something or were
denied; for a name, of questions of DNS. Whether there was an answer is unknown. Names are known only where the policy names domains.

With --learn, print a policy that allows what was reached, and nothing else. What was denied is in its comments.`,
		Example: "  agbox network web\n  agbox network web --learn >>web.yaml",
		Args:    one("the name of a sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if learn && o.given() {
				return usagef(cmd, "expected --learn or -o, not both")
			}
			return a.network(cmd.Context(), args[0], learn, o)
		},
	}
	cmd.Flags().BoolVar(&learn, "learn", false, "print a policy that allows what was reached")
	o = outputFlag(cmd, "json", "yaml", "jsonpath=", "jsonpath-file=", "go-template=", "go-template-file=")
	return cmd
}

func (a *app) network(ctx context.Context, ref string, learn bool, o *output) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	seen, err := a.conn().NetworkActivity(ctx, sb.GetSandboxId())
	if err != nil {
		return err
	}
	if seen.GetProblem() != "" {
		fmt.Fprintln(a.Err, "nothing is recorded: "+termsafe.Line(seen.GetProblem()))
	}
	list := seen.GetDestinations()
	switch {
	case learn:
		printLearned(a.Out, list)
	case o.given():
		return printList(a, list, o)
	case len(list) > 0:
		t := &table{}
		t.add("VERDICT", "DESTINATION", "PORT", "NAME", "COUNT", "LAST")
		for _, d := range list {
			t.add(destinationRow(d, time.Now())...)
		}
		t.write(a.Out)
	case seen.GetProblem() == "":
		fmt.Fprintln(a.Err, "nothing was reached or denied in the last hour")
	}
	return nil
}

func destinationRow(d *agboxv1.NetworkDestination, now time.Time) []string {
	verdict, addr, port := "reached", d.GetAddress(), d.GetProtocol()
	if d.GetDenied() {
		verdict = "denied"
	}
	if d.GetHost() {
		addr += " (host)"
	}
	if d.GetPort() > 0 {
		port = fmt.Sprintf("%d/%s", d.GetPort(), d.GetProtocol())
	}
	return []string{
		verdict, cmp.Or(addr, "-"), cmp.Or(port, "-"), cmp.Or(strings.Join(d.GetNames(), " "), "-"), strconv.FormatUint(d.GetCount(), 10),
		age(d.GetLastAt().AsTime(), now),
	}
}

// printLearned prints the policy that lets reached destinations through.
func printLearned(w io.Writer, list []*agboxv1.NetworkDestination) {
	var reached, denied, others []string
	for _, d := range list {
		for _, entry := range entries(d) {
			switch _, err := netentry.Parse(entry); {
			case err != nil:
				others = append(others, entry)
			case d.GetDenied():
				denied = append(denied, entry)
			default:
				reached = append(reached, entry)
			}
		}
	}
	unique := func(texts []string) []string {
		slices.Sort(texts)
		return slices.Compact(texts)
	}
	reached, denied, others = unique(reached), unique(denied), unique(others)
	fmt.Fprintln(w, "network:\n  mode: internal")
	if len(reached) > 0 {
		fmt.Fprintln(w, "  allow:")
	}
	for _, entry := range reached {
		fmt.Fprintf(w, "  - %q\n", entry)
	}
	comment := func(title string, texts []string) {
		if len(texts) > 0 {
			fmt.Fprintln(w, "  # "+title)
		}
		for _, text := range texts {
			fmt.Fprintln(w, "  # - "+strconv.QuoteToGraphic(text))
		}
	}
	comment("denied:", slices.DeleteFunc(denied, func(entry string) bool { return slices.Contains(reached, entry) }))
	comment("no entry can name:", others)
}

// entries returns the entries of a policy for a destination: its names, or else its address.
func entries(d *agboxv1.NetworkDestination) []string {
	if len(d.GetNames()) == 0 || d.GetAddress() == "" || d.GetPort() == 0 {
		return []string{netentry.Destination(d)}
	}
	var list []string
	for _, name := range d.GetNames() {
		list = append(list, net.JoinHostPort(name, strconv.FormatUint(uint64(d.GetPort()), 10))+"/"+d.GetProtocol())
	}
	return list
}
