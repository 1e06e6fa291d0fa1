package agentstate

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// ErrIllegal matches every *IllegalError.
var ErrIllegal = errors.New("illegal transition of an agent")

// IllegalError says that the table has no such transition. It matches ErrIllegal and errdefs.ErrFailedPrecondition.
type IllegalError struct {
	From    agboxv1.AgentState
	Trigger agboxv1.AgentTrigger
}

func (e *IllegalError) Error() string {
	return fmt.Sprintf("%s is illegal for an agent that is %s",
		enum.Word(e.Trigger), enum.Word(e.From))
}

// Unwrap makes it match its class and ErrIllegal.
func (e *IllegalError) Unwrap() []error { return []error{ErrIllegal, errdefs.ErrFailedPrecondition} }

// Options are the inputs of the table besides state and trigger.
type Options struct {
	// ReadyIsProcess: the agent is ready once its process has started, so a process that exits with code 0 before it was
	// observed as ready is STOPPED, not FAILED.
	ReadyIsProcess bool
}

// Next returns the state after a trigger. changed is false when the trigger is accepted without a change; then to is from.
// Errors: *IllegalError, with zero values for to and changed.
func Next(from agboxv1.AgentState, tr agboxv1.AgentTrigger, o Options) (to agboxv1.AgentState, changed bool, err error) {
	to = table[from][tr]
	if to == illegal {
		return illegal, false, &IllegalError{From: from, Trigger: tr}
	}
	if from == starting && tr == processExited && o.ReadyIsProcess {
		to = stopped
	}
	return to, to != from, nil
}

// Coarse derives status and activity for clients that do not know the execution state. activity is set exactly when the status is RUNNING, that is when the agent accepts
// prompts; a starting agent is still PENDING. Both are empty for an unknown state.
func Coarse(s agboxv1.AgentState) (status, activity string) {
	switch s {
	case pending, starting:
		return "PENDING", ""
	case idle:
		return "RUNNING", "IDLE"
	case busy:
		return "RUNNING", "BUSY"
	case stopped:
		return "STOPPED", ""
	case failed:
		return "FAILED", ""
	default:
		return "", ""
	}
}
