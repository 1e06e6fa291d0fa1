package audit

import (
	"fmt"
	"slices"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// parts are the engine's objects of one sandbox.
type parts struct {
	primaries, services []container
	networks            []network
}

func (w world) of(id string) parts {
	var p parts
	for _, c := range w.containers {
		switch {
		case c.sandbox() != id:
		case c.primary():
			p.primaries = append(p.primaries, c)
		default:
			p.services = append(p.services, c)
		}
	}
	for _, n := range w.networks {
		if n.Labels[labelSandbox] == id {
			p.networks = append(p.networks, n)
		}
	}
	return p
}

func (p parts) containers() []container { return slices.Concat(p.primaries, p.services) }

// inDocker checks the objects of one sandbox against its state.
func (a *auditor) inDocker(sb *sandbox) {
	p := a.world.of(sb.id)
	state, want := sb.state(), sb.desired.GetRunState()
	if want == wantDelete && state != deleted || want == wantStop && (state == ready || state == paused) {
		return // the change is in progress
	}
	switch state {
	case ready:
		if want == wantRun {
			a.readyInDocker(sb, p)
		}
	case stopped:
		a.noneAlive(sb, p, "I15", "STOPPED", container.alive)
		a.primaryExists(note, sb, p, "I15", "STOPPED") // removed from outside, without an event of the engine
	case paused:
		if want == wantPause {
			a.pausedInDocker(sb, p)
		}
	case failed:
		if failedByCreate(sb) {
			a.nothingInDocker(sb, "I17", "its create FAILED", p)
		} else {
			a.noneAlive(sb, p, "I17", "FAILED", container.alive)
		}
	case deleted:
		a.nothingInDocker(sb, "I18", "it is DELETED", p)
	}
	a.withinSpec(sb, p)
	a.confinedInKernel(sb, state, p)
}

// restarts reports whether a policy may be about to restart an ended container.
func restarts(policy string) bool { return policy != "" && policy != "never" }

// readyInDocker checks I14.
func (a *auditor) readyInDocker(sb *sandbox, p parts) {
	sev := flux
	if restarts(sb.spec.GetRestartPolicy()) || sb.progress.GetRestartRun() != nil {
		sev = note
	}
	say := a.about(sev, "I14", sandboxName(sb), sb.stamp())
	if len(p.primaries) != 1 {
		say("it is READY and has %d primary containers", len(p.primaries))
		return
	}
	c := p.primaries[0]
	say.when(c.State != "running", "it is READY, and its primary is %s", c.State)
	say.when(!slices.ContainsFunc(p.networks, func(n network) bool { return c.attachedTo(n.ID) }),
		"it is READY, and its primary is not attached to its network (it has %d)", len(p.networks))
	for _, s := range slices.Concat(sb.spec.GetRequiredServices(), sb.spec.GetOptionalServices()) {
		a.serviceInDocker(sb, s, p)
	}
}

// serviceInDocker checks that a service that was last reported READY runs. A failed one is recorded with its event, and the sandbox stays READY.
func (a *auditor) serviceInDocker(sb *sandbox, s *agboxv1.ServiceSpec, p parts) {
	mark := sb.progress.GetServices()[s.GetName()].GetMark()
	if mark != storev1.ServiceMark_SERVICE_MARK_READY || restarts(s.GetRestartPolicy()) {
		return
	}
	for _, c := range p.services {
		if c.Labels[labelService] == s.GetName() && c.State == "running" {
			return
		}
	}
	a.report(flux, "I14", sandboxName(sb), sb.stamp(), "service %s is reported READY, and its container does not run", s.GetName())
}

// pausedInDocker checks I16.
func (a *auditor) pausedInDocker(sb *sandbox, p parts) {
	demoted := sb.desired.GetDemotedAt() != 0
	is := fmt.Sprintf("PAUSED (demoted: %t)", demoted)
	a.noneAlive(sb, p, "I16", is, func(c container) bool { return c.alive() && (!c.frozen() || demoted) })
	a.primaryExists(flux, sb, p, "I16", "PAUSED")
}

func (a *auditor) noneAlive(sb *sandbox, p parts, invariant, is string, alive func(container) bool) {
	for _, c := range p.containers() {
		a.about(flux, invariant, sandboxName(sb), sb.stamp()).when(alive(c), "it is %s, and container %s is %s", is, c.name(), c.State)
	}
}

func (a *auditor) primaryExists(sev severity, sb *sandbox, p parts, invariant, is string) {
	a.about(sev, invariant, sandboxName(sb), sb.stamp()).when(len(p.primaries) == 0, "it is %s, and its primary container is gone", is)
}

func failedByCreate(sb *sandbox) bool {
	for _, ev := range slices.Backward(sb.events) {
		if ev.GetEventType() == agboxv1.EventType_SANDBOX_FAILED {
			return ev.GetSandboxPhase().GetErrorCode() == "SANDBOX_CREATE_FAILED"
		}
	}
	return false
}

func (a *auditor) nothingInDocker(sb *sandbox, invariant, why string, p parts) {
	sev := a.leftover(sb.id)
	for _, c := range p.containers() {
		a.report(sev, invariant, sandboxName(sb), sb.stamp(), "%s, and container %s exists", why, c.name())
	}
	for _, n := range p.networks {
		a.report(sev, invariant, sandboxName(sb), sb.stamp(), "%s, and network %s exists", why, n.Name)
	}
}

// leftover is the severity of an object of a deleted sandbox. Objects of a sandbox that was deleted after a failure are not swept:
// the failure may have been a wrong verdict, so an operator decides.
func (a *auditor) leftover(id string) severity {
	if a.records.unswept[id] {
		return note
	}
	return flux
}

// withinSpec checks I19 for a live sandbox: one primary, one container per service, one network.
func (a *auditor) withinSpec(sb *sandbox, p parts) {
	if sb.gone() {
		return
	}
	say := a.about(flux, "I19", sandboxName(sb), sb.stamp())
	say.when(len(p.primaries) > 1 || len(p.networks) > 1, "it has %d primary containers and %d networks", len(p.primaries), len(p.networks))
	known := map[string]int{}
	for _, s := range slices.Concat(sb.spec.GetRequiredServices(), sb.spec.GetOptionalServices()) {
		known[s.GetName()] = 1
	}
	for _, c := range p.services {
		name := c.Labels[labelService]
		known[name]--
		say.when(known[name] < 0, "container %s is of service %q, which is not in its spec or has another container", c.name(), name)
	}
}

// objects checks I18 and I19 for objects whose sandbox has no record.
func (a *auditor) objects() {
	check := func(object, id string) {
		switch {
		case a.records.sandboxes[id] != nil && a.records.sandboxes[id].desired != nil: // checked with it
		case a.records.sandboxIDs[id]:
			a.report(a.leftover(id), "I18", object, "", "its sandbox %s is deleted", id)
		default:
			a.report(flux, "I19", object, "", "its sandbox %q is not on record", id)
		}
	}
	for _, c := range a.world.containers {
		check("container "+c.name(), c.sandbox())
	}
	for _, n := range a.world.networks {
		check("network "+n.Name, n.Labels[labelSandbox])
	}
}
