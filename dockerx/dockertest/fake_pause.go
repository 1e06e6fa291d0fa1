package dockertest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// defaultInterval is Docker's default interval between probes.
const defaultInterval = 30 * time.Second

// OnPause registers hook, which is called after each freeze and thaw of a container, by any client, with the container's new
// state; its Paused distinguishes the two. A stop thaws, a kill and a removal don't. Hooks are called as for OnStart.
func (f *Fake) OnPause(hook func(dockerx.ContainerDetail)) {
	f.do(func() { f.onPause = hook })
}

// PauseContainer implements Subject.
func (f *Fake) PauseContainer(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpPauseContainer, func() error { return f.freeze(id, true) })
}

// UnpauseContainer implements Subject.
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
		f.emitContainer(c, dockerx.ActionPause)
	default:
		c.detail.Paused, c.detail.State = false, dockerx.StateRunning
		f.emitContainer(c, dockerx.ActionUnpause)
		f.probeAgain(c)
	}
	f.queueHook(f.onPause, c)
	return nil
}

// probeAgain resumes the healthcheck of a thawed container: lists report unhealthy until the next probe, which yields the
// verdict that came up during the freeze, or else the previous one. Called with mu held.
func (f *Fake) probeAgain(c *fakeContainer) {
	if !c.checked() {
		return
	}
	c.listedSick = true
	c.thaws++
	run, thaw := c.ended, c.thaws
	time.AfterFunc(cmp.Or(c.spec.Healthcheck.Interval, defaultInterval), func() {
		f.do(func() {
			verdict := cmp.Or(c.due, c.detail.Health)
			if c.ended == run && c.detail.Running && !c.detail.Paused && c.thaws == thaw && verdict != dockerx.HealthStarting {
				f.setHealth(c, verdict)
			}
		})
	})
}
