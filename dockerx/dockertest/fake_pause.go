package dockertest

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// defaultInterval is Docker's between two probes.
const defaultInterval = 30 * time.Second

// OnPause has hook called after each freeze and thaw of a container, by whomever, with the container as it is then; its
// Paused says which of the two. A stop thaws, a kill and a removal don't. Hooks are called as those of OnStart are.
func (f *Fake) OnPause(hook func(dockerx.ContainerDetail)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onPause = hook
}

// PauseContainer implements Engine.
func (f *Fake) PauseContainer(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpPauseContainer, func() error { return f.freeze(id, true) })
}

// UnpauseContainer implements Engine.
func (f *Fake) UnpauseContainer(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpUnpauseContainer, func() error { return f.freeze(id, false) })
}

// PauseOutside is docker pause, or with false docker unpause.
func (f *Fake) PauseOutside(id string, paused bool) {
	_ = f.locked(func() error { return f.freeze(id, paused) })
}

// freeze freezes or thaws a container. Called with mu held.
func (f *Fake) freeze(id string, paused bool) error {
	c, err := f.find(id)
	switch {
	case err != nil:
		return err
	case !c.detail.Running:
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	case c.detail.Paused == paused:
		return nil
	case paused:
		c.detail.Paused, c.detail.State = true, dockerx.StatePaused
		f.tellContainer(c, dockerx.ActionPause)
	default:
		c.detail.Paused, c.detail.State = false, dockerx.StateRunning
		f.tellContainer(c, dockerx.ActionUnpause)
		f.probeAgain(c)
	}
	f.orderHook(f.onPause, c)
	return nil
}

// probeAgain has the healthcheck of a thawed container go on: lists say unhealthy until the next probe, which finds what
// came up while it was frozen, or what the last one found. Called with mu held.
func (f *Fake) probeAgain(c *fakeContainer) {
	if !c.checked() {
		return
	}
	c.listedSick = true
	c.thaws++
	run, thaw := c.ended, c.thaws
	interval := c.spec.Healthcheck.Interval
	if interval == 0 {
		interval = defaultInterval
	}
	time.AfterFunc(interval, func() {
		_ = f.locked(func() error {
			if c.ended == run && c.detail.Running && !c.detail.Paused && c.thaws == thaw {
				f.probe(c)
			}
			return nil
		})
	})
}

// probe is the first one after a thaw. Called with mu held.
func (f *Fake) probe(c *fakeContainer) {
	verdict := c.detail.Health
	if c.due != dockerx.HealthNone {
		verdict = c.due
	}
	if verdict != dockerx.HealthStarting {
		f.setHealth(c, verdict)
	}
}
