package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
)

const never = "never"

// notWhilePaused is the note for the deadline of a paused sandbox.
const notWhilePaused = ", not while it is PAUSED"

func (a *app) timeoutCommand() *cobra.Command {
	var onlyExtend bool
	cmd := &cobra.Command{
		Use: "timeout NAME (DURATION | TIME | never)", SuggestFor: []string{"ttl", "expire", "deadline", "extend"},
		Short: "Set when a sandbox ends",
		Long: `Set the deadline of a running sandbox. At the deadline it is stopped, paused or deleted, as on_timeout in its spec says. A
duration counts from now, a time is in RFC 3339, "never" removes the deadline. The deadline of a paused sandbox can be set too; it
takes effect when the sandbox is resumed. A stop removes it.`,
		Example:           "  agbox timeout web 2h\n  agbox timeout web 2026-12-01T10:00:00Z --only-extend\n  agbox timeout web never",
		ValidArgsFunction: perArgument(a.sandboxKind().names, cobra.FixedCompletions([]string{"1h", "8h", "24h", never}, cobra.ShellCompDirectiveNoFileComp)),
		Args:              exactly(2, "the name or ID of a sandbox and a duration, a time or \"never\""),
	}
	output := outputFlag(cmd, "json")
	cmd.Flags().BoolVar(&onlyExtend, "only-extend", false, "keep a later deadline, and keep \"never\"")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := parseTimeout(cmd, args[1])
		if err != nil {
			return err
		}
		t.OnlyExtend = onlyExtend
		return a.timeout(cmd.Context(), args[0], t, output.given())
	}
	return cmd
}

// parseTimeout reads "2h", "2026-12-01T10:00:00Z" or "never".
func parseTimeout(cmd *cobra.Command, text string) (client.Timeout, error) {
	if text == never {
		return client.Timeout{}, nil
	}
	if d, err := quantity.Duration(text); err == nil && d >= 0 {
		return client.Timeout{After: d}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return client.Timeout{At: at}, nil
	}
	return client.Timeout{}, usagef(cmd, "bad time %q: write a duration, such as 90m or 48h, a time with its zone, such as 2026-12-01T10:00:00Z, or \"never\"", text)
}

func (a *app) timeout(ctx context.Context, ref string, t client.Timeout, asJSON bool) error {
	sb, err := a.sandboxKind().resolve(ctx, ref)
	if err != nil {
		return err
	}
	deadline, changed, err := a.conn().SetSandboxTimeout(ctx, sb.GetSandboxId(), t)
	if err != nil {
		return a.sandboxRefused(ctx, "set the timeout of", sb, err)
	}
	if asJSON {
		return a.printTimeout(sb, deadline, changed)
	}
	waits := sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && !deadline.IsZero()
	fmt.Fprintf(a.Out, "sandbox/%s %s%s%s\n", nameOrID(sb), timeoutText(sb, deadline, time.Now()), textIf(!changed, ", as before"),
		textIf(waits, notWhilePaused))
	return nil
}

// timeoutText is "will stop at 2026-12-01T11:00:00+01:00, in 2h".
func timeoutText(sb *agboxv1.SandboxHandle, deadline, now time.Time) string {
	if deadline.IsZero() {
		return "has no end"
	}
	does := cmp.Or(endVerbs[sb.GetOnTimeout()], "will stop")
	return fmt.Sprintf("%s at %s, %s", does, deadline.Local().Format(time.RFC3339), ahead(deadline, now))
}

// endVerbs says what else than a stop happens at a deadline.
var endVerbs = map[string]string{"pause": "will be paused", "delete": "will be deleted"}

func (a *app) printTimeout(sb *agboxv1.SandboxHandle, deadline time.Time, changed bool) error {
	answer := struct {
		ID         string `json:"sandbox_id"`
		DeadlineAt string `json:"deadline_at,omitempty"`
		Changed    bool   `json:"changed"`
	}{ID: sb.GetSandboxId(), Changed: changed}
	if !deadline.IsZero() {
		answer.DeadlineAt = deadline.UTC().Format(time.RFC3339Nano)
	}
	return printLine(a.Out, answer)
}

// ahead is "in 1h23m", or "5m ago" for a time in the past.
func ahead(at, now time.Time) string {
	if d := at.Sub(now).Round(time.Second); d > 0 {
		return "in " + span(d)
	}
	return age(at, now) + " ago"
}

// span is "45s", "12m30s", "1h23m" or "3d4h": at most two units, without zero ones.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	const day = 24 * time.Hour
	switch {
	case d < time.Hour:
		return twoUnits(int(d/time.Minute), "m", int(d%time.Minute/time.Second), "s")
	case d < 2*day:
		return twoUnits(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "m")
	}
	return twoUnits(int(d/day), "d", int(d%day/time.Hour), "h")
}

func twoUnits(large int, largeUnit string, small int, smallUnit string) string {
	switch {
	case large == 0:
		return fmt.Sprint(small) + smallUnit
	case small == 0:
		return fmt.Sprint(large) + largeUnit
	}
	return fmt.Sprintf("%d%s%d%s", large, largeUnit, small, smallUnit)
}
