package sandbox

import (
	"maps"
	"slices"
	"sync"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/scratch"
	"github.com/agbox/agbox/dockerx"
)

// memory is what this daemon remembers of one sandbox; see package scratch.
type memory struct {
	// status is what the sandbox waits for, or its last error.
	status string
	// hook is the time since which this daemon waits for a hook. A new daemon restarts the wait: the wait stays bounded, and needs no trust
	// in what the container writes or in the host's clock.
	hook HookWait
	// proof is the time since which this daemon waits for the proof of a runtime; its index is the process ID of the container. It uses the
	// monotonic clock: a step of the wall clock refuses no runtime.
	proof HookWait
	// start is the time since which this daemon waits for the report of a start, in the same way.
	start HookWait
	// ports are the published ports that the last pass observed. Nil: not known.
	ports []*agboxv1.PublishedPort
	// oddities counts the unclassified errors since the last pass without error, by service; "" is the sandbox itself. Classified errors do
	// not count: an engine that is away or slow proves nothing about the sandbox.
	oddities map[string]int
}

// IsEmpty implements scratch.Record.
func (m memory) IsEmpty() bool {
	return m.status == "" && m.hook == HookWait{} && m.proof == HookWait{} && m.start == HookWait{} && m.ports == nil && len(m.oddities) == 0
}

// since returns when the wait for index started; zero: it has not.
func (w HookWait) since(index int) time.Time {
	if w.Index == index {
		return w.At
	}
	return time.Time{}
}

// start records the start of the wait for index, once.
func (w *HookWait) start(index int, now time.Time) {
	if w.At.IsZero() || w.Index != index {
		*w = HookWait{Index: index, At: now}
	}
}

// Clone implements scratch.Record. The ports are shared: they are replaced, never changed.
func (m memory) Clone() memory {
	m.oddities = maps.Clone(m.oddities)
	return m
}

// scratchpad keeps the memory of all sandboxes.
type scratchpad struct{ *scratch.Pad[memory] }

func (p scratchpad) setStatus(id, status string) {
	p.Change(id, func(m *memory) { m.status = status })
}

// odd increments the count of unclassified errors of a service, or of the sandbox for "", and returns it.
func (p scratchpad) odd(id, service string) (n int) {
	p.Change(id, func(m *memory) {
		if m.oddities == nil {
			m.oddities = map[string]int{}
		}
		m.oddities[service]++
		n = m.oddities[service]
	})
	return n
}

// fine resets the count of unclassified errors of a service, or of the sandbox for "".
func (p scratchpad) fine(id, service string) {
	p.Change(id, func(m *memory) { delete(m.oddities, service) })
}

// setPorts replaces the ports of a sandbox; nil: they are no longer known.
func (p scratchpad) setPorts(id string, ports []*agboxv1.PublishedPort) {
	p.Change(id, func(m *memory) { m.ports = ports })
}

// addPorts replaces the ports of one container.
func (p scratchpad) addPorts(id, service string, ports []*agboxv1.PublishedPort) {
	p.Change(id, func(m *memory) {
		m.ports = slices.Concat(slices.DeleteFunc(slices.Clone(m.ports), func(p *agboxv1.PublishedPort) bool {
			return p.GetServiceName() == service
		}), ports)
	})
}

// killBoard keeps which containers were killed through the engine since their last start, from the engine's events. It misses a kill whose
// event came while agboxd was not subscribed and which the engine no longer replays.
type killBoard struct{ killed sync.Map } // by container ID

func (b *killBoard) note(e dockerx.Event) {
	switch {
	case e.Action == dockerx.ActionKill && e.Signal == 9:
		b.killed.Store(e.ID, true)
	case e.Action == dockerx.ActionStart, e.Action == dockerx.ActionDestroy:
		b.killed.Delete(e.ID)
	}
}

func (b *killBoard) has(containerID string) bool {
	_, killed := b.killed.Load(containerID)
	return killed
}

// PortsUnseen reports that a sandbox publishes ports and that none were observed since it started. It may have none: a failed service
// publishes no ports.
func (r *Reconciler) PortsUnseen(sandboxID string, spec *agboxv1.CreateSpec) bool {
	return publishes(spec) && r.scratch.Get(sandboxID).ports == nil
}

func publishes(spec *agboxv1.CreateSpec) bool {
	services := slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices())
	return len(spec.GetPorts()) > 0 || slices.ContainsFunc(services, func(s *agboxv1.ServiceSpec) bool { return len(s.GetPorts()) > 0 })
}

// publishesFrom reports whether the container of a service, or the primary (""), publishes ports.
func publishesFrom(spec *agboxv1.CreateSpec, service string) bool {
	if service == "" {
		return len(spec.GetPorts()) > 0
	}
	return len(ServiceSpec(spec, service).GetPorts()) > 0
}

// Ports returns the last observed published ports of a sandbox. The caller must not change the messages.
func (r *Reconciler) Ports(sandboxID string) []*agboxv1.PublishedPort {
	return r.scratch.Get(sandboxID).ports
}
