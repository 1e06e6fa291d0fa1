package controller

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// EngineRun is the engine's present life, as far as it is known, and what the engine said of itself in it.
func (c *Controller) EngineRun() (*storev1.EngineRun, dockerx.Info) {
	s := c.link.known()
	return c.cfg.run(s.info), s.info
}

// SameEngine makes sure, by asking it, that the engine is ours and has lived on since EngineRun gave run: then what it was
// asked for in between can be judged by. Errors: ErrUnavailable and others; it can't.
func (c *Controller) SameEngine(ctx context.Context, run *storev1.EngineRun) error {
	info, err := c.cfg.Engine.Info(ctx)
	if err != nil {
		return err
	}
	if !proto.Equal(c.cfg.run(info), run) {
		return fmt.Errorf("the engine was restarted while it was looked at: %w", errdefs.ErrUnavailable)
	}
	return c.link.checkMarker(ctx)
}

// TakeUp takes up what came into the store by other ways than those of its clients, as the start does: journals are watched, and
// everything is looked at soon. It ends what a pending rebuild holds up.
func (c *Controller) TakeUp() {
	c.adopt()
	for _, id := range c.parked.take() {
		c.sandboxes.Add(id)
	}
	c.askResync()
}

// holdsTraces is holdsOurs while records are being rebuilt. A sandbox that has a directory may be one of those that are not
// on record yet, whatever instance its objects name; without any directory none is to be expected.
func (l *engineLink) holdsTraces(ctx context.Context, live map[string]bool) (bool, error) {
	dirs, err := l.cfg.Execs.Dirs()
	if err != nil {
		return false, err
	}
	runs := map[string]bool{}
	for _, d := range dirs {
		if d.SandboxID == "" { // not one for logs
			runs[filepath.Base(d.Path)] = true
		}
	}
	if len(live)+len(runs) == 0 {
		return true, nil
	}
	ids, err := l.cfg.anybodysIDs(ctx)
	for _, id := range ids {
		if live[id] || runs[execjournal.RunName(id)] {
			return true, nil
		}
	}
	return false, err
}

// anybodysIDs are the sandboxes that the objects of any daemon on this engine name.
func (c *Config) anybodysIDs(ctx context.Context) (ids []string, err error) {
	everyones := map[string]string{naming.SandboxID: ""}
	containers, err := c.Engine.ListContainers(ctx, everyones)
	if err != nil {
		return nil, err
	}
	networks, err := c.Engine.ListNetworks(ctx, everyones)
	if err != nil {
		return nil, err
	}
	for _, ct := range containers {
		ids = append(ids, ct.Labels[naming.SandboxID])
	}
	for _, n := range networks {
		ids = append(ids, n.Labels[naming.SandboxID])
	}
	return ids, nil
}
