package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/naming"
)

// held is what the engine holds of one sandbox.
type held struct {
	world plan.World
	items []*agboxv1.GarbageItem
}

// garbageObjects judges the objects with our label, of one sandbox unless sandboxID is empty: containers first, then networks.
func (l *lister) garbageObjects(ctx context.Context, sandboxID string) ([]*agboxv1.GarbageItem, error) {
	all, err := l.heldObjects(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	var garbage []*agboxv1.GarbageItem
	for _, id := range slices.Sorted(maps.Keys(all)) {
		some, err := l.garbageOf(ctx, id, all[id])
		if err != nil {
			return nil, err
		}
		garbage = append(garbage, some...)
	}
	slices.SortStableFunc(garbage, func(a, b *agboxv1.GarbageItem) int { return order[a.GetKind()] - order[b.GetKind()] })
	return garbage, nil
}

var order = map[string]int{kindContainer: 0, kindNetwork: 1}

// heldObjects returns the objects by sandbox ID; empty: objects that name no sandbox.
func (l *lister) heldObjects(ctx context.Context, sandboxID string) (map[string]*held, error) {
	run, problem := l.life()
	if problem != "" {
		return nil, garbageRefusal(problem)
	}
	containers, err := l.objects.Containers(ctx, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	networks, err := l.objects.Networks(ctx, sandboxID)
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	all := map[string]*held{}
	of := func(labels map[string]string) *held {
		id := labels[naming.SandboxID]
		if all[id] == nil {
			all[id] = &held{world: plan.World{Run: run}}
		}
		return all[id]
	}
	for _, ct := range containers {
		h := of(ct.Labels)
		h.world.Containers = append(h.world.Containers, owned.Container(ct))
		h.items = append(h.items, item(kindContainer, ct.ID, ct.Name, ct.Labels))
	}
	for _, n := range networks {
		h := of(n.Labels)
		h.world.Networks = append(h.world.Networks, owned.Network(n))
		h.items = append(h.items, item(kindNetwork, n.ID, n.Name, n.Labels))
	}
	return all, nil
}

func item(kind, id, name string, labels map[string]string) *agboxv1.GarbageItem {
	return &agboxv1.GarbageItem{Kind: kind, Id: id, Name: name, SandboxId: labels[naming.SandboxID]}
}

// garbageOf returns the objects of one sandbox that it should not have.
func (l *lister) garbageOf(ctx context.Context, id string, h *held) ([]*agboxv1.GarbageItem, error) {
	if id == "" {
		return judged(h.items, true, "it carries this store's label and names no sandbox"), nil
	}
	standing, err := l.standing(ctx, id)
	if err != nil {
		return nil, err
	}
	switch standing {
	case plan.Gone:
		return judged(h.items, false, reasonGone), nil
	case plan.NeverReserved:
		return judged(h.items, true, reasonUnknown), nil
	case plan.Unswept:
		return judged(h.items, true, reasonUnswept), nil
	case plan.Live:
		return l.outsideSpec(ctx, id, h)
	}
	return nil, nil // nothing is known about a damaged record
}

// Reasons shared by objects and directories.
const (
	reasonGone    = "its sandbox is deleted"
	reasonUnknown = "this store never knew its sandbox"
	reasonUnswept = "cleanup_ttl deleted its sandbox after a failure, while the engine may not have shown it"
)

// outsideSpec returns the objects that the sandbox's own pass would remove.
func (l *lister) outsideSpec(ctx context.Context, id string, h *held) ([]*agboxv1.GarbageItem, error) {
	p, _, _, err := l.sandboxes.Glance(ctx, id, &h.world, l.clock())
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(h.items, func(g *agboxv1.GarbageItem) bool {
		return !slices.ContainsFunc(p.Steps, func(s plan.Step) bool {
			return s.ID == g.GetId() && s.Reason == plan.BecauseNotInSpec
		})
	})
	return judged(mine, false, "its sandbox is live, and its spec has no such part"), nil
}

func judged(items []*agboxv1.GarbageItem, unknown bool, reason string) []*agboxv1.GarbageItem {
	for _, g := range items {
		g.Unknown, g.Reason = unknown, reason
	}
	return items
}

// standing returns the present standing of an ID. A commit is in the file a moment before it is in memory; reading twice avoids that a
// sandbox that was just accepted counts as gone.
func (l *lister) standing(ctx context.Context, id string) (plan.Standing, error) {
	rec, _, err := l.sandboxes.Record(ctx, id)
	if err == nil && rec.Standing == plan.Gone {
		rec, _, err = l.sandboxes.Record(ctx, id)
	}
	return rec.Standing, err
}
