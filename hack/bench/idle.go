package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/wait"
)

const (
	idleAgents = 500
	idleWatch  = 30 * time.Second
	// mostIdle is the largest CPU time in idleWatch: 1 % of a core.
	mostIdle = idleWatch / 100

	restartAgents = 1000
	mostRestart   = 2 * time.Second
	restartRounds = 3
)

// idle measures the cost of idle agents, and how soon a killed daemon has reconciled all of them after its restart. broken lists the broken
// promises.
func (d *daemon) idle(ctx context.Context, boxes []string, w io.Writer) (broken []error, err error) {
	if err := d.grow(ctx, boxes, 0, idleAgents); err != nil {
		return nil, err
	}
	used, err := d.used(ctx, idleWatch)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "%d idle agents, of a core (promised: below %.0f %%)\t%.3f %%\n", idleAgents,
		100*mostIdle.Seconds()/idleWatch.Seconds(), 100*used.Seconds()/idleWatch.Seconds())
	if err := d.grow(ctx, boxes, idleAgents, restartAgents); err != nil {
		return nil, err
	}
	var slowest time.Duration
	for range restartRounds {
		took, err := d.restart(ctx, false, func(ctx context.Context) error { return d.await(ctx, restartAgents) })
		if err != nil {
			return nil, err
		}
		slowest = max(slowest, took)
	}
	fmt.Fprintf(w, "restart with %d agents until all are observed, slowest of %d (promised: below %s)\t%s\n",
		restartAgents, restartRounds, mostRestart, slowest.Round(time.Millisecond))
	return []error{
		below(fmt.Sprintf("CPU time of %d idle agents in %s", idleAgents, idleWatch), used, mostIdle),
		below(fmt.Sprintf("restart with %d agents", restartAgents), slowest, mostRestart),
	}, nil
}

// grow creates agents until their number is to and all are IDLE. It expects from agents at the start.
func (d *daemon) grow(ctx context.Context, boxes []string, from, to int) error {
	if err := d.await(ctx, from); err != nil {
		return err
	}
	for i := from; i < to; i++ {
		progress("agent %d of %d", i+1, to)
		if err := d.addAgent(ctx, boxes[i%len(boxes)], fmt.Sprintf("bench-idle-%d", i)); err != nil {
			return err
		}
	}
	progressEnds()
	return d.await(ctx, to)
}

// used returns the CPU time of the daemon over a period without calls.
func (d *daemon) used(ctx context.Context, while time.Duration) (time.Duration, error) {
	before, err := cpu(d.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	if err := wait.For(ctx, while); err != nil {
		return 0, err
	}
	after, err := cpu(d.cmd.Process.Pid)
	return after - before, err
}

// cpu returns the CPU time of a process on all cores, in nanoseconds, from its CPU clock; see clock_getcpuclockid(3).
func cpu(pid int) (time.Duration, error) {
	const schedClock = 2 // the kernel's CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &ts); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
