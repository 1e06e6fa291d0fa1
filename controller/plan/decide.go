package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/naming"
)

// Bounds of waiting.
const (
	// unclearRetry: a container that is being removed or restarted is looked at again after this.
	unclearRetry = time.Second
	// lifeRetry: an engine that does not tell of its life is asked again after this.
	lifeRetry = 10 * time.Second
	// stopMargin is added to the cancel grace before a stop no longer waits for its execs to record their ends.
	stopMargin = 30 * time.Second
)

// Decide returns what to do for one sandbox.
//
//	gone                 remove containers, networks: orphans, audited; its files went before it was gone
//	never reserved       report, touch nothing
//	delete               end execs, remove containers, networks, files; DELETED only when all is gone
//	failed by a create   remove containers, networks, inputs; record, events and logs stay
//	failed otherwise     end execs, stop what runs; keep it
//	stop                 end execs, stop what runs; STOPPED; a missing primary fails the sandbox
//	run, being created   inputs, image, network, primary, start: whatever is missing, in that order
//	run, being resumed   a missing part fails the sandbox; otherwise start what is stopped
//	run, ready           nothing; the engine's death restarts; a primary or network that is gone otherwise fails it
//	any live one         objects outside the spec are removed, audited
//	being removed        no verdict, look again; the same for one that restarts and is to run
func Decide(r Record, w World, p Policy, now time.Time) Plan {
	switch r.Standing {
	case Gone:
		return sweep(w, p)
	case NeverReserved:
		return Plan{Unknown: len(w.Containers)+len(w.Networks) > 0}
	case Unreadable:
		return Plan{Waiting: "the record is damaged; see the daemon's log"}
	}
	if slices.ContainsFunc(w.Containers, r.unclear) {
		return Plan{Next: unclearRetry, Waiting: "waiting for the engine to settle a container"}
	}
	switch {
	case r.Desired == storev1.RunState_RUN_STATE_DELETE:
		return remove(r, w)
	case r.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED:
		return afterFailure(r, w)
	case r.Desired == storev1.RunState_RUN_STATE_STOP:
		return stop(r, w, p, now)
	case r.State == agboxv1.SandboxState_SANDBOX_STATE_READY:
		return keepRunning(r, w, p, now)
	case r.Attempt == storev1.Attempt_ATTEMPT_RESUME:
		return resume(r, w)
	}
	return create(r, w, p)
}

// unclear reports a container on which nothing may be decided now. One that restarts for ever must still stop and go.
func (r Record) unclear(c Container) bool {
	runs := r.Desired == storev1.RunState_RUN_STATE_RUN && r.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED
	return c.Status == "removing" || c.Status == "restarting" && runs
}

// sweep removes what a deleted sandbox left behind, such as a create that the engine had swallowed and ran late.
func sweep(w World, p Policy) Plan {
	steps := removals(w, "orphan")
	if p.KeepOrphans && len(steps) > 0 {
		return Plan{Waiting: fmt.Sprintf("%d orphans kept: runtime.orphan_sweep is dry-run", len(steps))}
	}
	return Plan{Steps: steps}
}

func remove(r Record, w World) Plan {
	p := Plan{Waiting: "deleting"}
	if r.ActiveExecs > 0 {
		p.Steps = append(p.Steps, Step{Kind: CancelExecs})
	}
	p.Steps = append(p.Steps, removals(w, "")...)
	if r.ActiveExecs > 0 {
		p.Waiting = "waiting for execs to end"
		return p // their ends are read from files that go last; each end adds the key
	}
	p.Steps = append(p.Steps, Step{Kind: RemoveFiles})
	p.Events = []*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETED,
		agboxv1.SandboxState_SANDBOX_STATE_DELETED, r.Reason)}
	return p
}

