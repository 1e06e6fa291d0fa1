package agentplan

import (
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
)

// ended judges the end of a process that the record says is alive. All its output has been ingested, so a result that it printed counts.
func ended(r Record, w World, now time.Time) Plan {
	switch {
	case w.Process == NoProcess:
		return r.attention(transition(agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION, "nothing is known of its process"), now)
	case w.Save == SaveDue:
		return w.keep()
	case w.Unsaved:
		return saveSession()
	case w.Cancelled && r.Run == storev1.AgentRun_AGENT_RUN_STOP:
		p := transition(agboxv1.AgentTrigger_AGENT_TRIGGER_USER_TERMINATED, "stopped on request")
		p.Saved = w.Save
		return p
	case w.WithContainer && w.Terminated && !w.Cancelled && r.Run == storev1.AgentRun_AGENT_RUN_RUN:
		return Plan{Kind: Wait, Next: verdictLook, Waiting: "its container was stopped; whether by others or with the engine is not known yet"}
	case w.Cancelled, w.Stopped, r.Parked && (w.Draining || !w.Seen):
		p := transition(agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED, w.parkedFor(r))
		p.Parked, p.Saved = true, w.Save
		return p
	case w.Error != "":
		return r.crashed("its process did not start: "+w.Error, now)
	case w.Lost:
		return r.crashed("its supervisor or its container died, so the exit code of its process is unknown", now)
	case w.ExitCode == 0 && !r.failsAt0():
		return transition(agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_EXITED, "its process ended with code 0")
	case w.ExitCode == 0:
		return r.unresumed(w.strike(r.attention(transition(agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_EXITED, w.died(r)), now)))
	}
	return r.unresumed(w.strike(r.crashed(w.died(r), now)))
}

// strike marks an end in a turn that its prompt may have caused.
func (w World) strike(p Plan) Plan {
	p.Strike = !w.WithContainer
	return p
}

// keep starts the save of its work, or waits for its end.
func (w World) keep() Plan { return Plan{Kind: Keep, Next: helperLook, Waiting: "saving its work"} }

// parkedFor returns the reason of a requested end of a process that should run again.
func (w World) parkedFor(r Record) string {
	if w.Stopped || w.Terminated {
		text := "its container was stopped by others"
		if w.Terminated { // or by the engine's shutdown
			text = "its container was being stopped"
		}
		if r.State == agboxv1.AgentState_AGENT_STATE_BUSY {
			text += " before its turn had ended"
		}
		return text
	}
	if w.Destination != "" && !w.Ending && !w.Draining {
		return "it ended to move to another sandbox"
	}
	return "it ended with its sandbox, or for a drain"
}

// died returns the reason of an end that came too early.
func (w World) died(r Record) string {
	text := fmt.Sprintf("its process ended with code %d", w.ExitCode)
	switch r.State {
	case agboxv1.AgentState_AGENT_STATE_BUSY:
		text += " in its turn"
	case agboxv1.AgentState_AGENT_STATE_STARTING:
		text += " before it was ready"
	}
	for _, why := range []string{w.Killed, w.Words} {
		if why != "" {
			text += ": " + why
		}
	}
	return text
}

// failsAt0 reports whether an end with code 0 came too early, by the table of package agentstate.
func (r Record) failsAt0() bool {
	return r.State == agboxv1.AgentState_AGENT_STATE_BUSY || r.State == agboxv1.AgentState_AGENT_STATE_STARTING && !r.ReadyIsProcess
}

// unresumed marks the session as lost if a process ended before it was ready while it resumed a session: not every program reports that the
// session is the cause, and another resume would fail again.
func (r Record) unresumed(p Plan) Plan {
	p.SessionLost = r.Resumes && r.State == agboxv1.AgentState_AGENT_STATE_STARTING
	return p
}

// crashed records a crash; after the last attempt the agent needs attention.
func (r Record) crashed(why string, now time.Time) Plan {
	return r.attention(transition(agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED, why), now)
}

func (r Record) attention(p Plan, now time.Time) Plan {
	if r.Restart != plan.RestartNever && r.attempts(now) >= MaxAttempts {
		p.NeedsAttention = true
		p.Reason += fmt.Sprintf("; it failed to start %d times in a row and is not restarted automatically", MaxAttempts)
	}
	return p
}

// attempts returns the count at the end of a process: one that was ready for HealthyAfter resets the count.
func (r Record) attempts(end time.Time) uint32 {
	if !r.ReadyAt.IsZero() && end.Sub(r.ReadyAt) >= HealthyAfter {
		return 0
	}
	return r.Attempts
}
