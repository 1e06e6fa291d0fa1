package agentstate

import agboxv1 "github.com/agbox/agbox/apis/agbox/v1"

// What readers that know no execution state are told.
const (
	StatusPending = "PENDING"
	StatusRunning = "RUNNING"
	StatusStopped = "STOPPED"
	StatusFailed  = "FAILED"

	ActivityBusy = "BUSY"
	ActivityIdle = "IDLE"
)

// Coarse derives status and activity. activity is set exactly when the status is RUNNING, that is when the agent can be
// prompted; an agent that starts is still PENDING. Both are empty for a state that this version does not know.
func Coarse(s agboxv1.AgentState) (status, activity string) {
	switch s {
	case pending, starting:
		return StatusPending, ""
	case idle:
		return StatusRunning, ActivityIdle
	case busy:
		return StatusRunning, ActivityBusy
	case stopped:
		return StatusStopped, ""
	case failed:
		return StatusFailed, ""
	default:
		return "", ""
	}
}

// FromCoarse gives a record that has no execution state the one its coarse status means. One that runs is never taken for
// one that is starting, whose start could time out: without a known activity it is IDLE. No status at all is PENDING.
// A status that is no word of ours is UNSPECIFIED, for which every trigger is illegal.
func FromCoarse(status, activity string) agboxv1.AgentState {
	switch status {
	case StatusPending, "":
		return pending
	case StatusRunning:
		if activity == ActivityBusy {
			return busy
		}
		return idle
	case StatusStopped:
		return stopped
	case StatusFailed:
		return failed
	default:
		return illegal
	}
}
