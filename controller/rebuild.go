package controller

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/dockerx"
)

// EngineRun is the engine's present life, as far as it is known, and what the engine said of itself in it.
func (c *Controller) EngineRun() (*storev1.EngineRun, dockerx.Info) {
	s := c.link.State()
	return c.link.RunOf(s.Info), s.Info
}

// SameEngine makes sure, by asking it, that the engine is ours and has lived on since EngineRun gave run: then what it was
// asked for in between can be judged by. Errors: ErrUnavailable and others; it can't.
func (c *Controller) SameEngine(ctx context.Context, run *storev1.EngineRun) error {
	info, err := c.cfg.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if !proto.Equal(c.link.RunOf(info), run) {
		return fmt.Errorf("the engine was restarted while it was looked at: %w", errdefs.ErrUnavailable)
	}
	return c.link.CheckMarker(ctx)
}

// TakeUp takes up what came into the store by other ways than those of its clients, as the start does: journals are watched, and
// everything is looked at soon. It ends what a pending rebuild holds up.
func (c *Controller) TakeUp() {
	c.execs.Adopt()
	for _, id := range c.sandboxes.Parked() {
		c.sandboxLoop.Add(id)
	}
	c.askResync()
}
