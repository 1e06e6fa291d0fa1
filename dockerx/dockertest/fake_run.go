package dockertest

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// StartContainer implements Subject.
func (f *Fake) StartContainer(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpStartContainer, func() error { return f.start(id) })
}

// start is called with mu held.
func (f *Fake) start(id string) error {
	c, err := f.find(id)
	switch {
	case err != nil:
		return err
	case c.detail.Paused:
		return fmt.Errorf("container %s is paused: %w", id, errdefs.ErrFailedPrecondition)
	case c.detail.Running:
		return nil
	}
	if err := f.setUp(c); err != nil {
		f.emitDisconnects(c) // the engine rolls back the start
		return err
	}
	f.lastID++
	d := &c.detail
	d.State, d.Running, d.OOMKilled, d.ExitCode = dockerx.StateRunning, true, false, 0
	d.StartedAt, d.Pid = f.clock().UTC(), f.lastID
	c.ended = make(chan struct{})
	f.startHealth(c)
	f.emitContainer(c, dockerx.ActionStart)
	f.queueHook(f.onStart, c)
	f.scheduleVerdict(c)
	return nil
}

// setUp returns the reasons to refuse a start. Called with mu held.
func (f *Fake) setUp(c *fakeContainer) error {
	if err := f.checkSources(c.spec.Mounts); err != nil {
		return err
	}
	if c.spec.GPUs != "" && !f.info().GPUs {
		return fmt.Errorf("no device driver for gpus %s: %w", c.spec.GPUs, errdefs.ErrInternal)
	}
	if err := f.attach(c); err != nil {
		return err
	}
	return f.publish(c)
}

// attach looks the network up by name, as 20.10 does at each start.
func (f *Fake) attach(c *fakeContainer) error {
	if c.network == "" {
		return nil
	}
	var found []string
	for id, n := range f.networks {
		if n.Name == c.network || id == c.network {
			found = append(found, id)
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("network %s: %w", c.network, errdefs.ErrNotFound)
	case 1:
		c.detail.Networks = found
		return nil
	}
	return fmt.Errorf("network %s is ambiguous: %w", c.network, errdefs.ErrFailedPrecondition)
}

// end ends the present run of c, if there is one. Called with mu held.
func (f *Fake) end(c *fakeContainer, code int, oom, emit bool) {
	if !c.detail.Running {
		return
	}
	d := &c.detail
	d.State, d.Running, d.Paused, d.Pid = dockerx.StateExited, false, false, 0
	d.ExitCode, d.OOMKilled, d.FinishedAt = code, d.OOMKilled || oom, f.clock().UTC()
	d.Health, d.Ports = dockerx.HealthNone, nil
	c.due, c.listedSick = dockerx.HealthNone, false
	c.endedAt = time.Now()
	close(c.ended)
	if emit && oom {
		f.emitContainer(c, dockerx.ActionOOM)
	}
	if emit {
		f.emitDisconnects(c) // as current engines do; Docker 20.10 sends it after the die event
		f.emitContainer(c, dockerx.ActionDie)
	}
	f.queueHook(f.onStop, c)
}

func (f *Fake) queueHook(hook func(dockerx.ContainerDetail), c *fakeContainer) {
	if hook != nil {
		d := c.copy()
		f.hooks = append(f.hooks, func() { hook(d) })
	}
}

// StopContainer implements Subject.
func (f *Fake) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	grace = (max(grace, 0) + time.Second - 1).Truncate(time.Second)
	return f.callUnlocked(ctx, dockerx.OpStopContainer, func(ctx context.Context) error { return f.stop(ctx, id, grace) })
}

func (f *Fake) stop(ctx context.Context, id string, grace time.Duration) error {
	f.mu.Lock()
	c, err := f.find(id)
	if err != nil || !c.detail.Running {
		f.mu.Unlock()
		return nil
	}
	_ = f.freeze(c.detail.ID, false) // so that the container receives the signal
	ended, link := c.ended, f.link
	f.mu.Unlock()
	f.runHooks()
	code, takes := 143, time.Duration(0)
	if f.StopBehavior != nil {
		takes = f.StopBehavior(c.detail.ID)
	}
	if takes > grace {
		code, takes = 137, grace
	}
	end := func() {
		f.do(func() {
			// A restarted engine has sent its TERM, but will send no KILL.
			if c.ended == ended && (code == 143 || f.link.life == link.life) {
				f.end(c, code, false, true)
			}
		})
	}
	if takes <= 0 {
		end()
		return nil
	}
	time.AfterFunc(takes, end) // the engine continues even if the caller does not wait
	select {
	case <-ended:
		return nil
	case <-link.lost:
		return errUnreachable()
	case <-ctx.Done():
		return fmt.Errorf("stop container %s: %w", id, ctx.Err())
	}
}

func (f *Fake) clock() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}
