package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/store"
)

// undoneWhileSaving is a drain that is undone while it ends a turn that ignores the interrupt.
func undoneWhileSaving(t *testing.T, p *player) {
	t.Helper()
	box := p.readyBox(t)
	for _, id := range []string{"hangs", "other"} {
		p.newAgent(t, box, id, &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "5000", "0"}})
	}
	pass(time.Second)
	p.prompt(t, "hangs", "deaf")
	pass(100 * time.Millisecond)
	p.drain(t, store.DrainOptions{Wait: time.Second})
	pass(2 * time.Second)
	p.wantDrain(t, "SAVING parked:1 saved:0 not:0 busy:1")
	p.undrain(t)
	pass(time.Second)
}

func TestAnUndoneDrainDoesNotReportTheNextOneDone(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		undoneWhileSaving(t, p)
		p.prompt(t, "other", "work 60000")
		pass(100 * time.Millisecond)
		p.drain(t, store.DrainOptions{})
		pass(40 * time.Second)
		if s := p.daemon.DrainStatus(); s.GetPhase() != waiting || s.GetBusy() == 0 {
			t.Errorf("%v", s)
		}
		pass(time.Minute)
		p.wantOutcomes(t, "other", "work_60000:end_turn")
	})
}

func TestAnUndrainedDaemonEndsNoAgents(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		undoneWhileSaving(t, p)
		pass(time.Minute)
		p.wantAgent(t, "hangs", agentBusy)
		p.wantGiven(t, "deaf", 1)
	})
}
