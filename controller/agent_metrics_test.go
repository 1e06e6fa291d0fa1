package controller_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/controller/agent"
	"github.com/agbox/agbox/controller/exec"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
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

func TestEndsOfExecsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg, metrics.Sets{ExecStates: exec.EndStates()})
	withDaemon(t, func(t *testing.T, p *player) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", nil) // its processes are not counted
		for id, command := range map[string][]string{
			"exec-well": {"sleep", "2000", "0"}, "exec-fails": {"sleep", "1000", "1"}, "exec-cancelled": {"sleep", "100000", "0"},
		} {
			if _, err := p.store.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: box, ExecId: id, Command: command}, store.Caller{}); err != nil {
				t.Fatal(err)
			}
		}
		pass(5 * time.Second)
		if _, err := p.store.RequestCancel(t.Context(), "exec-cancelled"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := p.restart(-1); err != nil { // the next daemon counts nothing twice
			t.Fatal(err)
		}
		pass(time.Minute)
		want := map[string]float64{"finished": 1, "failed": 1, "cancelled": 1, "agboxd_exec_seconds": 3}
		got := samples(t, reg)
		for name, n := range want {
			if got[name] != n {
				t.Errorf("%s is %v, want %v", name, got[name], n)
			}
		}
		if s := got["seconds"]; s < 8 || s > 30 {
			t.Errorf("they ran for %v s together, want 2 + 1 + 5 and the grace period", s)
		}
	}, func(c *controller.Config) { c.Metrics = m })
}

// samples returns the values by the labels trigger or state, or else by name.
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
				if l.GetName() == "trigger" || l.GetName() == "state" {
					name = l.GetValue()
				}
			}
			got[name] = one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
			if (name == "agboxd_agent_turn_seconds" || name == "agboxd_exec_seconds") && one.GetHistogram().GetSampleCount() > 0 {
				got["seconds"] = one.GetHistogram().GetSampleSum()
			}
		}
	}
	return got
}
