package controller_test

import (
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// TestADeletedAgentGetsNoMoreLines: a deleted agent whose process cannot end, because it is frozen or ignores TERM, still exists when its
// sandbox is stopped.
func TestADeletedAgentGetsNoMoreLines(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		withAgent(t, &agboxv1.AgentSpec{Nudge: "finish"}, func(t *testing.T, p *player, box, id string) {
			p.prompt(t, id, "deaf")
			pass(time.Second)
			p.wantAgent(t, id, agentBusy)
			if frozen {
				if _, err := p.store.RequestPause(t.Context(), box, "pause_requested"); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
			}
			p.ask(t, p.store.RequestAgentDelete, id)
			p.stopBox(t, box)
			for range 3000 {
				if line, _ := p.daemon.AgentStatus(id); strings.Contains(line, "retrying") {
					t.Errorf("%q", line)
					break
				}
				pass(100 * time.Microsecond)
			}
			pass(45 * time.Second)
			if got := p.store.LiveAgentIDs(); len(got) != 0 {
				t.Errorf("%v are left", got)
			}
		})
	}
}
