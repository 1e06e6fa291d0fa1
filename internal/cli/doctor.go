package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/judge"
	"github.com/agbox/agbox/internal/termsafe"
)

func (a *app) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [--attack NAME [--floods]]", SuggestFor: []string{"check", "status", "info", "health"}, Short: "Show what daemon, engine and kernel are, and cannot enforce", Args: noArgs,
		Long: `Show what the daemon, the Docker engine behind it and its kernel are, and what they cannot enforce: one line for each check, with what
follows for sandboxes and what to do about it. The first ones are those of /readyz.

  ok       nothing to do
  warning  a limit is not enforced, or something is weaker than it can be
  problem  the daemon cannot do its work

Exit code 1: there is a problem.

--attack runs a self-test inside a sandbox instead, as its user: it tries to reach the host, its network, metadata services and other sandboxes, and to
gain rights. It takes a few seconds, sends a packet to each of a dozen ports of these addresses, changes nothing, and leaves nothing behind.

--floods also tries to exceed the limits of the sandbox: processes, memory and disk, each for a moment, in which other commands of the sandbox may fail to
start a process, to write or to get memory. Limits that the sandbox does not have are not tried.

  held      nothing of it succeeded
  allowed   what succeeded is what the sandbox's spec allows
  untested  there was nothing to try
  HOLE      something succeeded that should not; exit code 1`,
		Example: "  agbox doctor\n  agbox doctor --attack web\n  agbox doctor --attack web --floods\n  agbox doctor -o json | jq -r 'select(.status != \"ok\") | .text'",
	}
	output := outputFlag(cmd, "json")
	name := cmd.Flags().String("attack", "", "test from inside this sandbox what it can reach and do")
	floods := cmd.Flags().Bool("floods", false, "with --attack: also try to exceed its limits of processes, memory and disk")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case cmd.Flags().Changed("attack"):
			return a.attack(cmd.Context(), *name, *floods, output)
		case *floods:
			return usagef(cmd, "--floods is about a sandbox: name it by --attack")
		}
		return a.doctor(cmd.Context(), output)
	}
	if err := cmd.RegisterFlagCompletionFunc("attack", a.sandboxKind().first); err != nil {
		panic(err) // the flag exists
	}
	return cmd
}

// attack runs the self-test of a sandbox and judges it by its spec.
func (a *app) attack(ctx context.Context, ref string, floods bool, o *output) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	if sb, err = a.conn().GetSandbox(ctx, sb.GetSandboxId()); err != nil { // with its spec
		return err
	}
	targets, err := a.conn().AttackTargets(ctx, sb.GetSandboxId())
	if err != nil {
		return err
	}
	spec, err := a.attackSpec(ctx, sb, targets)
	if err != nil {
		return err
	}
	var tried []attack.Flood
	if spec.Flooded = floods; floods {
		tried = spec.Floods()
	}
	printed, err := a.conn().Command(ctx, sb.GetSandboxId(), attack.Command(targets, tried)...).Output()
	if err != nil {
		err = fmt.Errorf("the self-test did not run in %s: %w", a.sandboxKind().label(sb), err)
		if floods {
			err = fmt.Errorf("%w; a sandbox that an earlier release made knows no --floods", err)
		}
		return err
	}
	results, err := attack.ParseResults(printed)
	if err != nil {
		return err
	}
	var checks []*agboxv1.DoctorCheck
	count := map[string]int{}
	for _, row := range judge.Judge(spec, results) {
		count[row.Verdict]++
		text := row.What
		if row.Why != "" {
			text += ": " + row.Why
		}
		checks = append(checks, &agboxv1.DoctorCheck{Name: row.Check, Status: row.Verdict, Text: text})
	}
	if o.given() {
		err = printLines(a.Out, checks)
	} else {
		a.printChecks(checks)
		a.hint(fmt.Sprintf("%s, %d allowed, %d held", plural(count[judge.Hole], "hole"), count[judge.Allowed], count[judge.Held]))
	}
	return errors.Join(err, outcomeOf(ctx, count[judge.Hole] > 0))
}

