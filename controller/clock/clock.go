// Package clock holds the wall clock by which all deadlines are judged. It notices when that clock jumps or the host sleeps, keeps
// what it knows of the clock on record, and says how long deadlines wait until the clock is accepted.
package clock

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Bounds of a clock that runs as it should.
const (
	// readEvery is how often Watch reads the clock when nothing else does, and by how much a deadline may be late after a jump.
	readEvery = time.Second
	// tolerance is by how much the wall clock may differ from the elapsed time before timers are reset. NTP stays below it. Deadlines
	// wait only after a larger difference: clockjump.Tolerance.
	tolerance = 500 * time.Millisecond
)

// Clock is the wall clock of all deadlines. Timers run by another clock, which does not count suspends and cannot be set; each reading
// compares the two and notices a jump. It is safe for concurrent use.
type Clock struct {
	source func() clockjump.Reading
	grace  func() time.Duration

	mu     sync.Mutex
	state  clockjump.State
	last   clockjump.Reading
	awake  time.Time // wall time after the last jump, or at the start: earlier readings are unknown
	jumps  int
	events []clockjump.Event // not returned by drain yet
}

// Reading is one reading of the clock. A pass decides everything by one reading.
type Reading struct {
	Now    time.Time
	Moment clockjump.Moment
	// Awake is when the clock last jumped, or when this daemon started.
	Awake time.Time
	// Hold is how long deadlines still wait.
	Hold time.Duration
	// jumps counts the jumps in either direction.
	jumps int
	state clockjump.State
}

// Dated returns the record with its times as the present clock would have recorded them; see clockjump.Moment.
func (l Reading) Dated(rec plan.Record, sb store.Sandbox) plan.Record {
	rec.StateChangedAt, rec.IdleSince = l.Moment.Began(rec.StateChangedAt), l.Moment.Began(rec.IdleSince)
	rec.DemotedAt, rec.DeadlineAt = l.Moment.Began(rec.DemotedAt), sb.DeadlineBy(l.Moment)
	return rec
}

// Began is plan.Policy.Began by this reading.
func (l Reading) Began(t time.Time) time.Time {
	return plan.Policy{AwakeSince: l.Awake, Hold: l.Hold}.Began(t, l.Now)
}

// New returns a clock that goes on from a known state. source reads the host's clocks; nil: the wall clock alone, which never jumps. grace
// returns for how long deadlines wait after a jump.
func New(source func() clockjump.Reading, grace func() time.Duration, known clockjump.State) *Clock {
	if source == nil {
		source = wallAlone
	}
	c := &Clock{source: source, grace: grace, state: known}
	c.last = source()
	c.awake = c.last.Wall
	c.Read()
	return c
}

// wallAlone is a clock that never jumps.
func wallAlone() clockjump.Reading {
	wall := time.Now().Round(0)
	up := wall.Sub(time.Unix(0, 0))
	return clockjump.Reading{Wall: wall, SinceBoot: up, Awake: up, BootID: "unknown", Synced: true}
}

// Read reads the clock and notices a jump.
func (c *Clock) Read() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, grace := c.source(), c.grace()
	jump := r.Wall.Sub(c.last.Wall) - (r.Awake - c.last.Awake)
	if jump > tolerance || jump < -tolerance {
		c.awake = r.Wall
		c.jumps++
	}
	c.last = r
	var events []clockjump.Event
	c.state, events = c.state.Observe(r, grace)
	c.events = append(c.events, events...)
	return Reading{Now: r.Wall, Moment: c.state.Moment(r), Awake: c.awake, Hold: c.state.Left(r, grace), jumps: c.jumps, state: c.state}
}

// Now reads the clock and returns the wall clock's time.
func (c *Clock) Now() time.Time { return c.Read().Now }

// drain returns the state of the clock, its last reading, and the events since the previous call.
func (c *Clock) drain() (clockjump.State, clockjump.Reading, []clockjump.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	events := c.events
	c.events = nil
	return c.state, c.last, events
}

// Watcher holds the dependencies of Watch.
type Watcher struct {
	Store Recorder
	// Changed is called after a jump, because timers that were set before it fire at the wrong moment, and again when deadlines wait no
	// longer. It must not block.
	Changed func()
	Metrics *metrics.Metrics
	Logger  *slog.Logger
}

// Watch reads the clock every second, and keeps its state on record, until ctx ends.
func (c *Clock) Watch(ctx context.Context, o Watcher) {
	seen, record := 0, keeper{store: o.Store, log: o.Logger} // jumps count since New
	for alive := true; alive; alive = wait.For(ctx, readEvery) == nil {
		l := c.Read()
		state, reading, events := c.drain()
		o.report(l, events)
		if l.jumps != seen || len(events) > 0 {
			seen = l.jumps
			o.Changed()
		}
		record.write(ctx, state, reading, len(events) > 0)
	}
}

// report logs and counts what happened to the clock.
func (o Watcher) report(l Reading, events []clockjump.Event) {
	var until time.Time
	if l.Hold > 0 {
		until = l.Now.Add(l.Hold)
	}
	o.Metrics.DeadlinesWait(until)
	for _, e := range events {
		switch e.Kind {
		case clockjump.Returned:
			o.Logger.Info("the clock jumped back; deadlines wait for it no longer", "by", e.By.String(), "until", until)
		case clockjump.Believed:
			o.Logger.Info("the clock is accepted as it is", "now", l.Now, "until", until)
		default:
			o.Metrics.ClockJumped(string(e.Kind))
			o.Logger.Warn("the clock jumped, or the host slept or booted; deadlines wait", "kind", string(e.Kind), "by", e.By.String(), "until", until)
		}
	}
}

// Warning says in one sentence until when deadlines wait, and why; empty when they don't.
func (c *Clock) Warning() string {
	l := c.Read()
	if l.Hold <= 0 {
		return ""
	}
	why := "the host slept"
	switch d := l.state.Doubt; {
	case d == nil:
	case d.NewBoot:
		why = "the host booted, and its clock is not synchronised, or earlier than before"
	default:
		why = "the host's clock jumped by " + d.BootedAt.Sub(l.state.BootedAt).Round(time.Second).String()
	}
	return why + "; deadlines wait until " + l.Now.Add(l.Hold).UTC().Format(time.RFC3339) + ", for another " +
		l.Hold.Round(time.Second).String() + " (runtime.clock_grace)"
}
