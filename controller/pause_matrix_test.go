package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/store"
)

// TestEventsOnAPausedSandboxHaveOneOutcome plays each event in each situation: with a running daemon, without one, and with one
// that dies after each of its first side effects. The outcome and the events of the sandbox are the same each time. With -short it plays
// half of the situations, each with a death after one side effect, which varies from case to case.
func TestEventsOnAPausedSandboxHaveOneOutcome(t *testing.T) {
	for i, e := range happeningsWhilePaused {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			for j, s := range situations {
				kind := 2 * ((i + j) % 2) // plain, or with services
				deaths := deathAfter
				if testing.Short() {
					if (i/2+j)%2 > 0 {
						continue
					}
					deaths = deathAfter[(i+j)%len(deathAfter):][:1]
				}
				t.Run(s.name, func(t *testing.T) { e.wantOne(t, s, kind, deaths) })
			}
		})
	}
}

func (e happening) wantOne(t *testing.T, s situation, kind int, deaths []int) {
	want := strings.Split(e.want[slices.IndexFunc(situations, func(o situation) bool { return o.name == s.name })], " or ")
	told := map[string]string{} // by outcome
	check := func(alive bool, death int) {
		got, history := s.play(t, e, kind, alive, death)
		if !slices.Contains(want, got) {
			t.Errorf("daemon alive %t, death %d: got %q, want %q", alive, death, got, want)
		}
		if first := told[got]; first != "" && first != history {
			t.Errorf("daemon alive %t, death %d: told\n%s\nand before\n%s", alive, death, history, first)
		}
		told[got] = history
	}
	check(true, noDeath)
	for _, death := range deaths {
		check(false, death)
	}
}

// happening is an event and, by situation, the outcome of the sandbox: its state, its deadline, and the exec that ran.
type happening struct {
	name    string
	happens func(t *testing.T, p *player)
	takes   time.Duration
	want    [6]string // pausing, frozen, demoted, resuming, ready, resuming after a demotion
}

