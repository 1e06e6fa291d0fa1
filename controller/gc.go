package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/auditlog"
	"github.com/agbox/agbox/controller/enginelink"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/store"
)

// gcTimeout is for what one call begins to remove; with the last removal, it is done before the API gives up.
const gcTimeout = 20 * time.Second

// Kinds of garbage. They are part of the contract.
const (
	kindContainer = "container"
	kindNetwork   = "network"
	kindDirectory = "directory"
)

// CollectGarbage lists what is left of sandboxes that are no more: containers and networks with our label, outside of what a
// live sandbox may have, and directories. Unless it is a dry run it removes them, but for those of sandboxes that this store
// never knew, which are only removed when req.Unknown says so. What could not be removed says why and is listed again next
// time. Nothing is judged while the engine can't be judged by, or while records are being rebuilt. Errors: ErrUnavailable.
func (c *Controller) CollectGarbage(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error) {
	ctx, cancel := context.WithTimeout(ctx, gcTimeout)
	defer cancel()
	if err := c.mayJudgeGarbage(ctx); err != nil {
		return nil, err
	}
	dirs, err := c.garbageDirs(ctx) // first: a sandbox that is accepted from here on has its directories after the list
	if err != nil {
		return nil, err
	}
	objects, err := c.garbageObjects(ctx, "")
	if err != nil {
		return nil, err
	}
	items := slices.Concat(objects, dirs) // in the order of removal: containers use networks and directories
	for _, g := range items {
		if !req.GetDryRun() && (!g.GetUnknown() || req.GetUnknown()) {
			c.removeGarbage(ctx, g)
		}
	}
	return items, nil
}

// mayJudgeGarbage makes sure that the engine is ours and that the records are complete.
func (c *Controller) mayJudgeGarbage(ctx context.Context) error {
	if c.cfg.Store.RebuildPending() {
		return garbageRefusal("records are being rebuilt; what is garbage is known when that is done")
	}
	if _, problem := c.link.Life(); problem != "" {
		return garbageRefusal(problem)
	}
	err := c.link.CheckMarker(ctx) // it may have been replaced since the link to it was judged
	if errors.Is(err, enginelink.ErrForeign) {
		return garbageRefusal(enginelink.ErrForeign.Error())
	}
	return err
}

func garbageRefusal(message string) error {
	return &store.Refusal{Reason: "UNAVAILABLE", Class: errdefs.ErrUnavailable, Message: message}
}

// errKept is why a thing that was listed as garbage stays.
var errKept = errors.New("it is no garbage any more")

// removeGarbage looks again whether an item is garbage, by the same rule, removes it, and notes the outcome in it.
func (c *Controller) removeGarbage(ctx context.Context, g *agboxv1.GarbageItem) {
	err := ctx.Err()
	if err != nil {
		g.Error = "not reached in the time of one call; call again"
		return
	}
	if err = c.stillGarbage(ctx, g); err == nil {
		err = c.removeOne(ctx, g)
	}
	if err != nil {
		g.Error = message.Of(err)
		return
	}
	g.Removed = true
}

func (c *Controller) stillGarbage(ctx context.Context, g *agboxv1.GarbageItem) error {
	if g.GetKind() == kindDirectory {
		return c.stillGarbageDir(ctx, g)
	}
	now, err := c.garbageObjects(ctx, g.GetSandboxId())
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

// removeOne leaves the traces of a step.
func (c *Controller) removeOne(ctx context.Context, g *agboxv1.GarbageItem) (err error) {
	step, begun := plan.Step{ID: g.GetId(), Reason: plan.BecauseOrphan}, time.Now()
	switch g.GetKind() {
	case kindContainer:
		step.Kind = plan.RemoveContainer
		err = c.cfg.Engine.RemoveContainer(ctx, g.GetId())
	case kindNetwork:
		step.Kind = plan.RemoveNetwork
		err = c.cfg.Engine.RemoveNetwork(ctx, g.GetId())
	case kindDirectory:
		step.Kind = plan.RemoveFiles
		err = c.cfg.Execs.RemoveDir(g.GetId())
	default:
		err = fmt.Errorf("garbage of the unknown kind %q: %w", g.GetKind(), errdefs.ErrInternal)
	}
	c.cfg.Metrics.Step(string(step.Kind), err)
	if err == nil {
		c.cfg.Metrics.OrphanRemoved()
	}
	auditlog.Write(c.log, g.GetSandboxId(), step, g.GetId(), time.Since(begun), err)
	return err
}
