package main

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/metrics"
)

// usage returns what each running sandbox uses, or only their number if they are more than metrics.max_sandboxes.
func (d *daemon) usage() (used []metrics.SandboxUsage, omitted int) {
	counts := d.store.CountByState()
	running := counts[agboxv1.SandboxState_SANDBOX_STATE_READY] + counts[agboxv1.SandboxState_SANDBOX_STATE_PAUSED]
	if running > d.current.Load().Metrics.MaxSandboxes {
		return nil, running
	}
	all, err := d.ctl.Stats(context.Background(), nil)
	if err != nil {
		d.log.Warn("what sandboxes use can't be read for a scrape", "err", err)
		return nil, running
	}
	for _, sb := range all {
		if len(sb.GetContainers()) > 0 {
			used = append(used, usageOf(sb))
		}
	}
	return used, 0
}

// usageOf adds up the containers of one sandbox.
func usageOf(sb *agboxv1.SandboxStats) metrics.SandboxUsage {
	u, unlimited := metrics.SandboxUsage{ID: sb.GetSandboxId(), Name: sb.GetName()}, false
	for _, c := range sb.GetContainers() {
		u.CPUSeconds += c.GetCpuTime().AsDuration().Seconds()
		u.MemoryBytes += float64(c.GetMemoryBytes())
		u.MemoryLimitBytes += float64(c.GetMemoryLimitBytes())
		u.Pids += float64(c.GetPids())
		u.ReadBytes += float64(c.GetIoReadBytes())
		u.WrittenBytes += float64(c.GetIoWrittenBytes())
		unlimited = unlimited || c.GetMemoryLimitBytes() == 0
	}
	if unlimited {
		u.MemoryLimitBytes = 0
	}
	return u
}
