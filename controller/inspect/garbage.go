package inspect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/enginelink"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/sandbox"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// gcTimeout bounds the time in which one call starts removals; so the last one ends before the API times out.
const gcTimeout = 20 * time.Second

// Kinds of garbage. They are part of the contract.
const (
	kindContainer = "container"
	kindNetwork   = "network"
	kindDirectory = "directory"
	kindImage     = "image"
)

// Records is the part of the store that a Collector reads.
type Records interface {
	RebuildPending() bool
	Reserved(ctx context.Context, id string) (bool, error)
	List(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
}

// Remover removes garbage. Removing an item that is already gone succeeds.
type Remover interface {
	RemoveContainer(ctx context.Context, id string) error
	RemoveNetwork(ctx context.Context, id string) error
	RemoveImage(ctx context.Context, id string) error
	RemoveDir(path string) error
}

// Lister lists garbage. None of its ports can change anything; all are required.
type Lister struct {
	Records   Records
	Sandboxes *sandbox.Reader
	Objects   owned.Objects
	// Containers lists containers by label, also those of other daemons.
	Containers func(ctx context.Context, labels map[string]string) ([]dockerx.Container, error)
	// Dirs lists the directories of sandboxes on the host.
	Dirs func() ([]execjournal.SandboxDir, error)
	// Parts lists the parts of snapshots that were cut off.
	Parts func(ctx context.Context) ([]dockerx.LocalImage, error)
	// Builds lists what template builds have left while none runs: containers, and images of steps, in the order of removal.
	Builds func(ctx context.Context) ([]dockerx.Container, []dockerx.LocalImage, error)
	// Life returns the present life of the engine, or the problem because of which its state is unknown.
	Life func() (run *storev1.EngineRun, problem string)
	// CheckMarker checks that the engine is ours.
	CheckMarker func(ctx context.Context) error
	// Clock reads the clock that deadlines use.
	Clock func() clock.Reading
}

// CollectOptions are the dependencies of a Collector. All are required.
type CollectOptions struct {
	Lister
	Remover Remover
	Logger  *slog.Logger
	Metrics *metrics.Metrics
}

// Collector lists and removes the leftovers of sandboxes that no longer exist.
type Collector struct{ o CollectOptions }

// NewCollector returns a Collector.
func NewCollector(o CollectOptions) *Collector { return &Collector{o} }

// CollectGarbage lists the leftovers of sandboxes that no longer exist: directories, and containers and networks with our label that are not part
// of a live sandbox; the parts of snapshots that were cut off; and what template builds have left. Unless it is a dry run it removes them; leftovers of sandboxes that this store never knew only if req.Unknown is set.
// An item that could not be removed has an error and is listed again next time. Nothing is judged while the engine's state is unknown, or
// while records are being rebuilt. Errors: ErrUnavailable.
func (c *Collector) CollectGarbage(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error) {
	ctx, cancel := context.WithTimeout(ctx, gcTimeout)
	defer cancel()
	if err := c.o.mayJudge(ctx); err != nil {
		return nil, err
	}
	dirs, err := c.o.garbageDirs(ctx) // first: a sandbox accepted from now on gets its directories after this list
	if err != nil {
		return nil, err
	}
	objects, err := c.o.garbageObjects(ctx, "")
	if err != nil {
		return nil, err
	}
	parts, err := c.o.garbageParts(ctx)
	if err != nil {
		return nil, err
	}
	builds, err := c.o.garbageBuilds(ctx)
	if err != nil {
		return nil, err
	}
	items := slices.Concat(objects, builds, parts, dirs) // in the order of removal: containers use networks and directories
	for _, g := range items {
		if !req.GetDryRun() && (!g.GetUnknown() || req.GetUnknown()) {
			c.remove(ctx, g)
		}
	}
	return items, nil
}

// mayJudge checks that the engine is ours and that the records are complete.
func (l *Lister) mayJudge(ctx context.Context) error {
	if l.Records.RebuildPending() {
		return garbageRefusal("records are being rebuilt; what is garbage is known when that is done")
	}
	if _, problem := l.Life(); problem != "" {
		return garbageRefusal(problem)
	}
	err := l.CheckMarker(ctx) // it may have been replaced since the link was last checked
	if errors.Is(err, enginelink.ErrForeign) {
		return garbageRefusal(enginelink.ErrForeign.Error())
	}
	return err
}

func garbageRefusal(message string) error {
	return &store.Refusal{Reason: "UNAVAILABLE", Class: errdefs.ErrUnavailable, Message: message}
}

// errKept says why an item listed as garbage is kept.
var errKept = errors.New("it is no garbage any more")

// remove checks by the same rules that an item is still garbage, removes it, and records the outcome in the item.
func (c *Collector) remove(ctx context.Context, g *agboxv1.GarbageItem) {
	err := ctx.Err()
	if err != nil {
		g.Error = "not reached in the time of one call; call again"
		return
	}
	if err = c.o.stillGarbage(ctx, g); err == nil {
		err = c.removeOne(ctx, g)
	}
	if err != nil {
		g.Error = message.Of(err)
		return
	}
	g.Removed = true
}

func (l *Lister) stillGarbage(ctx context.Context, g *agboxv1.GarbageItem) error {
	if g.GetKind() == kindDirectory {
		return l.stillGarbageDir(ctx, g)
	}
	list := func(ctx context.Context) ([]*agboxv1.GarbageItem, error) {
		return l.garbageObjects(ctx, g.GetSandboxId())
	}
	switch {
	case g.GetKind() == kindImage:
		list = l.garbageParts
	case g.GetSandboxId() == "" && !g.GetUnknown():
		list = l.garbageBuilds
	}
	now, err := list(ctx)
	if err != nil {
		return err
	}
	same := func(o *agboxv1.GarbageItem) bool {
		return o.GetKind() == g.GetKind() && o.GetId() == g.GetId() && o.GetUnknown() == g.GetUnknown()
	}
	if !slices.ContainsFunc(now, same) {
		return errKept
	}
	return nil
}

// removeOne removes one item, with the metric and the audit line of a step.
func (c *Collector) removeOne(ctx context.Context, g *agboxv1.GarbageItem) (err error) {
	step, begun := plan.Step{ID: g.GetId(), Reason: plan.BecauseOrphan}, time.Now()
	switch g.GetKind() {
	case kindContainer:
		step.Kind = plan.RemoveContainer
		err = c.o.Remover.RemoveContainer(ctx, g.GetId())
	case kindNetwork:
		step.Kind = plan.RemoveNetwork
		err = c.o.Remover.RemoveNetwork(ctx, g.GetId())
	case kindImage:
		step.Kind = plan.RemoveSnapshot
		err = c.o.Remover.RemoveImage(ctx, g.GetId())
	case kindDirectory:
		step.Kind = plan.RemoveFiles
		err = c.o.Remover.RemoveDir(g.GetId())
	default:
		err = fmt.Errorf("garbage of the unknown kind %q: %w", g.GetKind(), errdefs.ErrInternal)
	}
	c.o.Metrics.Step(string(step.Kind), err)
	if err == nil {
		c.o.Metrics.OrphanRemoved()
	}
	auditlog.Write(c.o.Logger, g.GetSandboxId(), step, g.GetId(), time.Since(begun), err)
	return err
}

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

// garbageParts returns the parts of snapshots that were cut off, and the cache of template builds.
func (l *Lister) garbageParts(ctx context.Context) ([]*agboxv1.GarbageItem, error) {
	parts, err := l.Parts(ctx)
	var items []*agboxv1.GarbageItem
	for _, p := range parts {
		item := []*agboxv1.GarbageItem{{Kind: kindImage, Id: p.ID}}
		items = append(items, judged(item, false, "snapshot "+p.Labels[naming.SnapshotPart]+" was cut off while it was made")...)
	}
	if err != nil {
		return nil, err
	}
	_, layers, err := l.Builds(ctx)
	var cached []*agboxv1.GarbageItem
	for _, i := range layers {
		cached = append(cached, &agboxv1.GarbageItem{Kind: kindImage, Id: i.ID})
	}
	return append(items, judged(cached, false, "it is a step of template builds, kept as a cache")...), err
}

// garbageBuilds returns the containers of template builds that do not run any more.
func (l *Lister) garbageBuilds(ctx context.Context) ([]*agboxv1.GarbageItem, error) {
	containers, _, err := l.Builds(ctx)
	var items []*agboxv1.GarbageItem
	for _, c := range containers {
		items = append(items, &agboxv1.GarbageItem{Kind: kindContainer, Id: c.ID, Name: c.Name})
	}
	return judged(items, false, "it is of a template build that was cut off"), err
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
