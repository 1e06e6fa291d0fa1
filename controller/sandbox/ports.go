package sandbox

import (
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// PortsUnseen reports that a sandbox publishes ports and that none were observed since it started. It may have none: a failed service
// publishes no ports.
func (r *Reconciler) PortsUnseen(sandboxID string, spec *agboxv1.CreateSpec) bool {
	return publishes(spec) && r.scratch.Get(sandboxID).ports == nil
}

func publishes(spec *agboxv1.CreateSpec) bool {
	n := len(spec.GetPorts())
	for _, svc := range slices.Concat(spec.GetRequiredServices(), spec.GetOptionalServices()) {
		n += len(svc.GetPorts())
	}
	return n > 0
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
