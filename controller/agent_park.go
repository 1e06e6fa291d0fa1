package controller

import (
	"context"
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

// What a sandbox that is to stop does for its agents; part of the contract.
const (
	// parkGrace is what it waits for them in all, but for a process that does not heed TERM.
	parkGrace = 30 * time.Second
	// stopSave is how long saving the work of a turn may take.
	stopSave = 10 * time.Second
	// turnGrace is how long a turn may last, the interrupt before its end included.
	turnGrace = parkGrace - stopSave
)

// isEnding reports whether a sandbox is to stop or to go.
func isEnding(rec plan.Record) bool {
	return rec.Standing == plan.Live &&
		(rec.Desired == storev1.RunState_RUN_STATE_STOP || rec.Desired == storev1.RunState_RUN_STATE_DELETE)
}

// isAsleep reports whether a sandbox is frozen, or about to be.
func isAsleep(desired storev1.RunState, state agboxv1.SandboxState) bool {
	return desired == storev1.RunState_RUN_STATE_PAUSE || state == agboxv1.SandboxState_SANDBOX_STATE_PAUSED
}

// hasTurn reports whether an agent has a turn that the end of its sandbox waits for, or work of one that was cut off for it.
func (c *Controller) hasTurn(ctx context.Context, rec plan.Record, a store.Agent, at clock.Look) bool {
	return isEnding(rec) && !plan.IsDeath(rec.Reason) &&
		(a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY || isFrozen(a) || c.finishing(ctx, a, at) || c.isSaved(rec, a, at))
}

// isSaved reports whether a drain that was there first saves the work of an agent, for as long as the end of a sandbox may take.
func (c *Controller) isSaved(rec plan.Record, a store.Agent, at clock.Look) bool {
	return c.agentBoard.saves(a.ID) && at.Now.Sub(at.Began(rec.RequestedAt)) < parkGrace
}

// isFrozen reports whether the last turn of an agent was ended so that its work can be saved.
func isFrozen(a store.Agent) bool {
	return a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE && a.Desired.GetInterruptToSave()
}

// turnLeft is how long the turn of an agent may still last although its sandbox is to end; 0: no longer.
func (c *Controller) turnLeft(ctx context.Context, rec plan.Record, a store.Agent, at clock.Look) time.Duration {
	if !c.hasTurn(ctx, rec, a, at) {
		return 0
	}
	left := at.Began(rec.RequestedAt).Add(turnGrace).Sub(at.Now)
	return min(max(left, 0), turnGrace)
}

// turns is the number of agents whose turns the end of a sandbox waits for.
func (c *Controller) turns(ctx context.Context, rec plan.Record) (n int) {
	if !isEnding(rec) {
		return 0
	}
	at := c.clock.Look()
	for _, id := range c.cfg.Store.AgentsOf(rec.ID) {
		if a, err := c.cfg.Store.Agent(ctx, id); err == nil && c.hasTurn(ctx, rec, a, at) {
			n++
		}
	}
	return n
}

// finishing reports whether an agent that is IDLE may still do what it was told with its last turn, as a turn of its own: one has
// begun, or might in a moment. Nobody waits longer for it than for a turn.
func (c *Controller) finishing(ctx context.Context, a store.Agent, at clock.Look) bool {
	return c.settles(ctx, a, at) > 0
}

// settles is how long an agent may be finishing from now on if nothing more is heard of it; 0: it is not.
func (c *Controller) settles(ctx context.Context, a store.Agent, at clock.Look) time.Duration {
	settle := dialect.Settles(format(a.Spec))
	if settle == 0 || a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_IDLE || !wasNudged(a) {
		return 0
	}
	idle := max(at.Now.Sub(at.Began(clock.FromNanos(a.Status.GetStateChangedAt()))), 0)
	if pos, err := c.cfg.Store.AgentPosition(ctx, a.ID); err == nil && dialect.InTurn(pos.GetDecoder()) {
		settle = c.finishGrace()
	}
	return max(settle-idle, 0)
}

// finishGrace bounds a turn that nobody prompted.
func (c *Controller) finishGrace() time.Duration {
	if d := c.cfg.Store.Drain(); d != nil {
		return max(time.Duration(d.GetWaitUntil()-d.GetStartedAt()), turnGrace)
	}
	return turnGrace
}

// wasNudged reports whether the present process was ever told to finish.
func wasNudged(a store.Agent) bool {
	n := a.Status.GetIncarnation()
	return n > 0 && n == a.Status.GetNudgedIncarnation()
}

// nudged reports whether the present turn is to be told to finish.
func nudged(a store.Agent) bool {
	return a.Status.GetPromptId() != "" && a.Desired.GetNudgePromptId() == a.Status.GetPromptId()
}

// observePark finds out whether the process is to end although it is wanted, and what its turn gets before.
func (v *agentView) observePark(ctx context.Context, rec plan.Record, at clock.Look) {
	v.world.Ending, v.world.InTurn = isEnding(rec), v.hasTurn(ctx, rec, v.a, at)
	v.world.TurnLeft = v.turnLeft(ctx, rec, v.a, at)
	v.world.Finishing = v.settles(ctx, v.a, at)
	waits := v.world.TurnLeft > agentplan.InterruptGrace
	if d := v.cfg.Store.Drain(); d != nil {
		v.world.Draining = true
		v.world.Parking = d.GetMode() == agboxv1.DrainMode_DRAIN_MODE_PARK && !isAsleep(rec.Desired, rec.State)
		waits = waits || v.world.Parking && d.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_WAITING
	}
	told := v.a.Spec.GetNudge() == "" || nudged(v.a) || wantRun(v.a) == storev1.AgentRun_AGENT_RUN_DELETE // which takes no requests
	v.world.Nudge = waits && !told && v.a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY
}

// observeSave finds out how far the work of a turn is saved that the stop of its sandbox has cut off.
func (v *agentView) observeSave(ctx context.Context, rec plan.Record, at clock.Look) error {
	if v.world.Process != agentplan.Ended || !v.world.Cancelled || v.agentBoard.saves(v.a.ID) || !v.hasTurn(ctx, rec, v.a, at) || wantRun(v.a) == storev1.AgentRun_AGENT_RUN_STOP {
		return nil
	}
	if v.world.Lost || rec.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED || rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED {
		v.world.Save = agentplan.NotSaved
		return nil
	}
	end, err := v.lookHelper(v.saveHelper())
	if err != nil {
		return fmt.Errorf("look at its save command: %w", err)
	}
	v.world.Save = map[helperEnd]agentplan.Save{
		helperRuns: agentplan.SaveDue, helperDone: agentplan.Saved, helperMoot: agentplan.NoSave, helperFailed: agentplan.NotSaved,
	}[end]
	return nil
}

func wantRun(a store.Agent) storev1.AgentRun { return a.Desired.GetRun() }

// saveHelper is the save command, once for a request.
func (v *agentView) saveHelper() helper {
	return v.saves(v.a, fmt.Sprintf("stop %d", v.rec.RequestedAt.UnixNano()), stopSave)
}

// keep has the work saved; see observeSave.
func (v *agentView) keep() error { return v.startHelper(v.saveHelper()) }

// stopGoesOn has a sandbox looked at whose stop may have waited for this.
func (v *agentView) stopGoesOn() {
	if v.world.Ending {
		v.sandboxes.Add(v.a.SandboxID)
	}
}
