package plan

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// freezeTries is how many passes in a row may fail before a pause that the engine refuses becomes a stop: about 13 s of backoff. An engine
// with live-restore that was killed during a freeze may leave a container that cannot be frozen again. A pause that a timeout requested
// stays a pause: it must not exceed what the spec says.
const freezeTries = 8

// reasonDemoted is the reason of the SANDBOX_PAUSED of a demotion.
const reasonDemoted = "demoted"

// reasonTimeout is the reason of a change that a deadline requested.
const reasonTimeout = "timeout"

// pause freezes a sandbox and keeps it frozen until a bound demotes it; then it is stopped and stays PAUSED.
func pause(r Record, w World, pol Policy, now time.Time) Plan {
	mine, extra := split(r, w)
	p := Plan{Steps: extra, Waiting: "pausing"}
	switch {
	case mine.primary == nil:
		return p.judgedMissing(r, CodeContainerMissing, "the primary container is missing")
	case !r.DemotedAt.IsZero():
		return demoted(r, w, mine, p, pol, now)
	case !mine.primary.Alive():
		return diedFrozen(r, w, *mine.primary, p, now)
	case w.Committing && !r.Reached():
		p.Waiting = "pausing, once its snapshot is made" // the end of the commit thaws the primary, and enqueues the sandbox
		return p
	}
	if !w.Committing { // the commit must see that it was thawed
		p.freeze(r, mine)
	}
	switch last := compare(r.EngineRun, w.Run); {
	case len(p.Steps) > len(extra) && r.Tries >= freezeTries && r.Reason != reasonTimeout:
		p.Steps = extra
		p.add(Step{Kind: Demote, Reason: BecauseFreezeRefused})
		return p
	case !r.Reached():
		p.After.EngineRun, p.After.Progress = w.Run, frozenProgress(r.Progress, mine)
		return p.with(phase(agboxv1.EventType_SANDBOX_PAUSED, r.Reason))
	case last != sameLife && (last != unclearLife || w.Run.GetEngineStart() != ""):
		p.After.EngineRun = w.Run // it outlived the engine
	}
	p.Waiting = ""
	p.demoteInTime(r, pol, now)
	return p
}

// freeze adds the steps for what is not frozen yet, the primary first: it uses the services.
func (p *Plan) freeze(r Record, mine parts) {
	why := BecausePause
	if r.Reached() {
		why = BecauseOutside
	}
	for _, c := range mine.containers(r.Wanted) {
		if c.Alive() && !c.Frozen() {
			p.add(Step{Kind: PauseContainer, ID: c.ID, Service: c.Service, Reason: why})
		}
	}
}

// frozenProgress returns the progress of a frozen run: every live container was started, and no restart is under way. A primary that a
// restart has started may not be released yet; the resume releases it.
func frozenProgress(before *storev1.Progress, mine parts) *storev1.Progress {
	p := copyOf(before)
	p.Frozen, p.PrimaryStarted, p.Released, p.RestartRun = true, true, before.GetRestartRun() == nil, nil
	for name, sp := range p.Services {
		c := mine.services[name]
		sp.Started = c != nil && c.Alive()
	}
	return p
}

// demoteInTime demotes a sandbox that has been frozen for too long, or when too many are.
func (p *Plan) demoteInTime(r Record, pol Policy, now time.Time) {
	switch {
	case r.OverFrozen:
		p.add(Step{Kind: Demote, Reason: BecauseTooManyFrozen})
	case pol.FreezeDuration > 0 && p.due("freeze_duration", r.StateChangedAt.Add(pol.FreezeDuration).Sub(now), pol):
		p.add(Step{Kind: Demote, Reason: BecauseFrozenLong})
	}
}

// diedFrozen judges a primary that ended although it should be frozen. The engine's or the host's death leaves a stopped sandbox: its files
// are kept, its memory is lost. A primary that ended before it could be frozen, and that its policy would restart, is left as it is until
// the resume. Any other end fails the sandbox.
func diedFrozen(r Record, w World, primary Container, p Plan, now time.Time) Plan {
	_, comesBack := backOff(r.Wanted.Restart, primary, r.Progress.GetRestarts(), now)
	switch last := compare(r.EngineRun, w.Run); {
	case last == unclearLife:
		p.Waiting, p.Next = "the frozen primary ended, and the engine does not say whether it died with it", lifeRetry
		return p
	case last == sameLife && (&bringUp{r: r, w: w}).stoppedOutside(primary):
		p.add(Step{Kind: StopDead, Reason: BecauseStoppedOutside, Words: reasonStoppedOutside})
		return p
	case last == sameLife && comesBack && !r.Reached():
		p.add(Step{Kind: Demote, Reason: BecauseRestartPolicy})
		return p
	case last == sameLife:
		code, text := death(primary, w.ExecOOM, "the primary container")
		return p.with(Failed(code, text+" while the sandbox was paused"))
	default:
		p.add(Step{Kind: StopDead, Reason: causeReasons[last], Words: string(last)})
		return p
	}
}

