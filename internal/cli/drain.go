package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/apis/quantity"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/termsafe"
	"github.com/agbox/agbox/internal/wait"
)

// drainLook is the pause between reads of a drain's status.
const drainLook = 500 * time.Millisecond

type drainOptions struct {
	mode, reason string
	wait         time.Duration
	exit         bool
}

func (a *app) drainCommand() *cobra.Command {
	var o drainOptions
	cmd := group("drain", "Let agents save their work before the daemon or the host ends", `Drain the daemon: it starts no agent and gives no prompt; prompts are still queued. Sandboxes and commands are not
affected.

  park    ends idle agents; busy ones get their nudge and have --wait to finish, then they are ended and their work is saved. All
          start again after "agbox undrain" or the next start of the daemon.
  detach  ends no agent: they keep working, and the next daemon adopts them.

Returns when all agents have ended. A drain lasts until "agbox undrain" or the end of the daemon, and an hour at most.

With --exit the daemon then ends with exit code 0. The systemd unit restarts failures only, so the daemon and the parked agents stay
stopped until "systemctl start agboxd" or the next boot.`)
	cmd.Example = "  agbox drain --reason \"kernel update\" && systemctl reboot\n  agbox drain --mode detach --exit\n  agbox drain status"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		req, err := o.request(cmd)
		if err != nil {
			return err
		}
		return a.drain(cmd.Context(), req)
	}
	cmd.Flags().StringVar(&o.mode, "mode", "park", "park or detach")
	cmd.Flags().Var(quantity.NewDurationFlag(&o.wait, 0), "wait", "how long busy agents may finish (default the daemon's drain.wait)")
	cmd.Flags().BoolVar(&o.exit, "exit", false, "end the daemon when the drain is done")
	cmd.Flags().StringVar(&o.reason, "reason", "", "the reason, which is recorded")
	completeFlag(cmd, "mode", "park", "detach")
	cmd.AddCommand(a.drainStatusCommand())
	return cmd
}

func (o drainOptions) request(cmd *cobra.Command) (*agboxv1.DrainRequest, error) {
	req := &agboxv1.DrainRequest{Reason: o.reason, Exit: o.exit}
	switch o.mode {
	case "park":
		req.Mode = agboxv1.DrainMode_DRAIN_MODE_PARK
	case "detach":
		req.Mode = agboxv1.DrainMode_DRAIN_MODE_DETACH
	default:
		return nil, usagef(cmd, "unknown mode %q; known: park, detach", o.mode)
	}
	if cmd.Flags().Changed("wait") {
		if o.mode == "detach" {
			return nil, usagef(cmd, "--wait is for --mode park: a detach does not wait")
		}
		req.Wait = durationpb.New(o.wait)
	}
	return req, nil
}

func (a *app) drain(ctx context.Context, req *agboxv1.DrainRequest) error {
	now, err := a.conn().Drain(ctx, req)
	if client.Reason(err) == "DRAIN_INVALID_STATE" {
		now, err = a.joinDrain(ctx, req, err)
	}
	if err != nil {
		return err
	}
	last, ended, err := a.watchDrain(ctx, a.namedBusy(ctx, now), req.GetExit())
	a.notes.clear()
	a.hint(textIf(isInterrupt(ctx), "the drain continues; \"agbox undrain\" ends it"))
	if err != nil {
		return err
	}
	if ended && last.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE {
		fmt.Fprintln(a.Out, "drained") // it ended after the last read, whose counts are incomplete
	} else {
		fmt.Fprintln(a.Out, drainDone(last))
	}
	if ended {
		fmt.Fprintln(a.Out, "agboxd has ended")
	}
	return nil
}

// joinDrain waits for the drain that already runs, if it has the requested mode.
func (a *app) joinDrain(ctx context.Context, req *agboxv1.DrainRequest, refused error) (*agboxv1.DrainStatus, error) {
	now, err := a.conn().DrainStatus(ctx)
	if err != nil {
		return nil, err
	}
	if !now.GetDraining() || now.GetMode() != req.GetMode() || req.GetExit() || req.GetWait() != nil {
		return nil, fmt.Errorf("%w; \"agbox drain status\" shows its progress, \"agbox undrain\" ends it", refused)
	}
	fmt.Fprintln(a.Err, "the daemon is already draining; waiting for that drain")
	return now, nil
}

