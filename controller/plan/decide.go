package plan

import (
	"fmt"
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Bounds of waiting.
const (
	// unclearRetry is the requeue delay while a container is being removed or restarted.
	unclearRetry = time.Second
	// lifeRetry is the requeue delay while the engine does not report its life.
	lifeRetry = 10 * time.Second
	// stopMargin is added to the cancel grace; after both a stop no longer waits for its execs to record their ends.
	stopMargin = 30 * time.Second
	// ParkGrace is the total time that a sandbox waits for its agents before it stops, for turns and for saving their work, apart from a
	// process that ignores TERM. It is part of the contract.
	ParkGrace = 30 * time.Second
)

// Decide returns what to do for one sandbox.
//
//	gone                 remove containers, networks: orphans, audited; its files were removed before it was gone
//	never reserved       report, touch nothing
//	unswept              report, touch nothing
//	a part in doubt      no verdict, no step; observe again
//	delete, stop         an agent's turn has a while to finish first
//	delete               end execs, remove containers, networks, and files once every agent that outlives it has left;
//	                     DELETED only when all is gone; volumes only if the request says so, last
//	  by cleanup_ttl     of one that failed as missing: while a container of it runs, its objects and files are kept; DELETED
//	failed by a create   remove containers, networks, inputs; record, events and logs stay; delete it after cleanup_ttl
//	failed as missing    as before the failure, once the missing part is observed
//	failed otherwise     end execs, stop what runs; keep it; delete it after cleanup_ttl
//	stop                 end execs, stop the primary, then the services; STOPPED; a missing primary fails the sandbox;
//	                     delete it after cleanup_ttl
//	run, being created   inputs, images, network, required services one after another to health, primary, copies, start,
//	                     report of the start, hooks: the missing ones, in that order; one with volumes waits until no other sandbox of its name
//	                     is left
//	pause                freeze the primary, then the services; PAUSED; a primary that ended on its own fails it; one that the
//	                     engine's or the host's death ended leaves it stopped
//	  for long           demoted: stopped, but still PAUSED; delete it after pause.stopped_gc_after
//	run, being resumed   thaw what is frozen, services first; a missing part fails the sandbox; otherwise start what is
//	                     stopped, in the same order
//	run, ready           at its deadline what the spec says; thaw what was frozen from outside; otherwise nothing; the engine's
//	                     death restarts everything in the same order; a primary that ended on its own fails it, unless its
//	                     restart policy restarts it; a missing primary or network fails it
//	  its services       each failure and each recovery gets one event; a restart policy restarts what ended
//	  optional services  are created and started while the sandbox is created or ready; nothing waits for them
//	any live one         remove objects outside the spec, audited; apply changed limits
//	after a jump of the clock, no deadline is acted on for a while
//	being removed        no verdict, observe again; the same for a container that restarts and should run
//	whatever is done      the packet filter rules of a live one's networks as its policy says: before anything may run
func Decide(r Record, w World, p Policy, now time.Time) Plan {
	return confine(r, w, decide(r, w, p, now))
}

func decide(r Record, w World, p Policy, now time.Time) Plan {
	switch r.Standing {
	case Gone:
		return sweep(w, p)
	case NeverReserved, Unswept:
		return Plan{Unknown: len(w.Containers)+len(w.Networks) > 0}
	case Unreadable:
		return Plan{Waiting: "the record is damaged; see the daemon's log"}
	}
	if slices.ContainsFunc(w.Containers, func(c Container) bool { return r.unclear(c, now) }) {
		return Plan{Next: unclearRetry, Waiting: "waiting for the engine to settle a container"}
	}
	if w.Doubt != "" && Lacks(r, w) != "" {
		return Plan{Waiting: w.Doubt, Next: w.ObserveAgain, InDoubt: true}
	}
	switch {
	case r.Desired == storev1.RunState_RUN_STATE_DELETE:
		return remove(r, w, p, now)
	case r.Failed():
		return afterFailure(r, w, p, now)
	case r.Desired == storev1.RunState_RUN_STATE_STOP:
		return stop(r, w, p, now)
	case r.Desired == storev1.RunState_RUN_STATE_PAUSE:
		return pause(r, w, p, now)
	case r.Runs():
		return expired(r, keepRunning(r, w, p, now), p, now)
	case r.Attempt == storev1.Attempt_ATTEMPT_RESUME:
		return resume(r, w, p, now)
	}
	return create(r, w, p, now)
}

// unclear reports a container on which nothing may be decided now. A sandbox whose container restarts forever can still be stopped and
// deleted.
func (r Record) unclear(c Container, now time.Time) bool {
	return c.Status == "removing" || r.WantsRun() && (c.Status == "restarting" || c.mayBeOOM(now))
}

// sweep removes the objects of a deleted sandbox, such as those of a create that the engine ran late.
func sweep(w World, p Policy) Plan {
	steps := removals(w, BecauseOrphan)
	if p.KeepOrphans && len(steps) > 0 {
		return Plan{Waiting: fmt.Sprintf("%d orphans kept: runtime.orphan_sweep is dry-run", len(steps))}
	}
	return Plan{Steps: steps}
}

func remove(r Record, w World, pol Policy, now time.Time) Plan {
	p := Plan{Waiting: "deleting"}
	mine, _ := split(r, w)
	var patience time.Duration // other execs than those of agents in a turn are not waited for
	if r.Turns > 0 {
		patience = pol.stopPatience(r, now)
	}
	if p.awaitExecs(r, mine, patience, BecauseDelete) {
		return p
	}
	keep := r.deletedByMistake(w)
	if !keep {
		p.add(removals(w, BecauseDelete)...)
	}
	if r.ActiveExecs > 0 {
		p.Waiting = "waiting for execs to end"
		return p // their ends are read from files that are removed last; each end adds the key
	}
	if r.Leaving > 0 {
		p.Waiting = "waiting for its agents to leave; `agbox agent list` says what keeps them"
		return p // the agents' last output is in those files too
	}
	if !keep {
		p.add(Step{Kind: RemoveFiles, Reason: BecauseDelete})
		if r.RemoveVolumes {
			p.add(Step{Kind: RemoveVolumes, Reason: BecauseDelete})
		}
	}
	return p.with(phase(agboxv1.EventType_SANDBOX_DELETED, r.Reason))
}

// reasonCleanup is the reason of a delete that cleanup_ttl requested.
const reasonCleanup = "cleanup_ttl"

// deletedByMistake reports that cleanup_ttl deletes the sandbox because of a verdict of absence while a container of it runs. Then its
// objects and files are kept, and once it is DELETED they are Unswept.
func (r Record) deletedByMistake(w World) bool {
	return r.Reason == reasonCleanup && r.Progress.GetMissing() && slices.ContainsFunc(w.Containers, Container.Alive)
}

func afterFailure(r Record, w World, pol Policy, now time.Time) Plan {
	if p, ok := withdraw(r, w, pol, now); ok {
		return p
	}
	p := Plan{}
	if r.ActiveExecs > 0 {
		p.add(Step{Kind: CancelExecs, Reason: BecauseFailed})
	}
	if r.ErrorCode == CodeCreateFailed {
		p.add(removals(w, BecauseCreateFailed)...)
		if w.Inputs {
			p.add(Step{Kind: RemoveInputs, Reason: BecauseCreateFailed})
		}
		return p.cleanup(r, pol, now)
	}
	mine, extra := split(r, w)
	p.add(extra...)
	if !p.halt(r, w, mine, BecauseFailed) {
		return p
	}
	due := p.cleanup(r, pol, now)
	if mine.primary == nil && w.Doubt != "" && slices.ContainsFunc(due.Steps, func(s Step) bool { return s.Kind == Cleanup }) {
		p.Waiting, p.Next, p.InDoubt = w.Doubt, w.ObserveAgain, true
		return p
	}
	return due
}

// cleanup deletes a FAILED sandbox, or a STOPPED one without KeepStopped, after CleanupTTL.
func (p Plan) cleanup(r Record, pol Policy, now time.Time) Plan {
	if pol.CleanupTTL > 0 && !r.Kept() && p.due("cleanup_ttl", r.StateChangedAt.Add(pol.CleanupTTL).Sub(now), pol) {
		p.add(Step{Kind: Cleanup, Reason: BecauseCleanup})
	}
	return p
}

func stop(r Record, w World, pol Policy, now time.Time) Plan {
	mine, extra := split(r, w)
	p := Plan{Steps: extra, Waiting: "stopping"}
	if p.awaitExecs(r, mine, pol.stopPatience(r, now), stopReason(r)) {
		return p
	}
	if mine.primary == nil {
		if r.Reached() && !w.Removed { // nothing is lost by waiting until a resume needs it
			p.Waiting = "the engine does not show the primary container, and reported no removal of it"
			return p.cleanup(r, pol, now)
		}
		return p.judgedMissing(r, CodeContainerMissing, "the primary container is missing")
	}
	switch down := p.halt(r, w, mine, stopReason(r)); {
	case !down:
		return p
	case r.ActiveExecs > 0:
		p.Waiting = "waiting for execs to end"
		return p
	case r.Reached():
		p.Waiting = ""
		p.applyLimits(r, mine)
		return p.cleanup(r, pol, now)
	}
	return p.with(phase(agboxv1.EventType_SANDBOX_STOPPED, r.Reason))
}

// waitsForTurns is the status of a sandbox whose stop or delete waits for agents to finish their turns.
const waitsForTurns = "waiting for agents to finish"

// stopPatience is how much longer a stop waits for its execs to record their ends, and for agents to finish.
func (pol Policy) stopPatience(r Record, now time.Time) time.Duration {
	patience := pol.CancelGrace + stopMargin
	if r.Agents {
		patience += ParkGrace
	}
	return min(pol.Began(r.RequestedAt, now).Add(patience).Sub(now), patience)
}

func stopReason(r Record) Reason {
	switch {
	case r.Reached():
		return BecauseOutside
	case r.Reason == "idle_ttl":
		return BecauseIdle
	case r.Reason == "disk_limit":
		return BecauseDiskLimit
	case r.Reason == reasonTimeout:
		return BecauseTimeout
	}
	return BecauseStop
}

// due reports whether the plan acts on the deadline kind, of which left remains; if not, it sets the requeue for the deadline. After a jump
// of the clock no deadline is due until the clock is accepted.
func (p *Plan) due(kind string, left time.Duration, pol Policy) bool {
	switch {
	case left > 0:
		p.soonest(left)
		return false
	case pol.Hold > 0:
		p.soonest(pol.Hold)
		if p.Waiting == "" {
			p.Waiting = kind + " has passed, but the host's clock jumped or the host slept; nothing is done before runtime.clock_grace is over"
		}
		return false
	}
	return true
}

// Began returns the start of a wait that was recorded as t. While the clock is in doubt, or if t lies in the future, that is the last jump
// of the clock: a jump shortens no wait, and no wait lasts longer than its length counted from the jump.
func (pol Policy) Began(t, now time.Time) time.Time {
	if pol.Hold > 0 && pol.AwakeSince.After(t) || t.Sub(now) > maxClockSkew {
		return pol.AwakeSince
	}
	return t
}
