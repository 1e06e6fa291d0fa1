// Package usage reports what running sandboxes use: the IDs of their containers are on record, and the kernel counts what these use. It
// needs no engine and has no state.
package usage

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// Options are the dependencies of a Meter. All are required.
type Options struct {
	// List, Sandbox and Count, CountByState, are those of the store.
	List    func(ctx context.Context, f store.Filter) ([]store.Sandbox, error)
	Sandbox func(ctx context.Context, id string) (store.Sandbox, error)
	Count   func() map[agboxv1.SandboxState]int
	// Read is dockerx.Engine.Usage.
	Read   func(containerIDs []string) map[string]dockerx.Usage
	Logger *slog.Logger
}

// Meter reads what sandboxes use.
type Meter struct{ o Options }

// New returns a Meter.
func New(o Options) *Meter { return &Meter{o} }

// Stats returns what these sandboxes use, or without IDs what all READY and PAUSED ones use, newest first. Errors: those of store.Sandbox.
func (m *Meter) Stats(ctx context.Context, ids []string) ([]*agboxv1.SandboxStats, error) {
	var all []store.Sandbox
	if len(ids) == 0 {
		found, err := m.o.List(ctx, store.Filter{})
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(found, func(sb store.Sandbox) bool { return !runs(sb) })
	}
	for _, id := range ids {
		sb, err := m.o.Sandbox(ctx, id)
		if err != nil {
			return nil, err
		}
		all = append(all, sb)
	}
	return m.stats(all), nil
}

// Scrape returns what each running sandbox uses, all its containers together, or only their number if they are more than most.
func (m *Meter) Scrape(most int) (used []metrics.SandboxUsage, omitted int) {
	counts := m.o.Count()
	running := counts[agboxv1.SandboxState_SANDBOX_STATE_READY] + counts[agboxv1.SandboxState_SANDBOX_STATE_PAUSED]
	if running > most {
		return nil, running
	}
	all, err := m.Stats(context.Background(), nil)
	if err != nil {
		m.o.Logger.Warn("what sandboxes use can't be read for a scrape", "err", err)
		return nil, running
	}
	for _, sb := range all {
		if len(sb.GetContainers()) > 0 {
			used = append(used, totals(sb))
		}
	}
	return used, 0
}

// totals adds up the containers of one sandbox.
func totals(sb *agboxv1.SandboxStats) metrics.SandboxUsage {
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

// runs reports whether the containers of a sandbox should be there.
func runs(sb store.Sandbox) bool {
	frozen := sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && sb.Desired.GetDemotedAt() == 0
	return !sb.Corrupt && (sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY || frozen)
}

func (m *Meter) stats(all []store.Sandbox) []*agboxv1.SandboxStats {
	var containers []string
	for _, sb := range all {
		if o := sb.Desired.GetObjects(); o != nil && runs(sb) {
			containers = slices.AppendSeq(append(containers, o.GetPrimaryId()), maps.Values(o.GetServiceIds()))
		}
	}
	used := m.o.Read(containers)
	out := make([]*agboxv1.SandboxStats, len(all))
	for i, sb := range all {
		out[i] = &agboxv1.SandboxStats{SandboxId: sb.ID, Name: sb.Name, State: sb.State}
		add := func(service, id string) {
			if u, ok := used[id]; ok {
				out[i].Containers = append(out[i].Containers, container(service, u))
			}
		}
		objects := sb.Desired.GetObjects()
		add("", objects.GetPrimaryId())
		for _, service := range slices.Sorted(maps.Keys(objects.GetServiceIds())) {
			add(service, objects.GetServiceIds()[service])
		}
	}
	return out
}

func container(service string, u dockerx.Usage) *agboxv1.ContainerStats {
	return &agboxv1.ContainerStats{
		ServiceName: service, CpuTime: durationpb.New(u.CPU), MemoryBytes: u.MemoryBytes, MemoryLimitBytes: u.MemoryLimitBytes,
		Pids: u.Pids, PidsLimit: u.PidsLimit, IoReadBytes: u.ReadBytes, IoWrittenBytes: u.WrittenBytes,
	}
}
