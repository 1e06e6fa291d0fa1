package controller

import (
	"context"
	"sync"
	"time"

	"github.com/agbox/agbox/internal/wait"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/store"
)

// Bounds of a clock that runs as it should.
const (
	// clockLook is how often the clock is looked at when nothing else does: what a deadline is late by after a jump.
	clockLook = time.Second
	// clockJump is by how much the wall clock may differ from the time that went by before timers are reset; less is what NTP
	// does. What deadlines wait for is larger: clockjump.Tolerance.
	clockJump = 500 * time.Millisecond
)

// clock is the wall clock of all deadlines. Timers run by another one, which knows no suspend and no change by hand; so a
// jump between the two is noticed, whoever reads it first.
type clock struct {
	source func() clockjump.Reading
	grace  func() time.Duration

	mu     sync.Mutex
	state  clockjump.State
	last   clockjump.Reading
	awake  time.Time // wall time after the last jump, or at the start: earlier readings are unknown
	jumps  int
	events []clockjump.Event // not taken yet
}

// look is one reading of the clock. A pass decides everything by one reading.
type look struct {
	now    time.Time
	moment clockjump.Moment
	// awake is when the clock last jumped, or when this daemon started.
	awake time.Time
	// hold is how long deadlines still wait.
	hold time.Duration
}

// dated is the record with the times that it means.
func (l look) dated(rec plan.Record, sb store.Sandbox) plan.Record {
	rec.StateChangedAt, rec.IdleSince = l.moment.Began(rec.StateChangedAt), l.moment.Began(rec.IdleSince)
	rec.DemotedAt, rec.DeadlineAt = l.moment.Began(rec.DemotedAt), sb.DeadlineBy(l.moment)
	return rec
}

// began is plan.Policy.Began by this reading.
func (l look) began(t time.Time) time.Time {
	return plan.Policy{AwakeSince: l.awake, Hold: l.hold}.Began(t, l.now)
}

func newClock(source func() clockjump.Reading, grace func() time.Duration, known clockjump.State) *clock {
	if source == nil {
		source = wallAlone
	}
	c := &clock{source: source, grace: grace, state: known}
	c.last = source()
	c.awake = c.last.Wall
	c.look()
	return c
}

// wallAlone is a clock that never jumps.
func wallAlone() clockjump.Reading {
	wall := time.Now().Round(0)
	up := wall.Sub(time.Unix(0, 0))
	return clockjump.Reading{Wall: wall, SinceBoot: up, Awake: up, BootID: "unknown", Synced: true}
}

// look reads the clock and notes a jump.
func (c *clock) look() look {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, grace := c.source(), c.grace()
	jump := r.Wall.Sub(c.last.Wall) - (r.Awake - c.last.Awake)
	if jump > clockJump || jump < -clockJump {
		c.awake = r.Wall
		c.jumps++
	}
	c.last = r
	var events []clockjump.Event
	c.state, events = c.state.Look(r, grace)
	c.events = append(c.events, events...)
	return look{now: r.Wall, moment: c.state.Moment(r), awake: c.awake, hold: c.state.Left(r, grace)}
}

// read returns the wall clock.
func (c *clock) read() time.Time { return c.look().now }

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

// known returns the present state of the clock.
func (c *clock) known() clockjump.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// take returns the state of the clock, its last reading, and the events since the previous take.
func (c *clock) take() (clockjump.State, clockjump.Reading, []clockjump.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return c.state, c.last, events
}

// watchClock enqueues every sandbox after a jump, because timers that were set before it fire at the wrong moment, and again when
// deadlines wait no longer. It keeps the record of the clock.
func (c *Controller) watchClock(ctx context.Context) {
	seen, record := c.clock.jumped(), clockRecorder{store: c.cfg.Store, log: c.log}
	for alive := true; alive; alive = wait.For(ctx, clockLook) == nil {
		l := c.clock.look()
		state, reading, events := c.clock.take()
		c.tellOfClock(l, events)
		if n := c.clock.jumped(); n != seen || len(events) > 0 {
			seen = n
			c.wakeAll()
		}
		record.keep(ctx, state, reading, len(events) > 0)
	}
}

// tellOfClock leaves the traces of what happened to the clock.
func (c *Controller) tellOfClock(l look, events []clockjump.Event) {
	var until time.Time
	if l.hold > 0 {
		until = l.now.Add(l.hold)
	}
	c.cfg.Metrics.DeadlinesWait(until)
	for _, e := range events {
		switch e.Kind {
		case clockjump.Returned:
			c.log.Info("the clock jumped back; deadlines wait for it no longer", "by", e.By.String(), "until", until)
		case clockjump.Believed:
			c.log.Info("the clock is accepted as it is", "now", l.now, "until", until)
		default:
			c.cfg.Metrics.ClockJumped(string(e.Kind))
			c.log.Warn("the clock jumped, or the host slept or booted; deadlines wait", "kind", string(e.Kind), "by", e.By.String(), "until", until)
		}
	}
}

// ClockWarning says in one sentence until when deadlines wait, and why; empty when they don't.
func (c *Controller) ClockWarning() string {
	l := c.clock.look()
	if l.hold <= 0 {
		return ""
	}
	state := c.clock.known()
	why := "the host slept"
	switch d := state.Doubt; {
	case d == nil:
	case d.NewBoot:
		why = "the host booted, and its clock is not synchronised, or earlier than before"
	default:
		why = "the host's clock jumped by " + d.BootedAt.Sub(state.BootedAt).Round(time.Second).String()
	}
	return why + "; deadlines wait until " + l.now.Add(l.hold).UTC().Format(time.RFC3339) + ", for another " +
		l.hold.Round(time.Second).String() + " (runtime.clock_grace)"
}

func (c *Controller) wakeAll() {
	for _, id := range c.cfg.Store.LiveIDs() {
		c.sandboxes.Add(id)
	}
}