var happeningsWhilePaused = []happening{
	{name: "a pause", happens: acts("pause"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "PAUSED kept goes-on", "READY kept CANCELLED",
	}},
	{name: "a resume", happens: acts("resume"), want: [6]string{
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "a stop", happens: acts("stop"), want: [6]string{
		"STOPPED never CANCELLED", "STOPPED never CANCELLED", "STOPPED never CANCELLED",
		"READY kept goes-on", "STOPPED never CANCELLED", "READY kept CANCELLED",
	}},
	{name: "a delete", happens: acts("delete"), want: [6]string{
		"DELETED - CANCELLED", "DELETED - CANCELLED", "DELETED - CANCELLED",
		"DELETED - CANCELLED", "DELETED - CANCELLED", "DELETED - CANCELLED",
	}},
	{name: "an exec", happens: func(t *testing.T, p *player) { p.exec(t, "exec-1", time.Second) }, want: [6]string{
		"READY kept goes-on FINISHED", "READY kept goes-on FINISHED", "READY kept CANCELLED FINISHED",
		"READY kept goes-on FINISHED", "READY kept goes-on FINISHED", "READY kept CANCELLED FINISHED",
	}},
	{name: "a cancel of the exec", happens: acts("cancel"), want: [6]string{
		"PAUSED kept CANCELLED or PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept CANCELLED", "READY kept CANCELLED", "READY kept CANCELLED",
	}},
	{name: "a demotion", happens: acts("demote"), want: [6]string{
		"PAUSED demoted kept CANCELLED", "PAUSED demoted kept CANCELLED", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "a stop and a resume", happens: acts("stop", "resume"), want: [6]string{
		"STOPPED never CANCELLED", "STOPPED never CANCELLED", "STOPPED never CANCELLED or READY new CANCELLED",
		"READY kept goes-on", "STOPPED never CANCELLED", "READY kept CANCELLED",
	}},
	{name: "a resume and a pause", happens: acts("resume", "pause"), want: [6]string{
		"READY kept goes-on", "READY kept goes-on or PAUSED kept goes-on", "READY kept CANCELLED or PAUSED kept CANCELLED",
		"READY kept goes-on", "PAUSED kept goes-on", "READY kept CANCELLED",
	}},
	{name: "a later deadline", happens: setTimeout(time.Hour), want: [6]string{
		"PAUSED set goes-on", "PAUSED set goes-on", "PAUSED demoted set CANCELLED",
		"READY set goes-on", "READY set goes-on", "READY set CANCELLED",
	}},
	{name: "no deadline any more", happens: setTimeout(0), want: [6]string{
		"PAUSED never goes-on", "PAUSED never goes-on", "PAUSED demoted never CANCELLED",
		"READY never goes-on", "READY never goes-on", "READY never CANCELLED",
	}},
	{name: "the deadline passes", happens: acts(), takes: lifetime + time.Minute, want: [6]string{
		"PAUSED kept FINISHED", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY new goes-on", "STOPPED never FINISHED", "READY new CANCELLED",
	}},
	{name: "a long time", happens: acts(), takes: freezeDuration + time.Minute, want: [6]string{
		"PAUSED kept FINISHED", "PAUSED demoted kept CANCELLED", "PAUSED demoted kept CANCELLED",
		"READY new goes-on", "STOPPED never FINISHED", "READY new CANCELLED",
	}},
	{name: "the clock is set past the deadline", happens: setClock(10 * time.Minute), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY new goes-on", "STOPPED never CANCELLED", "READY new CANCELLED",
	}},
	{name: "the clock is set back", happens: setClock(-15 * time.Minute), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "the engine dies", happens: acts("engine restart"), want: [6]string{
		"STOPPED never FAILED", "STOPPED never FAILED", "PAUSED demoted kept CANCELLED",
		"READY kept FAILED", "READY kept FAILED", "READY kept CANCELLED",
	}},
	{name: "the engine dies and its containers do not", happens: acts("engine restart live"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "the host dies", happens: reboot, want: [6]string{
		"STOPPED never FAILED", "STOPPED never FAILED", "PAUSED demoted kept CANCELLED",
		"READY kept FAILED", "READY kept FAILED", "READY kept CANCELLED",
	}},
	{name: "the primary dies", happens: acts("kill box"), want: [6]string{
		"FAILED CONTAINER_DIED kept FAILED", "FAILED CONTAINER_DIED kept FAILED", "PAUSED demoted kept CANCELLED",
		"READY kept FAILED", "FAILED CONTAINER_DIED kept FAILED", "READY kept CANCELLED",
	}},
	{name: "the primary is removed", happens: acts("remove box"), want: [6]string{
		"FAILED CONTAINER_MISSING kept FAILED", "FAILED CONTAINER_MISSING kept FAILED", "FAILED CONTAINER_MISSING kept CANCELLED",
		"FAILED SANDBOX_RESUME_FAILED kept FAILED", "FAILED CONTAINER_MISSING kept FAILED", "FAILED SANDBOX_RESUME_FAILED kept CANCELLED",
	}},
	{name: "a service dies", happens: acts("kill service"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "the network is removed", happens: acts("remove network"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"FAILED SANDBOX_RESUME_FAILED kept FAILED or FAILED NETWORK_MISSING kept FAILED", "FAILED NETWORK_MISSING kept FAILED", "FAILED SANDBOX_RESUME_FAILED kept CANCELLED",
	}},
	{name: "docker pause", happens: acts("freeze outside"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "docker unpause", happens: acts("thaw outside"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "docker start", happens: acts("start box"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
	{name: "other limits", happens: acts("update"), want: [6]string{
		"PAUSED kept goes-on", "PAUSED kept goes-on", "PAUSED demoted kept CANCELLED",
		"READY kept goes-on", "READY kept goes-on", "READY kept CANCELLED",
	}},
}

func acts(what ...string) func(*testing.T, *player) {
	return func(t *testing.T, p *player) {
		t.Helper()
		for _, w := range what {
			p.must(t, act{w, 0})
		}
	}
}

func setTimeout(d time.Duration) func(*testing.T, *player) {
	return func(t *testing.T, p *player) {
		t.Helper()
		if _, _, err := p.store.SetTimeout(t.Context(), "box-0", store.Timeout{After: d}); err != nil {
			t.Error(err)
		}
	}
}

func setClock(d time.Duration) func(*testing.T, *player) {
	return func(_ *testing.T, p *player) { p.skew.Add(int64(d)) }
}

// reboot ends the daemon with the host, if one runs.
func reboot(t *testing.T, p *player) {
	t.Helper()
	select {
	case <-p.daemon.done:
		p.boot++
		p.engine.RestartEngine(false)
		p.shim.powerLost()
	default:
		p.must(t, act{"reboot", 0})
	}
}