func afterFailure(r Record, w World) Plan {
	p := Plan{}
	if r.ActiveExecs > 0 {
		p.Steps = append(p.Steps, Step{Kind: CancelExecs})
	}
	if r.ErrorCode == CodeCreateFailed {
		p.Steps = append(p.Steps, removals(w, "")...)
		if w.Inputs {
			p.Steps = append(p.Steps, Step{Kind: RemoveInputs})
		}
		return p
	}
	mine, extra := split(r.ID, w)
	p.Steps = append(p.Steps, extra...)
	if mine.primary != nil && mine.primary.Alive() {
		p.Steps = append(p.Steps, stopUnlessStopping(w, *mine.primary)...)
	}
	return p
}

func stop(r Record, w World, pol Policy, now time.Time) Plan {
	mine, extra := split(r.ID, w)
	p := Plan{Steps: extra, Waiting: "stopping"}
	if patience := r.RequestedAt.Add(pol.CancelGrace + stopMargin).Sub(now); r.ActiveExecs > 0 {
		p.Steps = append(p.Steps, Step{Kind: CancelExecs})
		if patience > 0 && mine.primary != nil && mine.primary.Alive() {
			p.Waiting, p.Next = "waiting for execs to end", patience
			return p
		}
	}
	switch {
	case mine.primary == nil:
		return p.with(failed(CodeContainerMissing, "the primary container is missing"))
	case mine.primary.Alive():
		p.Steps = append(p.Steps, stopUnlessStopping(w, *mine.primary)...)
		return p
	case r.ActiveExecs > 0:
		p.Waiting = "waiting for execs to end"
		return p
	case w.Operation == StopContainer:
		return p // the engine is still at it, and would stop what a resume starts
	case r.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED:
		p.Waiting = ""
		return p
	}
	return p.with(phase(agboxv1.EventType_SANDBOX_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_STOPPED, r.Reason))
}

func keepRunning(r Record, w World, pol Policy, now time.Time) Plan {
	mine, extra := split(r.ID, w)
	p := Plan{Steps: extra}
	switch {
	case mine.primary == nil:
		return p.with(failed(CodeContainerMissing, "the primary container is missing"))
	case mine.network == nil:
		return p.with(failed(CodeNetworkMissing, "the network of the sandbox is missing"))
	case !mine.primary.Alive():
		return restartOrFail(p, r, w, pol, *mine.primary)
	}
	last := compare(r.EngineRun, w.Run)
	if last != sameLife && (last != unclearLife || w.Run.GetEngineStart() != "") {
		p.EngineRun = w.Run
	}
	if pol.IdleTTL > 0 && !r.IdleSince.IsZero() {
		p.Next = r.IdleSince.Add(pol.IdleTTL).Sub(now)
		if p.Next <= 0 {
			p.Next = 0
			p.Steps = append(p.Steps, Step{Kind: StopIdle})
		}
	}
	return p
}

// restartOrFail judges a primary that ended although it should run. It ended by the engine's or the host's death if
// either has died since the sandbox was last known to run: nobody saw the end, and the user did not ask for it.
func restartOrFail(p Plan, r Record, w World, pol Policy, primary Container) Plan {
	switch last := compare(r.EngineRun, w.Run); {
	case pol.FailOnEngineDeath:
	case last == unclearLife:
		p.Waiting, p.Next = "the primary ended, and the engine does not say whether it died with it", lifeRetry
		return p
	case last != sameLife:
		p.Steps = append(p.Steps, Step{Kind: StartContainer, ID: primary.ID})
		p.EngineRun = w.Run
		return p.with(phase(agboxv1.EventType_SANDBOX_RESTARTED, agboxv1.SandboxState_SANDBOX_STATE_READY, string(last)))
	}
	if primary.OOMKilled && primary.ExitCode == 137 && !r.ExecOOM {
		return p.with(failed(CodeContainerOOM, "the primary container was killed by the kernel for want of memory"))
	}
	return p.with(failed(CodeContainerDied, fmt.Sprintf("the primary container exited with code %d", primary.ExitCode)))
}

func resume(r Record, w World) Plan {
	mine, extra := split(r.ID, w)
	p := Plan{Steps: extra, Waiting: "resuming"}
	switch {
	case mine.primary == nil:
		return p.with(failed(CodeResumeFailed, "the primary container is missing"))
	case mine.network == nil:
		return p.with(failed(CodeResumeFailed, "the network of the sandbox is missing"))
	case !mine.primary.Alive():
		p.Steps = append(p.Steps, Step{Kind: StartContainer, ID: mine.primary.ID})
	}
	return p.ready(w)
}

