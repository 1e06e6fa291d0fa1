package controller_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/internal/metrics"
)

func TestWhatAgentsDoIsCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg, metrics.Sets{AgentTriggers: agent.Triggers()})
	withDaemon(t, func(t *testing.T, p *player) {
		p.newAgent(t, p.readyBox(t), "ada", nil)
		p.prompt(t, "ada", "work 4000")
		p.prompt(t, "ada", "crash-before 2")
		pass(20 * time.Second)
		if err := p.restart(-1); err != nil { // the next daemon counts nothing twice
			t.Fatal(err)
		}
		pass(time.Second)
		p.wantAgent(t, "ada", agentIdle)
		want := map[string]float64{
			"agboxd_agent_prompts_total": 3, "agboxd_agent_turn_seconds": 2, "seconds": 4.1,
			"spawn": 2, "connected": 2, "prompt_received": 3, "result_received": 2, "process_crashed": 1, "start_timed_out": 0,
		}
		got := samples(t, reg)
		for name, n := range want {
			if d := got[name] - n; d < -.01 || d > .01 {
				t.Errorf("%s is %v, want %v", name, got[name], n)
			}
		}
	}, func(c *controller.Config) { c.Metrics = m })
}

// samples returns the values by the label trigger, or else by name.
func samples(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			name := f.GetName()
			for _, l := range one.GetLabel() {
				if l.GetName() == "trigger" {
					name = l.GetValue()
				}
			}
			got[name] = one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
			if name == "agboxd_agent_turn_seconds" {
				got["seconds"] = one.GetHistogram().GetSampleSum()
			}
		}
	}
	return got
}
