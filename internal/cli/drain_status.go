package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

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
	text := plural(int(s.GetBusy()), "busy agent")
	if names := s.GetBusyAgents(); len(names) > 0 {
		text += " (" + clip(oneLine(strings.Join(names, ", ")), toolWidth) + ")"
	}
	return text
}

// drainSum is "3 parked, 1 saved, 1 not saved".
func drainSum(s *agboxv1.DrainStatus) string {
	text := fmt.Sprintf("%d parked", s.GetParked())
	if s.GetSaved() > 0 {
		text += fmt.Sprintf(", %d saved", s.GetSaved())
	}
	if s.GetNotSaved() > 0 {
		text += fmt.Sprintf(", %d not saved", s.GetNotSaved())
	}
	return text
}

func (a *app) drainStatusCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show whether the daemon is draining, and its progress", Args: noArgs}
	output := outputFlag(cmd, "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.conn().DrainStatus(cmd.Context())
		switch {
		case err != nil:
			return err
		case *output == "json":
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
	a.factIf("Reason", oneLine(s.GetReason()))
	a.fact("Since", when(s.GetStartedAt()))
	if s.GetWaitUntil() != nil && s.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_WAITING {
		at := s.GetWaitUntil().AsTime()
		a.fact("Wait until", fmt.Sprintf("%s (%s)", at.Local().Format(time.RFC3339), ahead(at, time.Now())))
	}
	a.fact("Agents", fmt.Sprintf("%d busy, %s", s.GetBusy(), drainSum(s)))
	a.factIf("Busy", oneLine(strings.Join(s.GetBusyAgents(), ", ")))
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
