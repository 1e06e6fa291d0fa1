package plan

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// keepRunning decides about a READY sandbox.
func keepRunning(r Record, w World, pol Policy, now time.Time) Plan {
	b := newBringUp(r, w, pol, now, BecauseCreate)
	if r.Attempt == storev1.Attempt_ATTEMPT_RESUME {
		b.reason = BecauseResume
	}
	switch {
	case b.mine.primary == nil:
		return b.lost(CodeContainerMissing, "the primary container is missing")
	case b.mine.network.ID == "":
		return b.lost(CodeNetworkMissing, "the network of the sandbox is missing")
	case !b.mine.primary.Alive():
		return b.ended()
	}
	last := compare(r.EngineRun, w.Run)
	died := last == engineDeath || last == hostDeath
	switch {
	case died && (r.Progress.GetRestartRun() != nil || b.lostServices() && !pol.FailOnEngineDeath):
		return restart(r, w, pol, now, last) // the pass was cut off before the event, or the primary was started from outside
	case r.Progress.GetRestartRun() != nil:
		return b.broughtBack()
	}
	if !w.Committing {
		b.thaw(BecauseOutside)
	}
	b.reconnect()
	if last != sameLife && (last != unclearLife || w.Run.GetEngineStart() != "") {
		b.p.After.EngineRun = w.Run
	}
	b.watchServices(true)
	b.p.applyLimits(r, b.mine)
	if pol.IdleTTL > 0 && !r.IdleSince.IsZero() && b.p.due("idle_ttl", r.IdleSince.Add(pol.IdleTTL).Sub(now), pol) {
		b.p.add(Step{Kind: StopIdle, Reason: BecauseIdle})
	}
	return b.p
}

// lostServices reports that a service has ended that was healthy when the sandbox was last known to run.
func (b *bringUp) lostServices() bool {
	for _, s := range b.r.Wanted.Services {
		c := b.mine.services[s.Name]
		if c != nil && !c.Alive() && progressOf(b.progress, s.Name).GetMark() == storev1.ServiceMark_SERVICE_MARK_READY {
			return true
		}
	}
	return false
}

// ended judges a primary that ended although it should run. It ended by the engine's or the host's death if either has died since the
// sandbox was last known to run: the end was not observed, and the user did not ask for it.
func (b *bringUp) ended() Plan {
	switch last := compare(b.r.EngineRun, b.w.Run); {
	case b.pol.FailOnEngineDeath:
	case last == unclearLife:
		b.p.Waiting, b.p.Next = "the primary ended, and the engine does not say whether it died with it", lifeRetry
		return b.p
	case last != sameLife:
		return restart(b.r, b.w, b.pol, b.now, last)
	}
	primary := *b.mine.primary
	if b.stoppedOutside(primary) {
		return b.stopDead()
	}
	wait, ok := backOff(b.r.Wanted.Restart, primary, b.progress.GetRestarts(), b.now)
	code, text := b.death(primary)
	if !ok {
		return b.fail(code, text)
	}
	if wait > 0 {
		b.p.Waiting = fmt.Sprintf("it is restarted in %s: %s", wait.Round(time.Second), text)
		b.p.soonest(wait)
		return b.p
	}
	if b.progress.GetRestartRun() == nil { // so an interrupted restart still gets its event
		b.progress.RestartRun = b.w.Run
		b.progress.RestartEnd = &storev1.ContainerEnd{ExitCode: int32(primary.ExitCode), OomKilled: code == CodeContainerOOM, Message: text}
		b.p.Before.Progress = proto.CloneOf(b.progress)
	}
	b.p.add(Step{Kind: StartContainer, ID: primary.ID, Reason: BecauseRestartPolicy})
	return b.broughtBack()
}

// stopDead records a READY sandbox as stopped whose primary was stopped from outside.
func (b *bringUp) stopDead() Plan {
	b.p.add(Step{Kind: StopDead, Reason: BecauseStoppedOutside, Words: reasonStoppedOutside})
	return b.p
}

// IsOutside reports whether a reason is a stop that agboxd did not request.
func IsOutside(reason string) bool { return reason == reasonStoppedOutside }

// reasonStoppedOutside is the reason of a stop that agboxd did not request.
const reasonStoppedOutside = "stopped_from_outside"

// stoppedOutside reports an orderly end that this daemon did not request, such as docker stop: a TERM to PID 1. Without a main process PID
// 1 ends for no other reason; an older shim leaves no trace of the TERM, but its exit code shows it.
func (b *bringUp) stoppedOutside(primary Container) bool {
	orderly := primary.ExitCode == 0 || primary.ExitCode == exitTerminated
	return primary.Inspected && (b.w.Terminated && !primary.OOMKilled || orderly && !b.r.Wanted.Main && !b.w.Start.Main)
}

// exitTerminated is the exit code of a process that TERM ended.
const exitTerminated = 128 + 15

// broughtBack records a restart by the primary's policy.
func (b *bringUp) broughtBack() Plan {
	b.reason = BecauseRestartPolicy
	b.release(b.mine.primary.ID)
	restarted := phase(agboxv1.EventType_SANDBOX_RESTARTED, "restart_policy")
	if end := b.progress.GetRestartEnd(); end != nil {
		d := restarted.GetSandboxPhase()
		d.ExitCode, d.OomKilled, d.EndMessage = end.GetExitCode(), end.GetOomKilled(), end.GetMessage()
	}
	b.progress.RestartRun, b.progress.RestartEnd, b.progress.PrimaryStarted, b.progress.Released = nil, nil, true, true
	b.progress.Restarts = nextRestart(*b.mine.primary, b.progress.GetRestarts(), b.now)
	b.p.After = Report{EngineRun: b.w.Run, Progress: b.progress}
	return b.p.with(restarted)
}
