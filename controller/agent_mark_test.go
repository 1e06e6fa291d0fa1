package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestTheMarkOfADrainEndsWithTheDaemon: a drain marks every running agent for automatic restart, in case the host goes down with the
// daemon. The mark no longer counts for an agent that the next daemon observes running: its crash is a crash.
func TestTheMarkOfADrainEndsWithTheDaemon(t *testing.T) {
	for _, row := range []struct {
		name, want string
		away       time.Duration
	}{
		{"it dies while the next one sees it", "SPAWN CONNECTED PROMPT_RECEIVED PROCESS_CRASHED", 0},
		{"it dies while none is there", "SPAWN CONNECTED PROMPT_RECEIVED DRAIN_PARKED", time.Minute},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				p.newAgent(t, p.readyBox(t), "ada", &agboxv1.AgentSpec{Command: []string{"agent"}, OnInterrupted: "hold"})
				pass(time.Second)
				p.prompt(t, "ada", "crash 5000")
				pass(time.Second)
				if _, err := p.daemon.Drain(t.Context(), drainFor(time.Hour)); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if err := p.kill(); err != nil {
					t.Fatal(err)
				}
				pass(row.away)
				if err := p.start(-1); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				p.wantTriggers(t, "ada", row.want+" SPAWN CONNECTED")
			})
		})
	}
}
