// Package owned lists the objects in the engine that belong to this daemon: those whose label names its store or a former store of its
// data directory. Objects of others are never listed, so no caller can change them.
package owned

import (
	"context"
	"slices"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Store knows the instances whose objects are ours. There is hardly ever more than one.
type Store interface {
	InstanceIDs() []string
	RebuildPending() bool
}

// Engine lists objects by label.
type Engine interface {
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
}

// Objects are the objects of one daemon. It reads only.
type Objects struct {
	store  Store
	engine Engine
}

// New returns the objects that carry the label of one of the store's instances.
func New(s Store, e Engine) Objects { return Objects{s, e} }

// ours are the labels that select our objects, of one sandbox unless sandboxID is empty: one set for each instance.
func (o Objects) ours(sandboxID string) (sets []map[string]string) {
	for _, instance := range o.store.InstanceIDs() {
		labels := map[string]string{naming.Instance: instance}
		if sandboxID != "" {
			labels[naming.SandboxID] = sandboxID
		}
		sets = append(sets, labels)
	}
	return sets
}

func list[T any](ctx context.Context, sets []map[string]string, list func(context.Context, map[string]string) ([]T, error)) ([]T, error) {
	var all []T
	for _, labels := range sets {
		some, err := list(ctx, labels)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Worlds lists our objects by sandbox ID, of one sandbox unless sandboxID is empty. "" has those that name no sandbox. Errors are the
// engine's.
func (o Objects) Worlds(ctx context.Context, sandboxID string) (map[string]*plan.World, error) {
	return o.worlds(ctx, o.ours(sandboxID))
}

// OfAnyDaemon lists the objects of all daemons on this engine, by sandbox ID. Errors are the engine's.
func (o Objects) OfAnyDaemon(ctx context.Context) (map[string]*plan.World, error) {
	return o.worlds(ctx, []map[string]string{{naming.SandboxID: ""}})
}

func (o Objects) worlds(ctx context.Context, sets []map[string]string) (map[string]*plan.World, error) {
	containers, err := list(ctx, sets, o.engine.ListContainers)
	if err != nil {
		return nil, err
	}
	networks, err := list(ctx, sets, o.engine.ListNetworks)
	if err != nil {
		return nil, err
	}
	worlds := map[string]*plan.World{}
	of := func(labels map[string]string) *plan.World {
		id := labels[naming.SandboxID]
		if worlds[id] == nil {
			worlds[id] = &plan.World{}
		}
		return worlds[id]
	}
	for _, ct := range containers {
		w := of(ct.Labels)
		w.Containers = append(w.Containers, Container(ct))
	}
	for _, n := range networks {
		w := of(n.Labels)
		w.Networks = append(w.Networks, Network(n))
	}
	return worlds, nil
}

// Primaries returns the sandboxes, by ID, whose primary the engine lists. Errors are the engine's.
func (o Objects) Primaries(ctx context.Context) (map[string]bool, error) {
	containers, err := list(ctx, o.ours(""), o.engine.ListContainers)
	shown := map[string]bool{}
	for _, ct := range containers {
		if ct.Labels[naming.Component] == naming.ComponentPrimary {
			shown[ct.Labels[naming.SandboxID]] = true
		}
	}
	return shown, err
}

// EventLabels select the events of our objects. The engine can't filter for one of several instances: with more than one, the filter
// selects the events of every instance, and the caller drops those of others by Has. A rebuild may find more instances while events are
// followed.
func (o Objects) EventLabels() map[string]string {
	pending := o.store.RebuildPending() // before the instances: they are on record when it ends
	if ids := o.store.InstanceIDs(); len(ids) == 1 && !pending {
		return map[string]string{naming.Instance: ids[0]}
	}
	return map[string]string{naming.Instance: ""}
}

// Has reports whether labels are those of an object of ours.
func (o Objects) Has(labels map[string]string) bool {
	return slices.Contains(o.store.InstanceIDs(), labels[naming.Instance])
}

// HasOf reports whether labels are those of an object of ours that belongs to a sandbox.
func (o Objects) HasOf(labels map[string]string, sandboxID string) bool {
	return o.Has(labels) && labels[naming.SandboxID] == sandboxID
}

// Container is what a list says of a container, as plan takes it.
func Container(ct dockerx.Container) plan.Container {
	return plan.Container{
		ID: ct.ID, Name: ct.Name, Component: ct.Labels[naming.Component], Service: ct.Labels[naming.ServiceName],
		Status: string(ct.State), Health: string(ct.Health), EndedWell: ct.EndedWell,
		NetworkIDs: ct.Networks,
	}
}

// Network is what a list says of a network, as plan takes it.
func Network(n dockerx.Network) plan.Network {
	return plan.Network{ID: n.ID, Name: n.Name, Created: n.Created}
}
