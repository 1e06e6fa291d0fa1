package plan

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execphase"
)

// start brings up the required services one after another, each until it is healthy, then the primary, then runs the hooks. up is false
// while there is something to wait for, or if the attempt has failed.
func (b *bringUp) start() (p Plan, up bool) {
	for _, s := range b.r.Wanted.Services {
		if !s.Required {
			continue
		}
		if p, up := b.required(s); !up {
			return p, false
		}
	}
	if p, up := b.primary(); !up {
		return p, false
	}
	return b.hooks()
}

// required brings up one service.
func (b *bringUp) required(s Service) (p Plan, up bool) {
	c, sp := b.mine.services[s.Name], progressOf(b.progress, s.Name)
	switch {
	case c == nil:
		b.p.add(Step{Kind: CreateService, ID: b.mine.network.ID, Service: s.Name, Reason: b.reason})
		return b.startService(s, ""), false
	case c.neverStarted(), !c.Alive() && !sp.GetStarted():
		return b.startService(s, c.ID), false
	case b.asBefore(s.Name, c):
		return Plan{}, true
	case !c.Alive(), c.Health == verdictBad:
		return b.serviceFailed(s, serviceFall(*c)), false
	case !s.well(*c):
		left := b.since(c.StartedAt).Add(s.HealthWait).Sub(b.now)
		if left <= 0 && c.Inspected {
			return b.serviceFailed(s, notHealthyInTime(s, *c)), false
		}
		b.p.Waiting = fmt.Sprintf("waiting for service %s to be healthy", s.Name)
		b.p.soonest(max(left, time.Millisecond))
		return b.record(), false
	}
	if sp.GetMark() != storev1.ServiceMark_SERVICE_MARK_READY {
		b.p.Before.Events = append(b.p.Before.Events, serviceReady(s.Name, b.r.State))
		b.mark(s.Name, wellProgress(sp))
		b.recordFirst() // the report must precede the starts below
	}
	return Plan{}, true
}

// startService ends the pass with the start of a service: the next service waits for its health.
func (b *bringUp) startService(s Service, id string) Plan {
	a := b.startAside(s, progressOf(b.progress, s.Name), id)
	b.p.add(a.Steps...)
	b.mark(s.Name, a.Then)
	b.p.Waiting = fmt.Sprintf("waiting for service %s to be healthy", s.Name)
	b.p.soonest(s.HealthWait)
	return b.record()
}

// record reports the containers that this pass starts or releases.
func (b *bringUp) record() Plan {
	if b.startsSomething() {
		return b.recordStart()
	}
	return b.p
}

// recordStart reports what is started, and the engine's life.
func (b *bringUp) recordStart() Plan {
	b.p.After.Progress = proto.CloneOf(b.progress)
	if b.reason == BecauseCreate || b.reason == BecauseResume {
		b.p.After.EngineRun = b.w.Run
	}
	return b.p
}

func (b *bringUp) startsSomething() bool {
	return slices.ContainsFunc(b.p.Steps, func(s Step) bool {
		return s.Kind == StartContainer || s.Kind == Release || s.Kind == UnpauseContainer
	})
}

func (b *bringUp) mark(service string, sp *storev1.ServiceProgress) {
	if b.progress.Services == nil {
		b.progress.Services = map[string]*storev1.ServiceProgress{}
	}
	b.progress.Services[service] = sp
}

// primary starts the primary.
func (b *bringUp) primary() (p Plan, up bool) {
	c, id := b.mine.primary, ""
	if c == nil {
		if b.hooksBegun() {
			return b.lost(CodeContainerMissing, "the primary container is missing, and hooks have run in it"), false
		}
		b.anotherPrimary()
		b.p.add(Step{Kind: CreatePrimary, ID: b.mine.network.ID, Reason: b.reason})
	} else {
		id = c.ID
	}
	switch {
	case b.creates && b.r.Wanted.Copies && !b.progress.GetCopied():
		return b.copies(id), false
	case c == nil, c.neverStarted(), !c.Alive() && !b.progress.GetPrimaryStarted():
		b.p.add(Step{Kind: StartContainer, ID: id, Reason: b.reason})
		b.progress.Released = false // each start takes the release back
	case !c.Alive() && b.hasRun():
		b.progress.Released = true
		return Plan{}, true
	case !c.Alive() && b.r.State == agboxv1.SandboxState_SANDBOX_STATE_READY && b.stoppedOutside(*c): // amid a restart
		return b.stopDead(), false
	case !c.Alive():
		_, text := b.death(*c)
		return b.fail(FailureCode(b.r), text), false
	}
	if b.r.Wanted.Main && !b.progress.GetPrimaryStarted() {
		// The start is recorded before the main process may run: one that ends unobserved does not run again.
		b.progress.PrimaryStarted = true
		return b.recordStart(), false
	}
	released := b.progress.GetReleased()
	if !released {
		b.release(id)
	}
	b.progress.PrimaryStarted, b.progress.Released = true, true
	return b.awaitStart(c, released)
}

