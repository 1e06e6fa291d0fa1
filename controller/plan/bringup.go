package plan

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// bringUp is the way of a sandbox to READY: of a create, of a resume, and of the restart after the engine's or the
// host's death.
type bringUp struct {
	r   Record
	w   World
	pol Policy
	now time.Time
	// creates: what is missing is made; otherwise it fails the attempt.
	creates bool
	reason  Reason
	// life is that under which this attempt has started what it has: what died under another one did not die by itself.
	life *storev1.EngineRun

	mine     parts
	progress *storev1.Progress
	p        Plan
}

func newBringUp(r Record, w World, pol Policy, now time.Time, reason Reason) *bringUp {
	b := &bringUp{r: r, w: w, pol: pol, now: now, reason: reason, life: r.EngineRun, progress: copyOf(r.Progress)}
	var extra []Step
	b.mine, extra = split(r, w)
	b.p.add(extra...)
	return b
}

func copyOf(p *storev1.Progress) *storev1.Progress {
	if p == nil {
		return &storev1.Progress{}
	}
	return proto.CloneOf(p)
}

// create continues a create from wherever it is.
func create(r Record, w World, pol Policy, now time.Time) Plan {
	b := newBringUp(r, w, pol, now, BecauseCreate)
	b.creates, b.p.Waiting = true, "creating"
	if !r.Preparing {
		b.p.Before.Events = append(b.p.Before.Events, preparing())
	} else if pol.FailInterruptedCreate && r.RequestedAt.Before(pol.Started) {
		return b.fail(CodeCreateFailed, "the daemon restarted during the create")
	}
	b.takenByDeath()
	b.dropUnattached()
	b.materials()
	return b.run()
}

// resume starts what there is.
func resume(r Record, w World, pol Policy, now time.Time) Plan {
	b := newBringUp(r, w, pol, now, BecauseResume)
	b.p.Waiting = "resuming"
	if what := b.missing(); what != "" {
		return b.fail(CodeResumeFailed, what)
	}
	b.takenByDeath()
	return b.run()
}

// restart starts everything again after a death of the engine or the host. That it is under way, and for which life, is on
// record first: so a restart that was cut off is still told of, and a service that dies by itself meanwhile is told from
// one that the death took along. What was started for an earlier life counts no more.
func restart(r Record, w World, pol Policy, now time.Time, cause fate) Plan {
	b := newBringUp(r, w, pol, now, causeReasons[cause])
	b.p.Waiting = "restarting"
	if what := b.missing(); what != "" {
		return b.fail(CodeContainerNotRunning, what)
	}
	if b.life = b.progress.GetRestartRun(); b.life == nil || b.diedWithEngine() {
		b.beginRestart()
	}
	p, up := b.start()
	if !up {
		return p
	}
	b.progress.RestartRun = nil
	return b.up(phase(agboxv1.EventType_SANDBOX_RESTARTED, agboxv1.SandboxState_SANDBOX_STATE_READY, string(cause)))
}

// takenByDeath forgets that parts were started that a death of the engine or the host took along. It counts for all of them
// at once: the first that is started again is on record with the new life, in which the others have not been started.
func (b *bringUp) takenByDeath() {
	if b.diedWithEngine() {
		b.forgetStarts()
	}
}

// forgetStarts forgets that what is dead was started. What is alive has outlived the engine: a primary that was released in
// this run of its own is not looked at as one that has just begun.
func (b *bringUp) forgetStarts() {
	if c := b.mine.primary; c == nil || !c.Alive() {
		b.progress.PrimaryStarted, b.progress.Released = false, false
	}
	for name, s := range b.progress.Services {
		if c := b.mine.services[name]; c == nil || !c.Alive() {
			s.Started = false
		}
	}
}

var causeReasons = map[fate]Reason{engineDeath: BecauseEngineDeath, hostDeath: BecauseHostDeath}

func (b *bringUp) beginRestart() {
	b.life, b.progress.RestartRun = b.w.Run, b.w.Run
	b.forgetStarts()
	b.p.Before.Progress = proto.CloneOf(b.progress)
}

// missing names a part that only a create makes, or is empty. An optional service that is missing is its own failure.
func (b *bringUp) missing() string {
	switch {
	case b.mine.primary == nil:
		return "the primary container is missing"
	case b.mine.network == nil:
		return "the network of the sandbox is missing"
	}
	for _, s := range b.r.Wanted.Services {
		if s.Required && b.mine.services[s.Name] == nil {
			return fmt.Sprintf("the container of the required service %s is missing", s.Name)
		}
	}
	return ""
}

