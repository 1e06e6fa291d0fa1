package dockertest

import (
	"fmt"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// SetHealth has the healthcheck of a running container come to a verdict, with its event if it is a new one. A frozen
// container has it with its first probe after the thaw. Nothing happens to one that does not run or has no healthcheck.
func (f *Fake) SetHealth(id string, h dockerx.Health) {
	_ = f.locked(func() error {
		if c, err := f.find(id); err == nil && c.detail.Running && c.checked() {
			f.setHealth(c, h)
		}
		return nil
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
	f.tellContainer(c, dockerx.ActionHealth)
}

// beginHealth starts the healthcheck of the run that begins. Called with mu held.
func (*Fake) beginHealth(c *fakeContainer) {
	c.detail.Health, c.detail.HealthOutput = dockerx.HealthNone, ""
	if c.checked() {
		c.detail.Health = dockerx.HealthStarting
	}
}

// orderVerdict has the verdict on that run come, after the hook of its start. Called with mu held.
func (f *Fake) orderVerdict(c *fakeContainer) {
	if c.checked() {
		spec, run := copySpec(c.spec), c.ended
		f.hooks = append(f.hooks, func() { f.judge(c, spec, run) })
	}
}

// judge asks HealthBehavior and does as it says, if the run has not ended by then.
func (f *Fake) judge(c *fakeContainer, spec dockerx.ContainerSpec, run chan struct{}) {
	verdict, delay := dockerx.HealthHealthy, time.Duration(0)
	if f.HealthBehavior != nil {
		verdict, delay = f.HealthBehavior(spec)
	}
	say := func() {
		_ = f.locked(func() error {
			if c.ended == run && c.detail.Running {
				f.setHealth(c, verdict)
			}
			return nil
		})
	}
	if delay <= 0 {
		say()
		return
	}
	time.AfterFunc(delay, say)
}