// startWait bounds the time from the release of PID 1 to its report. A command that cannot be executed for so long waits for a disk.
const startWait = time.Minute

// awaitStart waits until PID 1 reports that it executed the main process, and that the user of commands exists. released: it was released
// by an earlier pass, so the report is of the present run.
func (b *bringUp) awaitStart(c *Container, released bool) (p Plan, up bool) {
	left := startWait
	switch {
	case c != nil && c.Inspected && !c.Reports:
		return Plan{}, true
	case !released:
	case b.w.Start.Error != "":
		return b.fail(FailureCode(b.r), b.startError()), false
	case b.w.Start.Reported:
		return Plan{}, true
	default:
		left = b.since(b.w.Start.Since).Add(startWait).Sub(b.now)
		if left <= 0 && c.Inspected {
			return b.fail(FailureCode(b.r), fmt.Sprintf("the sandbox did not start within %s", startWait)), false
		}
	}
	b.p.Waiting = "waiting for the sandbox to start"
	b.p.soonest(max(left, time.Millisecond))
	return b.record(), false
}

// hasRun reports whether a main process that has ended was executed in this run. Then the sandbox was READY, and the next pass judges the
// end: whether it is restarted must not depend on how quickly it ended.
func (b *bringUp) hasRun() bool {
	hooks := b.creates && b.w.Hook != nil
	return b.r.Wanted.Main && b.w.Start.Reported && b.w.Start.Error == "" && !hooks
}

// startError says why the sandbox could not start.
func (b *bringUp) startError() string {
	if b.r.Wanted.Main {
		return "the main process could not start: " + b.w.Start.Error
	}
	return b.w.Start.Error
}

// death describes the end of the primary.
func (b *bringUp) death(primary Container) (code, text string) {
	if b.w.Start.Error != "" {
		return CodeContainerDied, b.startError()
	}
	if b.stoppedOutside(primary) {
		return CodeContainerDied, "the primary container was stopped from outside"
	}
	return death(primary, b.w.ExecOOM, "the primary container")
}

// release lets PID 1 of the primary continue, once per start: before that nothing of the sandbox's own runs in it.
func (b *bringUp) release(id string) {
	b.p.add(Step{Kind: Release, ID: id, Reason: b.reason})
}

// anotherPrimary clears the progress of a primary that is gone. That is recorded before the next one is created; otherwise a later pass
// would find it and assume that it has its files.
func (b *bringUp) anotherPrimary() {
	b.progress.PrimaryStarted, b.progress.Released = false, false
	if b.progress.GetCopied() {
		b.progress.Copied = false
		b.p.Before.Progress = proto.CloneOf(b.progress)
	}
}

// hooksBegun reports that a hook may have run. No hook runs twice, and another primary would lack the effects of the hooks.
func (b *bringUp) hooksBegun() bool {
	return b.progress.GetHooksDone() > 0 || b.w.Hook != nil && b.w.Hook.Phase != execphase.NotStarted
}

// copies copies the files into the primary. The copy is recorded before the start: after it the files belong to the sandbox, and a repeated
// copy would undo its work.
func (b *bringUp) copies(id string) Plan {
	b.p.add(Step{Kind: CopyFiles, ID: id, Reason: b.reason})
	b.progress.Copied = true
	b.p.After.Progress = proto.CloneOf(b.progress)
	b.p.Waiting = "copying files"
	return b.p
}

// up completes the attempt.
func (b *bringUp) up(done *agboxv1.SandboxEvent) Plan {
	b.p = b.p.with(done)
	b.watchServices(false)
	b.p.After.EngineRun = b.w.Run
	if len(b.r.Wanted.Services) > 0 || b.progress.GetThawed() || b.reason == BecauseEngineDeath || b.reason == BecauseHostDeath {
		b.p.After.Progress = proto.CloneOf(b.progress)
	}
	b.p.Waiting = ""
	b.p.applyLimits(b.r, b.mine)
	return b.p
}

// lost fails the sandbox because a part is missing.
func (b *bringUp) lost(code, message string) Plan {
	return b.failing().judgedMissing(b.r, code, message)
}

func (b *bringUp) fail(code, message string) Plan { return b.failing().with(Failed(code, message)) }

// failing returns the steps that a pass still runs if the attempt fails: the removals of objects outside the spec.
func (b *bringUp) failing() Plan {
	steps := slices.DeleteFunc(slices.Clone(b.p.Steps), func(s Step) bool { return s.Reason != BecauseNotInSpec })
	return Plan{Before: b.p.Before, Steps: steps, Waiting: b.p.Waiting}
}

// serviceFailed fails the attempt with the failure of a required service.
func (b *bringUp) serviceFailed(s Service, f fall) Plan {
	p := b.fail(FailureCode(b.r), fmt.Sprintf("required service %s: %s", s.Name, f.text))
	p.After.Events = append([]*agboxv1.SandboxEvent{serviceFailed(s.Name, b.r.State, f)}, p.After.Events...)
	b.mark(s.Name, f.progress(progressOf(b.progress, s.Name)))
	p.After.Progress = b.progress
	return p
}
