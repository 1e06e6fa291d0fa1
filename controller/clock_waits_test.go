package controller_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
)

// jumping runs a test for jumps of the clock in the middle of a wait. No jump may shorten it, or prolong it until the clock has caught up.
func jumping(t *testing.T, by time.Duration, test func(t *testing.T, p *player, jump func())) {
	t.Helper()
	for name, jump := range map[string]func(p *player){
		"on":                     func(p *player) { p.step(by) },
		"back":                   func(p *player) { p.step(-by) },
		"on, for four seconds":   func(p *player) { p.step(by); pass(4 * time.Second); p.step(-by) },
		"back, for four seconds": func(p *player) { p.step(-by); pass(4 * time.Second); p.step(by) },
		"the host sleeps":        func(p *player) { p.suspend(by) },
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				test(t, p, func() { jump(p) })
			}, func(c *controller.Config) { c.Settings.ClockGrace = grace })
		})
	}
}

const (
	farOff = 48 * time.Hour
	// near is a jump of less than the hour of wall clock after which a drain without an undrain ends.
	near = 30 * time.Minute
)

// busyAgent returns an agent in a turn.
func (p *player) busyAgent(t *testing.T, text string) (box, id string) {
	t.Helper()
	box, id = p.readyBox(t), "ada"
	p.newAgent(t, box, id, nil)
	pass(time.Second)
	p.prompt(t, id, text)
	pass(50 * time.Millisecond)
	p.wantAgent(t, id, agentBusy)
	return box, id
}

func TestAJumpOfTheClockCutsNoTurnShort(t *testing.T) {
	jumping(t, farOff, func(t *testing.T, p *player, jump func()) {
		box, id := p.busyAgent(t, "work 10000")
		p.stopBox(t, box)
		pass(2 * time.Second)
		jump()
		pass(10 * time.Second)
		p.wantState(t, box, boxStopped)
		p.wantOutcomes(t, id, "work_10000:end_turn")
	})
}

func TestAJumpOfTheClockMakesNoStopLast(t *testing.T) {
	jumping(t, farOff, func(t *testing.T, p *player, jump func()) {
		box, id := p.busyAgent(t, "deaf")
		p.stopBox(t, box)
		pass(10 * time.Second)
		jump()
		pass(5 * time.Second)
		p.wantAgent(t, id, agentBusy) // including the jump it has had 19 s at most
		pass(30 * time.Second)
		p.wantState(t, box, boxStopped)
		p.wantOutcomes(t, id, "deaf:interrupted")
	})
}

func TestAJumpOfTheClockCutsNoDeleteShort(t *testing.T) {
	jumping(t, farOff, func(t *testing.T, p *player, jump func()) {
		box, id := p.busyAgent(t, "work 10000")
		if _, err := p.store.RequestDelete(context.Background(), box, "delete_requested"); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		jump()
		pass(time.Second)
		p.wantAgent(t, id, agentBusy)
		pass(12 * time.Second)
		p.wantState(t, box, boxDeleted)
	})
}

func TestAJumpOfTheClockCutsNoDrainShort(t *testing.T) {
	jumping(t, near, func(t *testing.T, p *player, jump func()) {
		_, id := p.busyAgent(t, "work 60000")
		p.drain(t, drainFor(2*time.Minute))
		pass(5 * time.Second)
		jump()
		pass(30 * time.Second)
		p.wantDrain(t, "WAITING parked:0 saved:0 not:0 busy:1")
		pass(30 * time.Second)
		p.wantDrain(t, "DONE parked:1 saved:0 not:0 busy:0")
		p.wantOutcomes(t, id, "work_60000:end_turn")
	})
}

func TestAJumpOfTheClockMakesNoDrainLast(t *testing.T) {
	jumping(t, near, func(t *testing.T, p *player, jump func()) {
		p.busyAgent(t, "deaf")
		p.drain(t, drainFor(time.Minute))
		pass(10 * time.Second)
		jump()
		pass(30 * time.Second)
		p.wantDrain(t, "WAITING parked:0 saved:0 not:0 busy:1")
		pass(60 * time.Second)
		if s := p.daemon.DrainStatus(); s.GetPhase() != done {
			t.Errorf("the drain is %v", s)
		}
	})
}

// An agent that needs 30 s to get ready has 60 s, whatever the clock shows.
func TestAJumpOfTheClockFailsNoStart(t *testing.T) {
	jumping(t, farOff, func(t *testing.T, p *player, jump func()) {
		box := p.readyBox(t)
		p.newAgent(t, box, "ada", &agboxv1.AgentSpec{Command: []string{"agent", "boot=30000"}})
		pass(10 * time.Second)
		p.wantAgent(t, "ada", agboxv1.AgentState_AGENT_STATE_STARTING)
		jump()
		pass(30 * time.Second)
		p.wantAgent(t, "ada", agentIdle)
		p.wantTriggers(t, "ada", "SPAWN CONNECTED")
	})
}

func TestAJumpOfTheClockMakesNoStartTimeOutLate(t *testing.T) {
	jumping(t, farOff, func(t *testing.T, p *player, jump func()) {
		box, id := p.readyBox(t), "ada"
		p.newAgent(t, box, id, &agboxv1.AgentSpec{Command: []string{"agent", "mute"}, StartTimeout: durationpb.New(10 * time.Second)})
		pass(3 * time.Second)
		jump()
		pass(2 * time.Second)
		p.wantAgent(t, id, agentStarting) // including the jump it has had 9 s at most
		pass(30 * time.Second)
		if n := p.agent(t, id).Status.GetIncarnation(); n < 2 {
			t.Errorf("no start has timed out")
		}
	})
}