// attackSpec returns what a sandbox may do.
func (a *app) attackSpec(ctx context.Context, sb *agboxv1.SandboxHandle, targets []string) (judge.Spec, error) {
	user, _, _ := strings.Cut(sb.GetSpec().GetUser(), ":")
	s := judge.Spec{Mode: sb.GetNetworkMode(), Hardened: sb.GetSecurityProfile() == "hardened", Root: user == "root" || user == "0"}
	for _, l := range validate.Loosenings(sb.GetSpec().GetSecurity(), sb.GetSecurityProfile()) {
		s.Loosened = append(s.Loosened, l.Word)
	}
	if runtime := sb.GetSpec().GetRuntime(); runtime != "" && runtime != "runc" {
		s.Runtime = runtime
	}
	for _, text := range targets {
		if t, err := attack.ParseTarget(text); err == nil && t.Kind == attack.DNS { // others would have ended the self-test
			s.Servers = append(s.Servers, t.Address)
		}
	}
	for _, text := range sb.GetSpec().GetNetwork().GetAllow() {
		if e, err := netentry.Parse(text); err == nil { // the daemon has accepted it
			s.Allow = append(s.Allow, e)
		}
	}
	s.Pids, s.MemoryBytes = uint64(sb.GetSpec().GetPidsLimit()), uint64(sb.GetDefaultMemoryBytes())
	for to, text := range map[*uint64]string{&s.MemoryBytes: sb.GetSpec().GetMemoryLimit(), &s.DiskBytes: sb.GetSpec().GetDiskLimit()} {
		if n, err := quantity.Bytes(text); text != "" && err == nil { // the daemon has accepted it
			*to = uint64(n)
		}
	}
	if s.DiskBytes > 0 {
		checks, err := a.conn().Doctor(ctx)
		if err != nil {
			return s, err
		}
		s.DiskWatched = slices.ContainsFunc(checks, func(c *agboxv1.DoctorCheck) bool { return c.GetName() == attack.DiskLimit && c.GetStatus() != "ok" })
	}
	return s, nil
}

func (a *app) doctor(ctx context.Context, o *output) error {
	checks, err := a.conn().Doctor(ctx)
	if err != nil {
		return err
	}
	count := map[string]int{}
	for _, c := range checks {
		count[c.GetStatus()]++
	}
	if o.given() {
		err = printLines(a.Out, checks)
	} else {
		a.printChecks(checks)
		a.hint(plural(count["problem"], "problem") + ", " + plural(count["warning"], "warning"))
	}
	return errors.Join(err, outcomeOf(ctx, count["problem"] > 0))
}

// printChecks prints a table. On a terminal it wraps the texts: cut ones would not say what to do. Elsewhere each check is one line.
func (a *app) printChecks(checks []*agboxv1.DoctorCheck) {
	t := &table{}
	t.paintStates(a.Out, 1)
	t.add("CHECK", "STATUS", "TEXT")
	names, statuses := len("CHECK"), len("STATUS")
	for _, c := range checks {
		names, statuses = max(names, utf8.RuneCountInString(termsafe.Line(c.GetName()))), max(statuses, len(c.GetStatus()))
	}
	width := 0
	if terminal := terminalWidth(a.Out); terminal > 0 {
		width = max(terminal-names-statuses-4, minLast)
	}
	for _, c := range checks {
		name, status := termsafe.Line(c.GetName()), termsafe.Line(c.GetStatus())
		for _, line := range wrap(termsafe.Line(c.GetText()), width) {
			t.add(name, status, line)
			name, status = "", ""
		}
	}
	t.write(a.Out)
}

// wrap splits text between words into lines of at most width characters, or of one longer word. 0: one line.
func wrap(text string, width int) []string {
	if width == 0 {
		return []string{text}
	}
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
