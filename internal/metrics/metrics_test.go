package metrics

import (
	"errors"
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
	New(reg, Sets{Loops: []string{"boxes"}, Steps: []string{"jump"}, EngineOps: []string{"list"}, AgentTriggers: []string{"spawn"}})
	samples := gather(t, reg)
	for _, key := range []string{
		"agboxd_reconcile_total{loop=boxes,result=done}",
		"agboxd_reconcile_total{loop=boxes,result=panic}",
		"agboxd_steps_total{result=error,step=jump}",
		"agboxd_engine_calls_total{op=list,result=error}",
		"agboxd_store_commits_total{result=error}",
		"agboxd_agent_transitions_total{trigger=spawn}",
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
	Export(reg, Live{
		OverQuota: func() int { return 6 }, UnreadableSecrets: func() int { return 7 }, Vanished: func() int { return 4 }, LogWhole: func() bool { return true }, AgentsInNeed: func() int { return 5 },
		Sandboxes: func() map[string]int { return map[string]int{"ready": 3, "failed": 0} },
		Agents:    func() map[string]int { return map[string]int{"busy": 2, "pending": 0} },
	})
	samples := gather(t, reg)
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
