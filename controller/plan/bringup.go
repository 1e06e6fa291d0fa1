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
	b.thaw(b.reason)
	b.materials()
	b.reconnect()
	return b.run()
}

// resume starts what there is.
func resume(r Record, w World, pol Policy, now time.Time) Plan {
	b := newBringUp(r, w, pol, now, BecauseResume)
	b.p.Waiting = "resuming"
	if r.Recover && len(w.Stopping) > 0 { // stops of the failure are still running, and would end the containers that this resume starts
		b.p.Waiting = "waiting for a stop to end"
		return b.p
	}
	if p, done := b.finishStop(); !done {
		return p
	}
	if what := b.missing(); what != "" {
		return b.lost(CodeResumeFailed, what)
	}
	if b.mine.network == nil {
		b.p.add(Step{Kind: CreateNetwork, Reason: b.reason})
	}
	b.takenByDeath()
	b.thaw(b.reason)
	b.reconnect()
	return b.run()
}

// aClockApart is how far apart two readings of one clock may be that were taken side by side; with more, it was set back between.
const aClockApart = time.Minute

// since is t, or when the clock last jumped if that was later, or t is of a clock that was ahead.
func (b *bringUp) since(t time.Time) time.Time {
	if b.pol.AwakeSince.After(t) || t.Sub(b.now) > aClockApart {
		return b.pol.AwakeSince
	}
	return t
}

// restart starts everything again after a death of the engine or the host. That it is under way, and for which life, is on
// record first: so a restart that was cut off is still told of, and a service that dies by itself meanwhile is told from
// one that the death took along. What was started for an earlier life counts no more.
func restart(r Record, w World, pol Policy, now time.Time, cause fate) Plan {
	b := newBringUp(r, w, pol, now, causeReasons[cause])
	b.p.Waiting = "restarting"
	if what := b.missing(); what != "" {
		return b.lost(CodeContainerNotRunning, what)
	}
	if b.life = b.progress.GetRestartRun(); b.life == nil || b.diedWithEngine() {
		b.beginRestart()
	}
	b.thaw(b.reason)
	b.reconnect()
	p, up := b.start()
	if !up {
		return p
	}
	b.progress.RestartRun = nil
	return b.up(phase(agboxv1.EventType_SANDBOX_RESTARTED, agboxv1.SandboxState_SANDBOX_STATE_READY, string(cause)))
}

// diedWithEngine reports that the engine or the host has died since this attempt started what it has.
func (b *bringUp) diedWithEngine() bool {
	last := compare(b.life, b.w.Run)
	return last == engineDeath || last == hostDeath
}

// takenByDeath forgets that parts were started that a death of the engine or the host took along. It counts for all of them
// at once: the first that is started again is on record with the new life, in which the others have not been started.
func (b *bringUp) takenByDeath() {
	if b.diedWithEngine() {
		b.forgetStarts()
		b.recordForgotten()
	}
}

// recordForgotten has what was forgotten on record before anything is started again: a pass that is cut off leaves parts that
// run, and the next one must not take them for those of before, which were released and healthy.
func (b *bringUp) recordForgotten() {
	if !proto.Equal(b.progress, copyOf(b.r.Progress)) {
		b.recordFirst()
	}
}

// recordFirst has the progress on record before the steps are taken: what is frozen is so until they are. The report that notes what
// was started, and in which life of the engine, may have been too late; then that life is recorded here.
func (b *bringUp) recordFirst() {
	if b.life == nil {
		b.p.Before.EngineRun = b.w.Run
	}
	b.p.Before.Progress = proto.CloneOf(b.progress)
	b.p.Before.Progress.Frozen = b.r.Progress.GetFrozen()
}

// forgetStarts forgets that what is dead was started. What is alive has outlived the engine: a primary that was released in
// this run of its own is not looked at as one that has just begun. What is dead starts over and was not thawed, so that its
// health is waited for.
func (b *bringUp) forgetStarts() {
	if c := b.mine.primary; c == nil || !c.Alive() {
		b.progress.PrimaryStarted, b.progress.Released, b.progress.Thawed = false, false, false
	}
	for name, s := range b.progress.Services {
		if c := b.mine.services[name]; c == nil || !c.Alive() {
			s.Started, b.progress.Thawed = false, false
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
	case b.mine.network == nil && !b.r.Recover:
		return "the network of the sandbox is missing"
	}
	for _, s := range b.r.Wanted.Services {
		if s.Required && b.mine.services[s.Name] == nil {
			return fmt.Sprintf("the container of the required service %s is missing", s.Name)
		}
	}
	return ""
}

// reconnect attaches disconnected containers to the sandbox's network, or to the one that this pass makes.
func (b *bringUp) reconnect() {
	for _, c := range b.mine.offNetwork(b.r.Wanted) {
		b.p.add(Step{Kind: ConnectNetwork, ID: c.ID, Network: b.mine.networkID(), Service: c.Service, Reason: BecauseDisconnected})
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
