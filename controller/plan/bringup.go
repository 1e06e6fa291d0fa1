package plan

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// bringUp computes the next steps of a sandbox towards READY: of a create, of a resume, or of the restart after the engine's or the host's
// death.
type bringUp struct {
	r   Record
	w   World
	pol Policy
	now time.Time
	// creates: missing parts are created; otherwise a missing part fails the attempt.
	creates bool
	reason  Reason
	// life is the engine's life in which this attempt started its containers: a container that died in another life did not end on its own.
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

// create continues a create from its present point.
func create(r Record, w World, pol Policy, now time.Time) Plan {
	if r.Namesake != "" {
		return Plan{Next: unclearRetry, Waiting: fmt.Sprintf("waiting for sandbox %s, which had the name before, to be removed: it has the volumes", r.Namesake)}
	}
	b := newBringUp(r, w, pol, now, BecauseCreate)
	b.creates, b.p.Waiting = true, "creating"
	if !r.Preparing {
		b.p.Before.Events = append(b.p.Before.Events, preparing())
	} else if pol.FailInterruptedCreate && r.RequestedAt.Before(pol.Started) {
		return b.fail(CodeCreateFailed, "the daemon restarted during the create")
	}
	b.clearDeadStarts()
	b.thaw(b.reason)
	b.materials()
	b.reconnect()
	return b.run()
}

// resume starts the existing containers.
func resume(r Record, w World, pol Policy, now time.Time) Plan {
	b := newBringUp(r, w, pol, now, BecauseResume)
	b.p.Waiting = "resuming"
	if r.Recover && len(w.Stopping) > 0 { // stops of the failure still run, and would end the containers that this resume starts
		b.p.Waiting = "waiting for a stop to end"
		return b.p
	}
	if p, done := b.finishStop(); !done {
		return p
	}
	if what := b.missing(); what != "" {
		return b.lost(CodeResumeFailed, what)
	}
	if b.mine.network.ID == "" {
		b.p.add(Step{Kind: CreateNetwork, Reason: b.reason})
	}
	b.clearDeadStarts()
	b.thaw(b.reason)
	b.reconnect()
	return b.run()
}

// maxClockSkew is the largest tolerated difference between adjacent clock readings; a larger one means that the clock was set back.
const maxClockSkew = time.Minute

// since returns t, or the last jump of the clock or return of the engine if that was later or if t lies in the future.
func (b *bringUp) since(t time.Time) time.Time {
	late := b.pol.AwakeSince
	if b.pol.EngineSince.After(late) && !b.pol.EngineSince.After(b.now) {
		late = b.pol.EngineSince
	}
	if late.After(t) || t.Sub(b.now) > maxClockSkew {
		return late
	}
	return t
}

// restart starts all containers again after a death of the engine or the host. The restart and the life it is for are recorded first: so an
// interrupted restart still gets its event, and a service that ends on its own meanwhile is distinguished from one that the death ended.
// Starts in an earlier life no longer count.
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
	return b.up(phase(agboxv1.EventType_SANDBOX_RESTARTED, string(cause)))
}

// diedWithEngine reports that the engine or the host has died since this attempt started its containers.
func (b *bringUp) diedWithEngine() bool {
	last := compare(b.life, b.w.Run)
	return last == engineDeath || last == hostDeath
}

// clearDeadStarts clears the starts of the parts that a death of the engine or the host ended. It clears all of them at once: the first part
// that is started again records the new life, in which the others have not been started.
func (b *bringUp) clearDeadStarts() {
	if b.diedWithEngine() {
		b.forgetStarts()
		b.recordForgotten()
	}
}

// recordForgotten records the cleared starts before anything is started again. Otherwise the pass after an interrupted one would find
// running parts and take them for the earlier ones, which were released and healthy.
func (b *bringUp) recordForgotten() {
	if !proto.Equal(b.progress, copyOf(b.r.Progress)) {
		b.recordFirst()
	}
}

// recordFirst records the progress before the steps run: a frozen container counts as frozen until then. If the report of the starts and of
// their engine life was too late, that life is recorded here.
func (b *bringUp) recordFirst() {
	if b.life == nil {
		b.p.Before.EngineRun = b.w.Run
	}
	b.p.Before.Progress = proto.CloneOf(b.progress)
	b.p.Before.Progress.Frozen = b.r.Progress.GetFrozen()
}

// forgetStarts clears the starts of dead parts. A part that is alive has outlived the engine: a primary that was released in this run is
// not checked as if it had just started. A dead part starts over and was not thawed, so the pass waits for its health.
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

// missing names a missing part that only a create makes; empty: none is missing. A missing optional service is a failure of its own.
func (b *bringUp) missing() string {
	switch {
	case b.mine.primary == nil:
		return "the primary container is missing"
	case b.mine.network.ID == "" && !b.r.Recover:
		return "the network of the sandbox is missing"
	}
	for _, s := range b.r.Wanted.Services {
		if s.Required && b.mine.services[s.Name] == nil {
			return fmt.Sprintf("the container of the required service %s is missing", s.Name)
		}
	}
	return ""
}

// reconnect attaches disconnected containers to the sandbox's network, or to the one that this pass creates.
func (b *bringUp) reconnect() {
	for _, c := range b.mine.offNetwork(b.r.Wanted) {
		b.p.add(Step{Kind: ConnectNetwork, ID: c.ID, Network: b.mine.network.ID, Service: c.Service, Reason: BecauseDisconnected})
	}
}

// materials adds the steps for what containers need before they are created. All images come first: they take longest, and a spec with an
// invalid image leaves nothing behind.
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
	if b.mine.network.ID == "" {
		b.p.add(Step{Kind: CreateNetwork, Reason: b.reason})
	}
}

// run starts the sandbox and reports READY when nothing is left to wait for.
func (b *bringUp) run() Plan {
	if p, up := b.start(); !up {
		return p
	}
	return b.up(&agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_SANDBOX_READY, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
	})
}
