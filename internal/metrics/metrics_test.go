package metrics

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// gather returns all samples as "name{label=value,...}" -> value; histograms count their observations.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			samples[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return samples
}

func TestEveryKnownLabelValueStartsWithZero(t *testing.T) {
	reg := prometheus.NewRegistry()
	New(reg, Sets{Loops: []string{"boxes"}, ExecStates: []string{"failed"}, Steps: []string{"jump"}, EngineOps: []string{"list"}, AgentTriggers: []string{"spawn"}})
	samples := gather(t, reg)
	for _, key := range []string{
		"agboxd_reconcile_total{loop=boxes,result=done}",
		"agboxd_reconcile_total{loop=boxes,result=panic}",
		"agboxd_steps_total{result=error,step=jump}",
		"agboxd_engine_calls_total{op=list,result=error}",
		"agboxd_store_commits_total{result=error}",
		"agboxd_agent_transitions_total{trigger=spawn}",
		"agboxd_execs_total{state=failed}",
		"agboxd_exec_seconds{}",
		"agboxd_agent_prompts_total{}",
		"agboxd_agent_turn_seconds{}",
	} {
		if v, ok := samples[key]; !ok || v != 0 {
			t.Errorf("%s is %v, there %t", key, v, ok)
		}
	}
}

func TestCountersAndGauges(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg, Sets{})
	fault := errors.New("fault")
	m.Pass("boxes", ResultDone, time.Second)
	m.Step("jump", fault)
	m.EngineCall("list", time.Second, nil)
	m.Commit(time.Millisecond, 7, nil)
	m.Commit(time.Millisecond, 5, fault)
	m.RPC("/Ping", "OK", time.Millisecond)
	m.OrphanRemoved()
	m.LogDropped(7)
	m.Resynced(time.Unix(1000, 0), 2)
	m.EngineUp(true)
	m.ConfigLoaded(time.Unix(2000, 0))
	m.ConfigReloaded(fault)
	m.Build("v1")
	Export(reg, Live{
		OverQuota: func() int { return 6 }, Channels: func() int { return 8 }, UnreadableSecrets: func() int { return 7 }, Vanished: func() int { return 4 }, LogWhole: func() bool { return true }, AgentsInNeed: func() int { return 5 },
		Sandboxes: func() map[string]int { return map[string]int{"ready": 3, "failed": 0} },
		Agents:    func() map[string]int { return map[string]int{"busy": 2, "pending": 0} },
		Usage:     func() ([]SandboxUsage, int) { return nil, 0 },
	})
	samples := gather(t, reg)
	if key := "agboxd_build_info{goversion=" + runtime.Version() + ",version=v1}"; samples[key] != 1 {
		t.Errorf("%s is %v, want 1", key, samples[key])
	}
	for key, want := range map[string]float64{
		"agboxd_sandboxes_vanished{}":                    4,
		"agboxd_sandboxes_over_quota{}":                  6,
		"agboxd_secrets_unreadable{}":                    7,
		"agboxd_log_complete{}":                          1,
		"agboxd_agents_need_attention{}":                 5,
		"agboxd_agents{state=busy}":                      2,
		"agboxd_agents{state=pending}":                   0,
		"agboxd_reconcile_total{loop=boxes,result=done}": 1,
		"agboxd_reconcile_seconds{loop=boxes}":           1,
		"agboxd_steps_total{result=error,step=jump}":     1,
		"agboxd_engine_calls_total{op=list,result=ok}":   1,
		"agboxd_store_commits_total{result=ok}":          1,
		"agboxd_store_commits_total{result=error}":       1,
		"agboxd_store_writes_total{}":                    7,
		"agboxd_rpcs_total{code=OK,method=/Ping}":        1,
		"agboxd_orphans_removed_total{}":                 1,
		"agboxd_exec_log_dropped_bytes_total{}":          7,
		"agboxd_unknown_sandboxes{}":                     2,
		"agboxd_last_resync_timestamp_seconds{}":         1000,
		"agboxd_engine_up{}":                             1,
		"agboxd_config_reloads_total{result=error}":      1,
		"agboxd_config_reloads_total{result=ok}":         0,

		"agboxd_config_last_reload_success_timestamp_seconds{}": 2000,
		"agboxd_sandboxes{state=ready}":                         3,
		"agboxd_sandboxes{state=failed}":                        0,
	} {
		if v, ok := samples[key]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", key, v, ok, want)
		}
	}
}

func TestQueuesReportUnderTheirUsualNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "boxes", MetricsProvider: New(reg, Sets{}).QueueProvider()})
	defer q.ShutDown()
	q.Add("a")
	samples := gather(t, reg)
	if samples["workqueue_adds_total{name=boxes}"] != 1 || samples["workqueue_depth{name=boxes}"] != 1 {
		t.Errorf("got %v", samples)
	}
}

func TestUsageOfSandboxesIsReadOncePerScrape(t *testing.T) {
	reg, reads := prometheus.NewRegistry(), 0
	used, omitted := []SandboxUsage{{ID: "i1", Name: "web", CPUSeconds: 1.5, MemoryBytes: 2, MemoryLimitBytes: 3, Pids: 4, ReadBytes: 5, WrittenBytes: 6}}, 0
	none := func() map[string]int { return nil }
	Export(reg, Live{
		OverQuota: func() int { return 0 }, Channels: func() int { return 0 }, UnreadableSecrets: func() int { return 0 }, Vanished: func() int { return 0 }, LogWhole: func() bool { return true }, Sandboxes: none, Agents: none,
		AgentsInNeed: func() int { return 0 },
		Usage:        func() ([]SandboxUsage, int) { reads++; return used, omitted },
	})
	samples := gather(t, reg)
	for name, want := range map[string]float64{
		"agboxd_sandbox_cpu_seconds_total": 1.5, "agboxd_sandbox_memory_bytes": 2, "agboxd_sandbox_memory_limit_bytes": 3, "agboxd_sandbox_pids": 4,
		"agboxd_sandbox_io_read_bytes_total": 5, "agboxd_sandbox_io_written_bytes_total": 6,
	} {
		if got, ok := samples[name+"{sandbox=web,sandbox_id=i1}"]; got != want || !ok {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got, ok := samples["agboxd_sandbox_metrics_omitted{}"]; got != 0 || !ok || reads != 1 {
		t.Errorf("omitted %v, there %t; %d reads", got, ok, reads)
	}
	used, omitted = nil, 101
	if samples = gather(t, reg); samples["agboxd_sandbox_metrics_omitted{}"] != 101 {
		t.Errorf("too many sandboxes: %v", samples)
	}
	for name := range samples {
		if strings.Contains(name, "sandbox=") {
			t.Errorf("too many sandboxes, and still %s", name)
		}
	}
}
