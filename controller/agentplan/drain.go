package agentplan

import (
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// saveMargin is the time that a drain gives agents beyond the bound of saving, to record that their work is not saved.
const saveMargin = 2 * time.Second

// Drain is what is known of a drain that is not DONE.
type Drain struct {
	Mode  agboxv1.DrainMode
	Phase agboxv1.DrainPhase
	// Alive: an agent's process has not ended, or its work is being saved.
	Alive bool
	// WaitLeft is the rest of the time that turns may take. SaveLeft is the rest of the time that saving may take, in phase SAVING.
	WaitLeft, SaveLeft time.Duration
}

// Next returns the phase that a drain must enter. In the same phase it returns how long that lasts by itself.
func (d Drain) Next() (phase agboxv1.DrainPhase, left time.Duration) {
	saving := d.Phase == agboxv1.DrainPhase_DRAIN_PHASE_SAVING
	switch {
	case d.Mode != agboxv1.DrainMode_DRAIN_MODE_PARK, !d.Alive, saving && d.SaveLeft <= -saveMargin:
		return agboxv1.DrainPhase_DRAIN_PHASE_DONE, 0
	case saving:
		return d.Phase, d.SaveLeft + saveMargin
	case d.WaitLeft <= 0:
		return agboxv1.DrainPhase_DRAIN_PHASE_SAVING, 0
	}
	return d.Phase, d.WaitLeft
}
