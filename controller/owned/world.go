package owned

import (
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Container is what a list says of a container, as plan takes it.
func Container(ct dockerx.Container) plan.Container {
	return plan.Container{
		ID: ct.ID, Name: ct.Name, Component: ct.Labels[naming.Component], Service: ct.Labels[naming.ServiceName],
		Status: string(ct.State), Health: string(ct.Health), EndedWell: ct.EndedWell,
		NetworkIDs: ct.Networks,
	}
}

// Network is what a list says of a network, as plan takes it.
func Network(n dockerx.Network) plan.Network { return plan.Network{ID: n.ID, Created: n.Created} }
