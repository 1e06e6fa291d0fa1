package dockertest

import (
	"fmt"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// SetHealth sets the verdict of a running container's healthcheck, with its event if it is a new one. A frozen container
// gets it with the first probe after the thaw. It does nothing for a container that does not run or has no healthcheck.
func (f *Fake) SetHealth(id string, h dockerx.Health) {
	f.doTo(id, func(c *fakeContainer) {
		if c.detail.Running && c.checked() {
			f.setHealth(c, h)
		}
	})
}

// checked reports whether c has a healthcheck; images of a Fake have none.
func (c *fakeContainer) checked() bool {
	h := c.spec.Healthcheck
	return h != nil && len(h.Test) > 0 && h.Test[0] != "NONE"
}

// setHealth is called with mu held.
func (f *Fake) setHealth(c *fakeContainer, h dockerx.Health) {
	if c.detail.Paused {
		c.due = h
		return
	}
	before := c.detail.Health
	if c.listedSick {
		before = dockerx.HealthUnhealthy
	}
	c.detail.Health, c.due, c.listedSick = h, dockerx.HealthNone, false
	if before == h {
		return
	}
	c.detail.HealthOutput = fmt.Sprintf("the probe says %s\n", h)
	f.emitContainer(c, dockerx.ActionHealth)
}

// startHealth starts the healthcheck of a run that starts. Called with mu held.
func (*Fake) startHealth(c *fakeContainer) {
	c.detail.Health, c.detail.HealthOutput = dockerx.HealthNone, ""
	if c.checked() {
		c.detail.Health = dockerx.HealthStarting
	}
}

// scheduleVerdict schedules the first verdict of the run after the start hook. Called with mu held.
func (f *Fake) scheduleVerdict(c *fakeContainer) {
	if c.checked() {
		spec, run := copySpec(c.spec), c.ended
		f.hooks = append(f.hooks, func() { f.probeOnce(c, spec, run) })
	}
}

// probeOnce applies the verdict of HealthBehavior, unless the run has ended by then.
func (f *Fake) probeOnce(c *fakeContainer, spec dockerx.ContainerSpec, run chan struct{}) {
	verdict, delay := dockerx.HealthHealthy, time.Duration(0)
	if f.HealthBehavior != nil {
		verdict, delay = f.HealthBehavior(spec)
	}
	apply := func() {
		f.do(func() {
			if c.ended == run && c.detail.Running {
				f.setHealth(c, verdict)
			}
		})
	}
	if delay <= 0 {
		apply()
		return
	}
	time.AfterFunc(delay, apply)
}
