package agentplan

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestDrainNext(t *testing.T) {
	const (
		park, detach          = agboxv1.DrainMode_DRAIN_MODE_PARK, agboxv1.DrainMode_DRAIN_MODE_DETACH
		waiting, saving, done = agboxv1.DrainPhase_DRAIN_PHASE_WAITING, agboxv1.DrainPhase_DRAIN_PHASE_SAVING, agboxv1.DrainPhase_DRAIN_PHASE_DONE
	)
	for _, c := range []struct {
		name  string
		drain Drain
		phase agboxv1.DrainPhase
		left  time.Duration
	}{
		{"detach ends nothing", Drain{Mode: detach, Phase: waiting, Alive: true, WaitLeft: time.Minute}, done, 0},
		{"all agents are parked", Drain{Mode: park, Phase: waiting, WaitLeft: time.Minute}, done, 0},
		{"a turn has time left", Drain{Mode: park, Phase: waiting, Alive: true, WaitLeft: time.Minute}, waiting, time.Minute},
		{"the time of turns is over", Drain{Mode: park, Phase: waiting, Alive: true}, saving, 0},
		{"work is being saved", Drain{Mode: park, Phase: saving, Alive: true, SaveLeft: time.Minute}, saving, time.Minute + saveMargin},
		{"the time of saving is over", Drain{Mode: park, Phase: saving, Alive: true, SaveLeft: -time.Second}, saving, saveMargin - time.Second},
		{"an agent has not ended in that time", Drain{Mode: park, Phase: saving, Alive: true, SaveLeft: -saveMargin}, done, 0},
		{"all work is saved", Drain{Mode: park, Phase: saving, SaveLeft: time.Minute}, done, 0},
	} {
		if phase, left := c.drain.Next(); phase != c.phase || left != c.left {
			t.Errorf("%s: %s, %s", c.name, phase, left)
		}
	}
}