// dropUnattached removes containers whose network went while the sandbox was being made: they can't be attached again,
// and nobody has used them yet.
func (b *bringUp) dropUnattached() {
	for _, c := range b.mine.offNetwork(b.r.Wanted) {
		b.p.add(Step{Kind: RemoveContainer, ID: c.ID, Service: c.Service, Reason: BecauseNetworkGone})
		if c.Service == "" {
			b.mine.primary = nil
			continue
		}
		delete(b.mine.services, c.Service)
		b.madeAnew(c.Service)
	}
}

// madeAnew: what was started of a service counts no more, nor that it failed. That it was ready was told, and is not told again.
func (b *bringUp) madeAnew(service string) {
	sp := b.progress.Services[service]
	if sp.GetMark() == storev1.ServiceMark_SERVICE_MARK_FAILED {
		delete(b.progress.Services, service)
	} else if sp != nil {
		sp.Started = false
	}
}

// materials are what containers are made of. Images come first and all at once: they take longest, and a spec with a bad
// one leaves nothing behind.
func (b *bringUp) materials() {
	b.p.add(Step{Kind: MakeInputs, Reason: b.reason})
	for _, s := range b.r.Wanted.Services {
		if s.Required && b.mine.services[s.Name] == nil {
			b.p.add(Step{Kind: EnsureImage, Service: s.Name, Reason: b.reason})
		}
	}
	if b.mine.primary == nil {
		b.p.add(Step{Kind: EnsureImage, Reason: b.reason})
	}
	if b.mine.network == nil {
		b.p.add(Step{Kind: CreateNetwork, Reason: b.reason})
	}
}

// run starts everything and reports READY when nothing is left to wait for.
func (b *bringUp) run() Plan {
	if p, up := b.start(); !up {
		return p
	}
	return b.up(&agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_READY, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
	})
}

// start brings up the required services one after another, each to health, then the primary, then runs the hooks. up is
// false while there is something to wait for, or the attempt has failed.
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
		b.p.add(Step{Kind: CreateService, ID: b.mine.networkID(), Service: s.Name, Reason: b.reason})
		return b.startService(s, Step{Kind: StartContainer, Service: s.Name, Reason: b.reason}), false
	case c.neverStarted(), !c.Alive() && !sp.GetStarted():
		return b.startService(s, Step{Kind: StartContainer, ID: c.ID, Service: s.Name, Reason: b.reason}), false
	case !c.Alive(), c.Health == verdictBad:
		return b.serviceFailed(s, serviceFall(*c)), false
	case !s.well(*c):
		left := c.StartedAt.Add(s.HealthWait).Sub(b.now)
		if left <= 0 && c.Inspected {
			return b.serviceFailed(s, notHealthyInTime(s, *c)), false
		}
		b.p.Waiting = fmt.Sprintf("waiting for service %s to be healthy", s.Name)
		b.p.soonest(max(left, time.Millisecond))
		return b.record(), false
	}
	if sp.GetMark() != storev1.ServiceMark_SERVICE_MARK_READY {
		b.p.Before.Events = append(b.p.Before.Events, serviceReady(s.Name, b.r.State))
		b.mark(s.Name, &storev1.ServiceProgress{
			Mark: storev1.ServiceMark_SERVICE_MARK_READY, Started: true, Restarts: sp.GetRestarts(),
		})
		b.p.Before.Progress = proto.CloneOf(b.progress) // what is started below is not started yet
	}
	return Plan{}, true
}

// startService ends the pass with the start of a service: the next service waits for its health.
func (b *bringUp) startService(s Service, start Step) Plan {
	b.p.add(start)
	sp := proto.CloneOf(progressOf(b.progress, s.Name))
	sp.Started = true
	b.mark(s.Name, sp)
	b.p.Waiting = fmt.Sprintf("waiting for service %s to be healthy", s.Name)
	b.p.soonest(s.HealthWait)
	return b.record()
}

// record has what this pass starts noted as started, and as released.
func (b *bringUp) record() Plan {
	if b.startsSomething() {
		return b.recordStart()
	}
	return b.p
}

// recordStart notes what is started, in the life in which it was.
func (b *bringUp) recordStart() Plan {
	b.p.After.Progress = proto.CloneOf(b.progress)
	if b.reason == BecauseCreate || b.reason == BecauseResume {
		b.p.After.EngineRun = b.w.Run
	}
	return b.p
}

func (b *bringUp) startsSomething() bool {
	for _, s := range b.p.Steps {
		if s.Kind == StartContainer || s.Kind == Release {
			return true
		}
	}
	return false
}