// watchDrain shows the progress of the drain until it is done, and with exit until the daemon has ended. It returns the last status
// read.
func (a *app) watchDrain(ctx context.Context, now *agboxv1.DrainStatus, exit bool) (last *agboxv1.DrainStatus, ended bool, err error) {
	for {
		done := now.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_DONE
		switch {
		case !now.GetDraining():
			return now, false, fmt.Errorf("another client ended the drain: %s", drainSum(now))
		case done && !exit:
			return now, false, nil
		case done:
			a.notes.say("drained; waiting for agboxd to end")
		default:
			a.notes.say(drainText(now, time.Now()))
		}
		if err := wait.For(ctx, drainLook); err != nil {
			return now, false, err
		}
		next, err := a.conn().DrainStatus(ctx)
		if client.IsUnavailable(err) && exit {
			return now, true, nil
		}
		if err != nil {
			return now, false, err
		}
		if exit && done && !next.GetDraining() {
			return now, true, nil // the daemon has ended and was started again between two reads
		}
		now = a.namedBusy(ctx, next)
	}
}

// namedBusy replaces the IDs of busy agents by their names if it can read them.
func (a *app) namedBusy(ctx context.Context, s *agboxv1.DrainStatus) *agboxv1.DrainStatus {
	if len(s.GetBusyAgents()) == 0 {
		return s
	}
	all, err := a.agents(ctx)
	if err != nil {
		return s
	}
	for i, id := range s.GetBusyAgents() {
		if one := a.agentKind().withID(all, id); one != nil {
			s.BusyAgents[i] = agentName(one)
		}
	}
	return s
}

// drainDone is "drained: 3 parked"; a detach parks no agent.
func drainDone(s *agboxv1.DrainStatus) string {
	if s.GetMode() == agboxv1.DrainMode_DRAIN_MODE_DETACH {
		return "drained: agents keep working; the daemon can end"
	}
	return "drained: " + drainSum(s)
}

// drainText is "waiting for 2 busy agents (a, b), at most 9m30s; 3 parked".
func drainText(s *agboxv1.DrainStatus, now time.Time) string {
	if s.GetMode() == agboxv1.DrainMode_DRAIN_MODE_DETACH {
		return "detaching from the agents, which keep working"
	}
	if s.GetBusy() == 0 {
		return "ending idle agents; " + drainSum(s)
	}
	if s.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_SAVING {
		return fmt.Sprintf("saving the work of %s; %s", busyText(s), drainSum(s))
	}
	text := "waiting for " + busyText(s)
	if s.GetWaitUntil() != nil {
		text += ", at most " + span(max(s.GetWaitUntil().AsTime().Sub(now), 0))
	}
	return text + "; " + drainSum(s)
}

func busyText(s *agboxv1.DrainStatus) string {
	names := clip(termsafe.Line(strings.Join(s.GetBusyAgents(), ", ")), toolWidth)
	return plural(int(s.GetBusy()), "busy agent") + given(" (", names, ")")
}

// drainSum is "3 parked, 1 saved, 1 not saved".
func drainSum(s *agboxv1.DrainStatus) string {
	return fmt.Sprintf("%d parked", s.GetParked()) + textIf(s.GetSaved() > 0, fmt.Sprintf(", %d saved", s.GetSaved())) +
		textIf(s.GetNotSaved() > 0, fmt.Sprintf(", %d not saved", s.GetNotSaved()))
}

func (a *app) drainStatusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show whether the daemon is draining, and its progress", Args: noArgs}
	output := outputFlag(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.conn().DrainStatus(cmd.Context())
		switch {
		case err != nil:
			return err
		case output.given():
			return printLines(a.Out, []*agboxv1.DrainStatus{s})
		case !s.GetDraining():
			fmt.Fprintln(a.Out, "not draining")
			return nil
		}
		a.showDrain(a.namedBusy(cmd.Context(), s))
		return nil
	}
	return cmd
}

func (a *app) showDrain(s *agboxv1.DrainStatus) {
	a.fact("Mode", strings.ToLower(enum.Word(s.GetMode())))
	a.fact("Phase", enum.Word(s.GetPhase()))
	a.factIf("Reason", termsafe.Line(s.GetReason()))
	a.fact("Since", when(s.GetStartedAt()))
	if s.GetWaitUntil() != nil && s.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_WAITING {
		at := s.GetWaitUntil().AsTime()
		a.fact("Wait until", fmt.Sprintf("%s (%s)", at.Local().Format(time.RFC3339), ahead(at, time.Now())))
	}
	a.fact("Agents", fmt.Sprintf("%d busy, %s", s.GetBusy(), drainSum(s)))
	a.factIf("Busy", termsafe.Line(strings.Join(s.GetBusyAgents(), ", ")))
}

func (a *app) undrainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undrain", Short: "End a drain; parked agents start again", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changed, err := a.conn().Undrain(cmd.Context())
			switch {
			case err != nil:
				return err
			case changed:
				fmt.Fprintln(a.Out, "the drain has ended")
			default:
				fmt.Fprintln(a.Out, "not draining")
			}
			return nil
		},
	}
}
