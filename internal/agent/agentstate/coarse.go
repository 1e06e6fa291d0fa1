package agentstate

import agboxv1 "github.com/agbox/agbox/apis/agbox/v1"

// Statuses and activities for clients that do not know the execution state.
const (
	StatusPending = "PENDING"
	StatusRunning = "RUNNING"
	StatusStopped = "STOPPED"
	StatusFailed  = "FAILED"

	ActivityBusy = "BUSY"
	ActivityIdle = "IDLE"
)

// Coarse derives status and activity. activity is set exactly when the status is RUNNING, that is when the agent accepts
// prompts; a starting agent is still PENDING. Both are empty for an unknown state.
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

// FromCoarse derives the execution state of a record that has only a coarse status. A running one is never mapped to STARTING,
// whose start could time out: without a known activity it is IDLE. An empty status is PENDING.
// An unknown status is UNSPECIFIED, for which every trigger is illegal.
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
