package agentstate

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
)

// Short names: the table below must be readable as a table.
const (
	pending  = agboxv1.AgentState_AGENT_STATE_PENDING
	starting = agboxv1.AgentState_AGENT_STATE_STARTING
	idle     = agboxv1.AgentState_AGENT_STATE_IDLE
	busy     = agboxv1.AgentState_AGENT_STATE_BUSY
	stopped  = agboxv1.AgentState_AGENT_STATE_STOPPED
	failed   = agboxv1.AgentState_AGENT_STATE_FAILED

	// illegal is the zero value: transitions that are not in the table are refused.
	illegal = agboxv1.AgentState_AGENT_STATE_UNSPECIFIED

	spawn          = agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN
	connected      = agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED
	promptReceived = agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED
	resultReceived = agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED
	processExited  = agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_EXITED
	processCrashed = agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_CRASHED
	startTimedOut  = agboxv1.AgentTrigger_AGENT_TRIGGER_START_TIMED_OUT
	userTerminated = agboxv1.AgentTrigger_AGENT_TRIGGER_USER_TERMINATED
	drainParked    = agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED
	reconciliation = agboxv1.AgentTrigger_AGENT_TRIGGER_RECONCILIATION
)

type row map[agboxv1.AgentTrigger]agboxv1.AgentState

// table has no entry for an illegal trigger, and the same state where nothing changes.
var table = map[agboxv1.AgentState]row{
	pending: {
		spawn: starting, userTerminated: stopped, drainParked: pending, reconciliation: failed,
	},
	starting: {
		spawn: starting, connected: idle,
		processExited: failed, processCrashed: failed, startTimedOut: failed,
		userTerminated: stopped, drainParked: stopped, reconciliation: failed,
	},
	idle: {
		connected: idle, promptReceived: busy, resultReceived: idle,
		processExited: stopped, processCrashed: failed,
		userTerminated: stopped, drainParked: stopped, reconciliation: failed,
	},
	busy: {
		connected: busy, resultReceived: idle,
		processExited: failed, processCrashed: failed,
		userTerminated: stopped, drainParked: stopped, reconciliation: failed,
	},
	stopped: {
		spawn: starting, processExited: stopped, processCrashed: stopped,
		userTerminated: stopped, drainParked: stopped, reconciliation: stopped,
	},
	failed: {
		spawn: starting, processExited: failed, processCrashed: failed,
		userTerminated: stopped, drainParked: failed, reconciliation: failed,
	},
}

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
	words := map[agboxv1.AgentState][2]string{
		pending: {"PENDING"}, starting: {"PENDING"}, idle: {"RUNNING", "IDLE"}, busy: {"RUNNING", "BUSY"},
		stopped: {"STOPPED"}, failed: {"FAILED"},
	}[s]
	return words[0], words[1]
}
