package controller

import (
	"slices"
	"sync"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/sandbox"
)

// portBoard keeps the published ports of each sandbox as the last pass saw them. The engine has the truth; what is kept
// here is gone with the process, and the first resync brings it back.
type portBoard struct {
	mu    sync.RWMutex
	ports map[string][]*agboxv1.PublishedPort
}

func newPortBoard() *portBoard { return &portBoard{ports: map[string][]*agboxv1.PublishedPort{}} }

// set replaces the ports of a sandbox; nil: nobody knows them any more.
func (b *portBoard) set(sandboxID string, ports []*agboxv1.PublishedPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ports == nil {
		delete(b.ports, sandboxID)
		return
	}
	b.ports[sandboxID] = ports
}

// learn replaces the ports of one container.
func (b *portBoard) learn(sandboxID, service string, ports []*agboxv1.PublishedPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := slices.DeleteFunc(slices.Clone(b.ports[sandboxID]), func(p *agboxv1.PublishedPort) bool { return p.GetServiceName() == service })
	b.ports[sandboxID] = append(others, ports...)
}

func (b *portBoard) get(sandboxID string) []*agboxv1.PublishedPort {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.ports[sandboxID]
}

// unseen reports that a running sandbox publishes ports and nobody has looked at them. None may be open: a service that has
// fallen has none.
func (b *portBoard) unseen(sandboxID string, spec *agboxv1.CreateSpec) bool {
	return publishes(spec) && b.get(sandboxID) == nil
}

func publishes(spec *agboxv1.CreateSpec) bool {
	n := len(spec.GetPorts())
	for _, svc := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		n += len(svc.GetPorts())
	}
	return n > 0
}

// publishesFrom reports whether the container of a service, or the primary, publishes ports.
func publishesFrom(spec *agboxv1.CreateSpec, service string) bool {
	if service == "" {
		return len(spec.GetPorts()) > 0
	}
	return len(sandbox.ServiceSpec(spec, service).GetPorts()) > 0
}

// Ports returns the published ports of a sandbox as they were last seen. The messages must not be changed.
func (c *Controller) Ports(sandboxID string) []*agboxv1.PublishedPort {
	return c.published.get(sandboxID)
}
