package agentstate

import agboxv1 "github.com/agbox/agbox/apis/agbox/v1"

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