func create(r Record, w World, pol Policy) Plan {
	p := Plan{Waiting: "creating"}
	if !r.Preparing {
		p.First = append(p.First, preparing())
	} else if pol.FailInterruptedCreate && r.RequestedAt.Before(pol.Started) {
		return p.with(failed(CodeCreateFailed, "the daemon restarted during the create"))
	}
	mine, extra := split(r.ID, w)
	p.Steps = append(p.Steps, extra...)
	if mine.primary != nil && mine.network == nil {
		// Its network went while it was being made: it can't be attached again, and nobody has used it yet.
		p.Steps = append(p.Steps, Step{Kind: RemoveContainer, ID: mine.primary.ID, Why: "its network is gone"})
		mine.primary = nil
	}
	p.Steps = append(p.Steps, Step{Kind: MakeInputs})
	if mine.primary == nil {
		p.Steps = append(p.Steps, Step{Kind: EnsureImage})
		if mine.network == nil {
			p.Steps = append(p.Steps, Step{Kind: CreateNetwork})
		}
		p.Steps = append(p.Steps, Step{Kind: CreatePrimary, ID: mine.networkID()}, Step{Kind: StartContainer})
	} else if !mine.primary.Alive() {
		p.Steps = append(p.Steps, Step{Kind: StartContainer, ID: mine.primary.ID})
	}
	return p.ready(w)
}

func (p Plan) with(events ...*agboxv1.SandboxEvent) Plan {
	p.Events = append(p.Events, events...)
	return p
}

func (p Plan) ready(w World) Plan {
	p.EngineRun = w.Run
	return p.with(&agboxv1.SandboxEvent{
		EventType:    agboxv1.EventType_SANDBOX_READY,
		SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
	})
}

// parts are the objects that belong to the spec.
type parts struct {
	primary *Container
	network *Network
}

func (m parts) networkID() string {
	if m.network == nil {
		return ""
	}
	return m.network.ID
}

// split tells the objects of the spec from the rest of what carries the sandbox's labels, and returns the steps that
// remove the rest. Of several networks the one that the primary is attached to stays, or else the oldest.
func split(id string, w World) (parts, []Step) {
	var mine parts
	var extra []Step
	for i, c := range w.Containers {
		if c.Component == naming.ComponentPrimary && c.Name == naming.Primary(id) && mine.primary == nil && c.Status != "dead" {
			mine.primary = &w.Containers[i]
			continue
		}
		extra = append(extra, Step{Kind: RemoveContainer, ID: c.ID, Why: "not part of the spec"})
	}
	mine.network = pickNetwork(mine.primary, w.Networks)
	for _, n := range w.Networks {
		if n.ID != mine.networkID() && (mine.network != nil || mine.primary == nil) {
			extra = append(extra, Step{Kind: RemoveNetwork, ID: n.ID, Why: "not part of the spec"})
		}
	}
	return mine, extra
}

func pickNetwork(primary *Container, networks []Network) *Network {
	oldestFirst := slices.SortedFunc(slices.Values(networks), func(a, b Network) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	for i := range oldestFirst {
		if primary == nil || slices.Contains(primary.NetworkIDs, oldestFirst[i].ID) {
			return &oldestFirst[i]
		}
	}
	return nil
}

// removals removes every container, then every network: a network in use can't go.
func removals(w World, why string) []Step {
	var steps []Step
	for _, c := range w.Containers {
		steps = append(steps, Step{Kind: RemoveContainer, ID: c.ID, Why: why})
	}
	for _, n := range w.Networks {
		steps = append(steps, Step{Kind: RemoveNetwork, ID: n.ID, Why: why})
	}
	return steps
}

func stopUnlessStopping(w World, c Container) []Step {
	if w.Operation == StopContainer {
		return nil // its end adds the key
	}
	return []Step{{Kind: StopContainer, ID: c.ID}}
}
