package main

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/channel/hub"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/sandboxstate"
	"github.com/agbox/agbox/internal/server"
)

func metricSets() metrics.Sets {
	sets := metrics.Sets{
		Loops: controller.Loops(), EngineOps: dockerx.Ops(), Disks: diskNames(), ExecStates: exec.EndStates(),
	}
	for _, phase := range enum.Values[agboxv1.DrainPhase]() {
		sets.DrainPhases = append(sets.DrainPhases, phase.String())
	}
	for _, kind := range clockjump.Jumps() {
		sets.ClockJumps = append(sets.ClockJumps, string(kind))
	}
	sets.AgentTriggers, sets.ChannelDrops, sets.StreamPaths = agent.Triggers(), hub.DropReasons, server.Paths
	for _, source := range recovery.Sources() {
		sets.RebuildSources = append(sets.RebuildSources, string(source))
	}
	for _, k := range plan.Kinds() {
		sets.Steps = append(sets.Steps, string(k))
	}
	return sets
}

// exportMetrics registers the numbers that are read when they are scraped.
func (d *daemon) exportMetrics() {
	metrics.Export(d.registry, metrics.Live{
		OverQuota: d.ctl.OverQuota, Channels: d.channels.Count, UnreadableSecrets: d.ctl.UnreadableSecrets, Vanished: d.ctl.Held, LogWhole: d.store.LogWhole, AgentsInNeed: d.store.CountAgentsInNeed,
		Usage:     func() ([]metrics.SandboxUsage, int) { return d.ctl.Scrape(d.current.Load().Metrics.MaxSandboxes) },
		Sandboxes: byState(sandboxstate.Live(), d.store.CountByState), Agents: byState(enum.Values[agboxv1.AgentState](), d.store.CountAgentsByState),
	})
}

// byState returns the numbers of all states by their labels.
func byState[S interface {
	comparable
	protoreflect.Enum
}](states []S, count func() map[S]int) func() map[string]int {
	return func() map[string]int {
		counts, byLabel := count(), map[string]int{}
		for _, s := range states {
			byLabel[strings.ToLower(enum.Word(s))] = counts[s]
		}
		return byLabel
	}
}
