package agent

import (
	"context"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/store"
)

// turnGrace bounds a turn when its sandbox stops, including the interrupt before its end. Then its work is saved, within plan.ParkGrace.
// It is part of the contract.
const turnGrace = plan.ParkGrace - stopSave

// isAsleep reports whether a sandbox is frozen, or about to be.
func isAsleep(desired storev1.RunState, state agboxv1.SandboxState) bool {
	return desired == storev1.RunState_RUN_STATE_PAUSE || state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED
}

// hasTurn reports whether an agent has a turn that the end of its sandbox waits for, or unsaved work of a turn that ended early for it.
func (o *Observer) hasTurn(ctx context.Context, rec plan.Record, a store.Agent, at clock.Reading) bool {
	return rec.Ending() && !plan.IsDeath(rec.Reason) && o.works(ctx, a, at)
}

// works reports whether an agent is in a turn, or has unsaved work of a turn that ended early.
func (o *Observer) works(ctx context.Context, a store.Agent, at clock.Reading) bool {
	return a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY || endedEarly(a) || o.settles(ctx, a, at) > 0
}

// endedEarly reports whether the last turn of an agent was interrupted to save its work, or got the default nudge, which cannot know how this
// agent's work is saved. Its work is saved once its process has ended.
func endedEarly(a store.Agent) bool {
	early := a.Desired.GetInterruptToSave() || a.Desired.GetDefaultNudge() != ""
	return a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && early
}

// turnLeft returns how long the turn of an agent may still run although its sandbox is ending; 0: no longer.
func (o *Observer) turnLeft(ctx context.Context, rec plan.Record, a store.Agent, at clock.Reading) time.Duration {
	if !o.hasTurn(ctx, rec, a, at) {
		return 0
	}
	left := at.Began(rec.RequestedAt).Add(turnGrace).Sub(at.Now)
	return min(max(left, 0), turnGrace)
}

// Turns returns the number of agents whose turns the end of a sandbox waits for, or the save of their programs' sessions.
func (o *Observer) Turns(ctx context.Context, rec plan.Record) (n int) {
	if !rec.Ending() {
		return 0
	}
	at := o.clock.Read()
	for _, id := range o.store.AgentsOf(rec.ID) {
		if a, err := o.store.Agent(ctx, id); err == nil && (o.hasTurn(ctx, rec, a, at) || o.unsaved(a)) {
			n++
		}
	}
	return n
}

// settles returns how long an IDLE agent may still act on a nudge of its last turn if it prints nothing more, as a turn without a prompt that
// has started or may start shortly; 0: no longer. The bound is that of a turn.
func (o *Observer) settles(ctx context.Context, a store.Agent, at clock.Reading) time.Duration {
	settle := dialect.Settles(format(a.Spec))
	if settle == 0 || a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_IDLE || !wasNudged(a) {
		return 0
	}
	idle := max(at.Now.Sub(at.Began(clock.FromNanos(a.Status.GetStateChangedAt()))), 0)
	if pos, err := o.store.AgentPosition(ctx, a.ID); err == nil && dialect.InTurn(pos.GetDecoder()) {
		settle = o.finishGrace()
	}
	return max(settle-idle, 0)
}

// finishGrace bounds a turn without a prompt.
func (o *Observer) finishGrace() time.Duration {
	if d := o.store.Drain(); d != nil {
		return max(time.Duration(d.GetWaitUntil()-d.GetStartedAt()), turnGrace)
	}
	return turnGrace
}

// wasNudged reports whether the present process was ever nudged to finish.
func wasNudged(a store.Agent) bool {
	n := a.Status.GetIncarnation()
	return n > 0 && n == a.Status.GetNudgedIncarnation()
}

// nudged reports whether the present turn must be nudged to finish.
func nudged(a store.Agent) bool {
	return a.Status.GetPromptId() != "" && a.Desired.GetNudgePromptId() == a.Status.GetPromptId()
}

// TurnLeft returns how long the turn that an exec is in may last although its sandbox is ending; 0: no longer, or the exec is not a process
// of an agent.
func (o *Observer) TurnLeft(ctx context.Context, execID string, rec plan.Record) time.Duration {
	agentID, n, ok := execid.OfAgent(execID)
	if !ok || !rec.Ending() {
		return 0
	}
	a, err := o.store.Agent(ctx, agentID)
	if err != nil || a.Status.GetIncarnation() != n {
		return 0
	}
	return o.turnLeft(ctx, rec, a, o.clock.Read())
}

// observePark checks whether the process must end although it should run, and how much time its turn has left.
func (v *Observation) observePark(ctx context.Context) {
	rec := v.Sandbox
	v.World.Ending, v.World.InTurn = rec.Ending(), v.o.hasTurn(ctx, rec, v.a, v.at)
	v.World.TurnEnds, v.World.TurnLeft = v.World.Ending, v.o.turnLeft(ctx, rec, v.a, v.at)
	v.cutOff = v.World.InTurn
	v.World.Finishing = v.o.settles(ctx, v.a, v.at)
	waits := v.World.TurnLeft > agentplan.InterruptGrace
	if d := v.o.store.Drain(); d != nil {
		v.World.Draining = true
		v.World.Parking = d.GetMode() == agboxv1.DrainMode_DRAIN_MODE_PARK && !isAsleep(rec.Desired, rec.State)
		waits = waits || v.World.Parking && d.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_WAITING
		switch {
		case !v.World.Parking:
		case d.GetPhase() >= agboxv1.DrainPhase_DRAIN_PHASE_SAVING: // also DONE: its process may have been frozen meanwhile
			v.cutOff = v.cutOff || v.o.works(ctx, v.a, v.at)
		default:
			v.cutOff = v.cutOff || endedEarly(v.a)
		}
		if v.savesFor(d) {
			left := max(agentplan.InterruptGrace-sinceSaving(d, v.at), 0)
			if v.World.TurnEnds {
				left = min(left, v.World.TurnLeft)
			}
			v.World.TurnEnds, v.World.TurnLeft = true, left
		}
	}
	if v.World.Terminated {
		v.cutOff = v.cutOff || v.o.works(ctx, v.a, v.at)
		left := min(max(v.at.Began(v.termAt).Add(agentplan.InterruptGrace).Sub(v.at.Now), 0), agentplan.InterruptGrace)
		if v.World.TurnEnds {
			left = min(left, v.World.TurnLeft)
		}
		v.World.TurnEnds, v.World.TurnLeft = true, left
	}
	needsNone := validate.Nudge(v.a.Spec) == "" || nudged(v.a) || v.a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE // a delete accepts no requests
	v.World.Nudge = waits && !needsNone && v.a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
}

// savesFor reports whether a drain, if there is one, saves the work of the agent's turn.
func (v *Observation) savesFor(d *storev1.DrainRecord) bool {
	return v.World.Parking && d.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_SAVING
}
