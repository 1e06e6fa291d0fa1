package controller

import (
	"context"
	"sync"
	"time"
)

// Bounds of a clock that runs as it should.
const (
	// clockLook is how often the clock is looked at when nothing else does: what a deadline is late by after a jump.
	clockLook = time.Second
	// clockJump is by how much the wall clock may differ from the time that went by; less is what NTP does.
	clockJump = 500 * time.Millisecond
)

// clock is the wall clock of all deadlines. Timers run by another one, which knows no suspend and no change by hand; so a
// jump between the two is noticed, whoever reads it first.
type clock struct {
	now func() time.Time

	mu    sync.Mutex
	wall  time.Time // as last read, without Go's monotonic part
	mono  time.Time // at the same moment, with it
	awake time.Time // wall time after the last jump, or at the start: nobody knows what the clock did before
	jumps int
}

func newClock(now func() time.Time) *clock {
	if now == nil {
		now = time.Now
	}
	wall := now().Round(0)
	return &clock{now: now, wall: wall, mono: time.Now(), awake: wall}
}

// read returns the wall clock and notes a jump.
func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.now().Round(0), time.Now()
	jump := wall.Sub(c.wall) - mono.Sub(c.mono)
	c.wall, c.mono = wall, mono
	if jump > clockJump || jump < -clockJump {
		c.awake = wall
		c.jumps++
	}
	return wall
}

// awakeSince is when the clock last jumped, or when this began.
func (c *clock) awakeSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awake
}

// jumped counts the jumps in either direction.
func (c *clock) jumped() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.jumps
}

// watchClock has everything looked at after a jump: timers that were set before it go off at the wrong moment.
func (c *Controller) watchClock(ctx context.Context) {
	seen := c.clock.jumped()
	for sleep(ctx, clockLook) {
		c.clock.read()
		if n := c.clock.jumped(); n != seen {
			seen = n
			c.log.Warn("the wall clock jumped; deadlines are looked at again")
			c.wakeAll()
		}
	}
}

func (c *Controller) wakeAll() {
	for _, id := range c.cfg.Store.LiveIDs() {
		c.sandboxes.add(id)
	}
}