func (b *bringUp) mark(service string, sp *storev1.ServiceProgress) {
	if b.progress.Services == nil {
		b.progress.Services = map[string]*storev1.ServiceProgress{}
	}
	b.progress.Services[service] = sp
}

// diedWithEngine reports that the engine or the host has died since this attempt started what it has.
func (b *bringUp) diedWithEngine() bool {
	last := compare(b.life, b.w.Run)
	return last == engineDeath || last == hostDeath
}

// primary starts the primary.
func (b *bringUp) primary() (p Plan, up bool) {
	c, id := b.mine.primary, ""
	if c == nil {
		if b.hooksBegun() {
			return b.fail(CodeCreateFailed, "the primary container, or its network, went after hooks had run in it"), false
		}
		b.anotherPrimary()
		b.p.add(Step{Kind: CreatePrimary, ID: b.mine.networkID(), Reason: b.reason})
	} else {
		id = c.ID
	}
	switch {
	case b.creates && b.r.Wanted.Copies && !b.progress.GetCopied():
		return b.copies(id), false
	case c == nil, c.neverStarted(), !c.Alive() && !b.progress.GetPrimaryStarted():
		b.p.add(Step{Kind: StartContainer, ID: id, Reason: b.reason})
	case !c.Alive():
		_, text := death(*c, b.r.ExecOOM, "the primary container")
		return b.fail(FailureCode(b.r), text), false
	}
	if b.r.Wanted.Main && !b.progress.GetPrimaryStarted() {
		// That it was started is on record before its main process may run: one that ends while nobody looks is not run again.
		b.progress.PrimaryStarted = true
		return b.recordStart(), false
	}
	if !b.progress.GetReleased() {
		b.release(id)
	}
	b.progress.PrimaryStarted, b.progress.Released = true, true
	return Plan{}, true
}

// release lets the primary begin, once for each start: before that nothing of the sandbox's own runs in it.
func (b *bringUp) release(id string) {
	b.p.add(Step{Kind: Release, ID: id, Reason: b.reason})
}

// anotherPrimary: what was done to a primary that is gone counts no more. That is on record before the next one is made, or
// a pass that finds it would take it for one that has its files.
func (b *bringUp) anotherPrimary() {
	b.progress.PrimaryStarted, b.progress.Released = false, false
	if b.progress.GetCopied() {
		b.progress.Copied = false
		b.p.Before.Progress = proto.CloneOf(b.progress)
	}
}

// hooksBegun reports that a hook may have run. None is run again, and another primary would lack what they did.
func (b *bringUp) hooksBegun() bool {
	return b.progress.GetHooksDone() > 0 || b.w.Hook != nil && b.w.Hook.Phase != NotStarted
}

// copies brings the files in. That they are there is on record before the start: afterwards they are the sandbox's own, and
// a copy that is repeated would undo its work.
func (b *bringUp) copies(id string) Plan {
	b.p.add(Step{Kind: CopyFiles, ID: id, Reason: b.reason})
	b.progress.Copied = true
	b.p.After.Progress = proto.CloneOf(b.progress)
	b.p.Waiting = "copying files"
	return b.p
}

// up ends the attempt.
func (b *bringUp) up(done *agboxv1.SandboxEvent) Plan {
	b.p = b.p.with(done)
	b.p.Asides = append(b.p.Asides, b.optional()...)
	b.p.After.EngineRun = b.w.Run
	if len(b.r.Wanted.Services) > 0 || b.reason == BecauseEngineDeath || b.reason == BecauseHostDeath {
		b.p.After.Progress = proto.CloneOf(b.progress)
	}
	b.p.Waiting = ""
	b.p.applyLimits(b.r, b.mine)
	return b.p
}

func (b *bringUp) fail(code, message string) Plan {
	steps := b.p.Steps[:0:0]
	for _, s := range b.p.Steps {
		if s.Reason == BecauseNotInSpec {
			steps = append(steps, s)
		}
	}
	return Plan{Before: b.p.Before, Steps: steps, Waiting: b.p.Waiting}.with(failed(code, message))
}

// serviceFailed fails the attempt with the fall of a required service.
func (b *bringUp) serviceFailed(s Service, f fall) Plan {
	p := b.fail(FailureCode(b.r), fmt.Sprintf("required service %s: %s", s.Name, f.text))
	p.After.Events = append([]*agboxv1.SandboxEvent{serviceFailed(s.Name, b.r.State, f)}, p.After.Events...)
	b.mark(s.Name, f.progress(progressOf(b.progress, s.Name)))
	p.After.Progress = b.progress
	return p
}
