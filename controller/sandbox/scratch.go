package sandbox

import (
	"maps"
	"slices"
	"sync"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// scratch is the memory of this daemon about one sandbox.
type scratch struct {
	// status is what the sandbox waits for, or its last error.
	status string
	// parked: its last pass found no usable engine.
	parked bool
	// hook is the time since which this daemon waits for a hook. A new daemon restarts the wait: the wait stays bounded, and needs no trust
	// in what the container writes or in the host's clock.
	hook HookWait
	// proof is the time since which this daemon waits for the proof of a runtime; its index is the process ID of the container. It uses the
	// monotonic clock: a step of the wall clock refuses no runtime.
	proof HookWait
	// ports are the published ports that the last pass observed. Nil: not known.
	ports []*agboxv1.PublishedPort
	// oddities counts the unclassified errors since the last pass without error, by service; "" is the sandbox itself. Classified errors do
	// not count: an engine that is away or slow says nothing about the sandbox.
	oddities map[string]int
}

func (s scratch) isEmpty() bool {
	return s.status == "" && !s.parked && s.hook == HookWait{} && s.proof == HookWait{} && s.ports == nil && len(s.oddities) == 0
}

// since returns when the wait for index started; zero: it has not.
func (w HookWait) since(index int) time.Time {
	if w.Index == index {
		return w.At
	}
	return time.Time{}
}

// begin records the start of the wait for index, once.
func (w *HookWait) begin(index int, now time.Time) {
	if w.At.IsZero() || w.Index != index {
		*w = HookWait{Index: index, At: now}
	}
}

// scratchpad keeps one scratch record per sandbox. Empty records are dropped.
type scratchpad struct {
	mu sync.RWMutex
	of map[string]*scratch
}

func newScratchpad() *scratchpad { return &scratchpad{of: map[string]*scratch{}} }

// get returns a copy. Its ports must not be changed.
func (p *scratchpad) get(id string) scratch {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if s := p.of[id]; s != nil {
		c := *s
		c.oddities = maps.Clone(s.oddities)
		return c
	}
	return scratch{}
}

// change calls fn, which must not block, with the record of a sandbox.
func (p *scratchpad) change(id string, fn func(*scratch)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[id]
	if s == nil {
		s = &scratch{}
		p.of[id] = s
	}
	if fn(s); s.isEmpty() {
		delete(p.of, id)
	}
}

func (p *scratchpad) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

func (p *scratchpad) setStatus(id, status string) {
	p.change(id, func(s *scratch) { s.status = status })
}

func (p *scratchpad) park(id string, parked bool) {
	p.change(id, func(s *scratch) { s.parked = parked })
}

// takeParked returns the parked sandboxes and unparks them.
func (p *scratchpad) takeParked() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.of {
		if s.parked {
			ids = append(ids, id)
			if s.parked = false; s.isEmpty() {
				delete(p.of, id)
			}
		}
	}
	return ids
}

// odd increments the count of unclassified errors of a service, or of the sandbox for "", and returns it.
func (p *scratchpad) odd(id, service string) (n int) {
	p.change(id, func(s *scratch) {
		if s.oddities == nil {
			s.oddities = map[string]int{}
		}
		s.oddities[service]++
		n = s.oddities[service]
	})
	return n
}

// fine resets the count of unclassified errors of a service, or of the sandbox for "".
func (p *scratchpad) fine(id, service string) {
	p.change(id, func(s *scratch) { delete(s.oddities, service) })
}

// setPorts replaces the ports of a sandbox; nil: they are no longer known.
func (p *scratchpad) setPorts(id string, ports []*agboxv1.PublishedPort) {
	p.change(id, func(s *scratch) { s.ports = ports })
}

// addPorts replaces the ports of one container.
func (p *scratchpad) addPorts(id, service string, ports []*agboxv1.PublishedPort) {
	p.change(id, func(s *scratch) {
		s.ports = slices.Concat(slices.DeleteFunc(slices.Clone(s.ports), func(p *agboxv1.PublishedPort) bool {
			return p.GetServiceName() == service
		}), ports)
	})
}
