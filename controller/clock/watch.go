package clock

import (
	"context"
	"log/slog"
	"time"

	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/wait"
)

// Watcher is what Watch works with.
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
	seen, record := c.jumped(), keeper{store: o.Store, log: o.Logger}
	for alive := true; alive; alive = wait.For(ctx, readEvery) == nil {
		l := c.Read()
		state, reading, events := c.drain()
		o.report(l, events)
		if n := c.jumped(); n != seen || len(events) > 0 {
			seen = n
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
	state := c.known()
	why := "the host slept"
	switch d := state.Doubt; {
	case d == nil:
	case d.NewBoot:
		why = "the host booted, and its clock is not synchronised, or earlier than before"
	default:
		why = "the host's clock jumped by " + d.BootedAt.Sub(state.BootedAt).Round(time.Second).String()
	}
	return why + "; deadlines wait until " + l.Now.Add(l.Hold).UTC().Format(time.RFC3339) + ", for another " +
		l.Hold.Round(time.Second).String() + " (runtime.clock_grace)"
}