// demoted stops a demoted sandbox. It stays PAUSED and keeps its identity and files.
func demoted(r Record, w World, mine parts, p Plan, pol Policy, now time.Time) Plan {
	p.Waiting = "stopping; it stays paused"
	if p.awaitExecs(r, mine, r.DemotedAt.Add(pol.CancelGrace+stopMargin).Sub(now), BecauseDemoted) {
		return p
	}
	switch down := p.halt(r, w, mine, BecauseDemoted); {
	case !down:
		return p
	case r.ActiveExecs > 0:
		p.Waiting = "waiting for execs to end"
		return p
	case !r.Reached() || r.Progress.GetStopping():
		p.After.Progress = &storev1.Progress{HooksDone: r.Progress.GetHooksDone()}
		return p.with(phase(agboxv1.EventType_SANDBOX_PAUSED, reasonDemoted))
	}
	p.Waiting = ""
	p.applyLimits(r, mine)
	if pol.StoppedGCAfter > 0 && !r.Kept() && p.due("stopped_gc_after", r.DemotedAt.Add(pol.StoppedGCAfter).Sub(now), pol) {
		p.add(Step{Kind: PauseCleanup, Reason: BecauseCleanup})
	}
	return p
}

// awaitExecs cancels the execs before their container is stopped, and waits for their ends as long as patience is left. It thaws frozen
// containers: a frozen process cannot handle a signal. It reports whether there is something to wait for.
func (p *Plan) awaitExecs(r Record, mine parts, patience time.Duration, why Reason) bool {
	if r.ActiveExecs == 0 && r.Turns == 0 {
		return false
	}
	p.add(Step{Kind: CancelExecs, Reason: why})
	if patience <= 0 || mine.primary == nil || !mine.primary.Alive() {
		return false
	}
	if mine.primary.Frozen() {
		p.add(Step{Kind: UnpauseContainer, ID: mine.primary.ID, Reason: why})
	}
	p.Waiting, p.Next = "waiting for execs to end", patience
	if r.Turns > 0 {
		p.Waiting = waitsForTurns
	}
	return true
}

// finishStop completes the stop of a demoted or failed sandbox that is being resumed. done is true when nothing runs any more, or when
// there is no such stop.
func (b *bringUp) finishStop() (p Plan, done bool) {
	if !b.progress.GetStopping() {
		return Plan{}, true
	}
	why := BecauseDemoted
	if b.r.Recover {
		why = BecauseFailed
	}
	if !b.p.halt(b.r, b.w, b.mine, why) {
		b.p.Waiting = "finishing the stop that was under way"
		return b.p, false
	}
	b.progress = &storev1.Progress{HooksDone: b.progress.GetHooksDone()}
	b.p.Before.Progress = proto.CloneOf(b.progress)
	return Plan{}, true
}

// thaw thaws frozen containers for the given reason, the services first. If the sandbox was frozen as a whole, every live container is
// thawed, even one that the engine does not report as frozen; a container that died meanwhile is started as if for the first time.
func (b *bringUp) thaw(why Reason) {
	frozen := b.progress.GetFrozen()
	all := b.mine.containers(b.r.Wanted)
	if len(all) > 1 && b.mine.primary != nil {
		all = append(all[1:len(all):len(all)], all[0])
	}
	for _, c := range all {
		if c.Alive() && (frozen || c.Frozen()) {
			b.p.add(Step{Kind: UnpauseContainer, ID: c.ID, Service: c.Service, Reason: why})
		}
	}
	if !frozen {
		return
	}
	b.forgetStarts()
	for name, sp := range b.progress.Services {
		if !sp.GetStarted() {
			delete(b.progress.Services, name)
		}
	}
	b.recordForgotten()
	b.progress.Frozen, b.progress.Thawed = false, true
}

// asBefore reports that a service of a thawed run counts for the resume as its last event says: the event of a later failure or recovery
// follows once the sandbox is READY.
func (b *bringUp) asBefore(service string, c *Container) bool {
	return b.progress.GetThawed() && c != nil && c.Alive() &&
		progressOf(b.progress, service).GetMark() != storev1.ServiceMark_SERVICE_MARK_UNSPECIFIED
}

// expired applies on_timeout to a sandbox whose timeout has passed; before that it requeues the sandbox for the deadline.
func expired(r Record, p Plan, pol Policy, now time.Time) Plan {
	if r.DeadlineAt.IsZero() || !p.due("timeout", r.DeadlineAt.Sub(now), pol) {
		return p
	}
	return Plan{
		Steps:   []Step{{Kind: Expire, Reason: BecauseTimeout}},
		Waiting: fmt.Sprintf("its timeout passed at %s", r.DeadlineAt.UTC().Format(time.RFC3339)),
	}
}
