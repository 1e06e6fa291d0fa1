package plan

import (
	"cmp"
	"slices"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// parts are the objects that belong to the spec.
type parts struct {
	primary  *Container
	services map[string]*Container // by name; those that exist
	network  Network               // the zero value: none
}

// containers returns the existing primary and services, in the order of the spec.
func (m parts) containers(wanted Wanted) []Container {
	var all []Container
	if m.primary != nil {
		all = append(all, *m.primary)
	}
	for _, s := range wanted.Services {
		if c := m.services[s.Name]; c != nil {
			all = append(all, *c)
		}
	}
	return all
}

// split separates the objects of the spec from the other objects with the sandbox's labels, and returns the steps that remove the others.
// Surplus networks are removed only once it is certain which one stays.
func split(r Record, w World) (parts, []Step) {
	mine := parts{services: map[string]*Container{}}
	var extra []Step
	isPrimary := func(c *Container) bool { return c.Component == naming.ComponentPrimary }
	mine.primary = pick(r, w, r.Objects.GetPrimaryId(), naming.Primary(r.ID), isPrimary)
	for _, s := range r.Wanted.Services {
		isService := func(c *Container) bool { return c.Component == naming.ComponentService && c.Service == s.Name }
		if c := pick(r, w, r.Objects.GetServiceIds()[s.Name], naming.Service(r.ID, s.Name), isService); c != nil {
			mine.services[s.Name] = c
		}
	}
	attached := mine.containers(r.Wanted)
	for _, c := range w.Containers {
		if !slices.ContainsFunc(attached, func(m Container) bool { return m.ID == c.ID }) {
			extra = append(extra, Step{Kind: RemoveContainer, ID: c.ID, Reason: BecauseNotInSpec})
		}
	}
	var sure bool
	mine.network, sure = pickNetwork(r.Objects.GetNetworkId(), attached, w.Networks)
	for _, n := range w.Networks {
		if sure && n.ID != mine.network.ID {
			extra = append(extra, Step{Kind: RemoveNetwork, ID: n.ID, Reason: BecauseNotInSpec})
		}
	}
	return mine, extra
}

// pick chooses the container of one part of the spec among those with its labels: the recorded one, the one with its name, or, after a
// create, the only one: a user may have renamed it.
func pick(r Record, w World, id, name string, is func(*Container) bool) *Container {
	var only, named *Container
	n := 0
	for i := range w.Containers {
		c := &w.Containers[i]
		if c.Status == "dead" || !is(c) {
			continue
		}
		if c.ID == id {
			return c
		}
		if c.Name == name {
			named = c
		}
		only, n = c, n+1
	}
	switch {
	case named != nil:
		return named
	case n == 1 && id == "" && r.hadPrimary(w):
		return only
	}
	return nil
}

// pickNetwork chooses a network that a container is attached to, the primary's first, else the recorded one, else the oldest. sure is false
// for the oldest while a container is attached to a network that is not among them.
func pickNetwork(id string, attached []Container, networks []Network) (n Network, sure bool) {
	oldestFirst := slices.SortedFunc(slices.Values(networks), func(a, b Network) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	for _, c := range attached {
		for _, n := range oldestFirst {
			if slices.Contains(c.NetworkIDs, n.ID) {
				return n, true
			}
		}
	}
	for _, n := range oldestFirst {
		if n.ID == id {
			return n, true
		}
	}
	if len(oldestFirst) == 0 {
		return Network{}, false
	}
	elsewhere := func(c Container) bool { return len(c.NetworkIDs) > 0 }
	return oldestFirst[0], !slices.ContainsFunc(attached, elsewhere)
}

// offNetwork returns the containers that are not attached to the sandbox's network.
func (m parts) offNetwork(wanted Wanted) []Container {
	return slices.DeleteFunc(m.containers(wanted), func(c Container) bool {
		return m.network.ID != "" && slices.Contains(c.NetworkIDs, m.network.ID)
	})
}

// removals removes every container, then every network: the engine refuses to remove a network in use.
func removals(w World, why Reason) []Step {
	var steps []Step
	for _, c := range w.Containers {
		steps = append(steps, Step{Kind: RemoveContainer, ID: c.ID, Service: c.Service, Reason: why})
	}
	for _, n := range w.Networks {
		steps = append(steps, Step{Kind: RemoveNetwork, ID: n.ID, Reason: why})
	}
	return steps
}

// halt adds the stop of the primary, or, once it is down, of all services at the same time. down is true when nothing runs and the engine is
// stopping nothing: an older stop would end what a resume starts.
func (p *Plan) halt(r Record, w World, mine parts, why Reason) (down bool) {
	stop := func(c *Container) {
		if !slices.Contains(w.Stopping, c.ID) {
			p.add(Step{Kind: StopContainer, ID: c.ID, Service: c.Service, Reason: why})
		}
	}
	if mine.primary != nil && mine.primary.Alive() {
		stop(mine.primary)
		return false
	}
	down = len(w.Stopping) == 0
	for _, s := range r.Wanted.Services {
		if c := mine.services[s.Name]; c != nil && c.Alive() {
			down = false
			stop(c)
		}
	}
	return down
}

// applyLimits adds the pending limits of an update, for the containers that differ from the spec. A limit that the kernel refuses, such as
// less memory than is in use, blocks nothing else.
func (p *Plan) applyLimits(r Record, mine parts) {
	if !r.LimitsPending {
		return
	}
	a := Aside{LimitsApplied: true}
	update := func(c *Container, want Limits) {
		if c != nil && c.Inspected && c.Limits != want {
			a.Steps = append(a.Steps, Step{Kind: UpdateLimits, ID: c.ID, Service: c.Service, Limits: want, Reason: BecauseSpecChanged})
		}
	}
	update(mine.primary, r.Wanted.Limits)
	for _, s := range r.Wanted.Services {
		update(mine.services[s.Name], s.Limits)
	}
	p.Asides = append(p.Asides, a)
}

// progressOf returns the recorded progress of a service; never nil.
func progressOf(p *storev1.Progress, service string) *storev1.ServiceProgress {
	if sp := p.GetServices()[service]; sp != nil {
		return sp
	}
	return &storev1.ServiceProgress{}
}
