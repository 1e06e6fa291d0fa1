package controller

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/dockerx"
)

// EngineRun returns the engine's present life and its info in that life, as far as known.
func (c *Controller) EngineRun() (*storev1.EngineRun, dockerx.Info) {
	s := c.link.State()
	return c.link.RunOf(s.Info), s.Info
}

// SameEngine checks with the engine that it is ours and has not restarted since EngineRun returned run: then its answers in between can be
// trusted. Errors: ErrUnavailable and others; they cannot.
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

// AdoptRecords adopts records that entered the store in other ways than by its clients, as the start of the daemon does: it watches
// journals and enqueues everything. It ends the waits for a pending rebuild.
func (c *Controller) AdoptRecords() {
	c.execs.Adopt()
	for _, id := range c.sandboxes.Parked() {
		c.sandboxLoop.Add(id)
	}
	c.askResync()
}
