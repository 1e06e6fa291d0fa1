// Package owned lists the objects in the engine that belong to this daemon: those whose label names its store or a former store of its
// data directory, and those of an older daemon whose IDs its store has recorded. Objects of others are never listed, so no caller can change
// them.
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
	Adopts(sandboxID string) bool
	AdoptedObjects(sandboxID string) []string
}

// Engine lists objects by label.
type Engine interface {
	ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error)
	ListVolumes(ctx context.Context, labels map[string]string) ([]dockerx.Volume, error)
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
	containers, err := o.containers(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	networks, err := list(ctx, o.ours(sandboxID), o.engine.ListNetworks)
	if err == nil && o.store.Adopts(sandboxID) {
		var more []dockerx.Network
		more, err = o.engine.ListNetworks(ctx, ofSandbox(sandboxID))
		networks = append(networks, slices.DeleteFunc(more, func(n dockerx.Network) bool { return !o.isAdopted(n.Labels, n.ID) })...)
	}
	if err != nil {
		return nil, err
	}
	return worlds(containers, networks), nil
}

// Volumes lists our named volumes, those of one sandbox name unless it is empty, those of the present instance first. A volume belongs to a
// name, not to a sandbox, so Worlds has none. Errors are the engine's.
func (o Objects) Volumes(ctx context.Context, sandboxName string) ([]dockerx.Volume, error) {
	sets := o.ours("")
	for _, labels := range sets {
		labels[naming.Component], labels[naming.SandboxName] = naming.ComponentVolume, sandboxName
	}
	return list(ctx, sets, o.engine.ListVolumes)
}

// RootVolumes lists the volumes of one sandbox that are parts of its read-only root. Errors are the engine's.
func (o Objects) RootVolumes(ctx context.Context, sandboxID string) ([]dockerx.Volume, error) {
	sets := o.ours(sandboxID)
	for _, labels := range sets {
		labels[naming.Component] = naming.ComponentRoot
	}
	return list(ctx, sets, o.engine.ListVolumes)
}

// OfAnyDaemon lists the objects of all daemons on this engine, by sandbox ID. Errors are the engine's.
func (o Objects) OfAnyDaemon(ctx context.Context) (map[string]*plan.World, error) {
	containers, err := o.engine.ListContainers(ctx, ofSandbox(""))
	if err != nil {
		return nil, err
	}
	networks, err := o.engine.ListNetworks(ctx, ofSandbox(""))
	if err != nil {
		return nil, err
	}
	return worlds(containers, networks), nil
}

// Unlabelled lists the objects that name a sandbox and no instance: an older daemon created them. Errors are the engine's.
func (o Objects) Unlabelled(ctx context.Context, sandboxID string) ([]dockerx.Container, []dockerx.Network, error) {
	containers, err := o.engine.ListContainers(ctx, ofSandbox(sandboxID))
	if err != nil {
		return nil, nil, err
	}
	networks, err := o.engine.ListNetworks(ctx, ofSandbox(sandboxID))
	if err != nil {
		return nil, nil, err
	}
	labelled := func(labels map[string]string) bool { return labels[naming.Instance] != "" }
	return slices.DeleteFunc(containers, func(c dockerx.Container) bool { return labelled(c.Labels) }),
		slices.DeleteFunc(networks, func(n dockerx.Network) bool { return labelled(n.Labels) }), nil
}

// ofSandbox are the labels that select the objects of one sandbox of any daemon, or of all sandboxes if sandboxID is empty.
func ofSandbox(sandboxID string) map[string]string {
	return map[string]string{naming.SandboxID: sandboxID}
}

// isAdopted reports whether an object is one of an older daemon that is recorded as ours.
func (o Objects) isAdopted(labels map[string]string, objectID string) bool {
	return labels[naming.Instance] == "" && slices.Contains(o.store.AdoptedObjects(labels[naming.SandboxID]), objectID)
}

// containers lists our containers, of one sandbox unless sandboxID is empty.
func (o Objects) containers(ctx context.Context, sandboxID string) ([]dockerx.Container, error) {
	containers, err := list(ctx, o.ours(sandboxID), o.engine.ListContainers)
	if err != nil || !o.store.Adopts(sandboxID) {
		return containers, err
	}
	more, err := o.engine.ListContainers(ctx, ofSandbox(sandboxID))
	return append(containers, slices.DeleteFunc(more, func(c dockerx.Container) bool { return !o.isAdopted(c.Labels, c.ID) })...), err
}

// worlds groups objects by the sandbox that they name.
func worlds(containers []dockerx.Container, networks []dockerx.Network) map[string]*plan.World {
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
	return worlds
}

// Primaries returns the sandboxes, by ID, whose primary the engine lists. Errors are the engine's.
func (o Objects) Primaries(ctx context.Context) (map[string]bool, error) {
	containers, err := o.containers(ctx, "")
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
// followed. Objects of an older daemon name no instance.
func (o Objects) EventLabels() map[string]string {
	if o.store.Adopts("") {
		return ofSandbox("")
	}
	pending := o.store.RebuildPending() // before the instances: they are on record when it ends
	if ids := o.store.InstanceIDs(); len(ids) == 1 && !pending {
		return map[string]string{naming.Instance: ids[0]}
	}
	return map[string]string{naming.Instance: ""}
}

// Has reports whether an object, with its labels, is ours.
func (o Objects) Has(labels map[string]string, objectID string) bool {
	return slices.Contains(o.store.InstanceIDs(), labels[naming.Instance]) || o.isAdopted(labels, objectID)
}

// HasOf reports whether an object is ours and belongs to a sandbox.
func (o Objects) HasOf(labels map[string]string, objectID, sandboxID string) bool {
	return o.Has(labels, objectID) && labels[naming.SandboxID] == sandboxID
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
