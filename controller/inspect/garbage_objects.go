package inspect

import (
	"context"
	"maps"
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
)

// garbageObjects judges the objects with our label, of one sandbox unless sandboxID is empty: containers first, then networks.
func (l *Lister) garbageObjects(ctx context.Context, sandboxID string) ([]*agboxv1.GarbageItem, error) {
	run, problem := l.Life()
	if problem != "" {
		return nil, garbageRefusal(problem)
	}
	all, err := l.Objects.Worlds(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	var garbage []*agboxv1.GarbageItem
	for _, id := range slices.Sorted(maps.Keys(all)) {
		all[id].Run = run
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

// itemsOf returns the objects of one sandbox as garbage that is not judged yet.
func itemsOf(id string, w *plan.World) (items []*agboxv1.GarbageItem) {
	for _, ct := range w.Containers {
		items = append(items, &agboxv1.GarbageItem{Kind: kindContainer, Id: ct.ID, Name: ct.Name, SandboxId: id})
	}
	for _, n := range w.Networks {
		items = append(items, &agboxv1.GarbageItem{Kind: kindNetwork, Id: n.ID, Name: n.Name, SandboxId: id})
	}
	return items
}

// garbageOf returns the objects of one sandbox that it should not have.
func (l *Lister) garbageOf(ctx context.Context, id string, w *plan.World) ([]*agboxv1.GarbageItem, error) {
	if id == "" {
		return judged(itemsOf(id, w), true, "it carries this store's label and names no sandbox"), nil
	}
	standing, err := l.standing(ctx, id)
	if err != nil {
		return nil, err
	}
	if standing == plan.Live {
		return l.outsideSpec(ctx, id, w)
	}
	reason, unknown := leftBehind(standing)
	if reason == "" {
		return nil, nil // nothing is known about a damaged record
	}
	return judged(itemsOf(id, w), unknown, reason), nil
}

// leftBehind returns why an object or a directory of a sandbox is garbage because of the sandbox's standing; empty: it is not.
func leftBehind(s plan.Standing) (reason string, unknown bool) {
	switch s {
	case plan.Gone:
		return "its sandbox is deleted", false
	case plan.NeverReserved:
		return "this store never knew its sandbox", true
	case plan.Unswept:
		return "cleanup_ttl deleted its sandbox after a failure, while the engine may not have shown it", true
	}
	return "", false
}

// outsideSpec returns the objects that the sandbox's own pass would remove.
func (l *Lister) outsideSpec(ctx context.Context, id string, w *plan.World) ([]*agboxv1.GarbageItem, error) {
	p, _, _, err := l.Sandboxes.Glance(ctx, id, w, l.Clock())
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(itemsOf(id, w), func(g *agboxv1.GarbageItem) bool {
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
func (l *Lister) standing(ctx context.Context, id string) (plan.Standing, error) {
	rec, _, err := l.Sandboxes.Record(ctx, id)
	if err == nil && rec.Standing == plan.Gone {
		rec, _, err = l.Sandboxes.Record(ctx, id)
	}
	return rec.Standing, err
}
