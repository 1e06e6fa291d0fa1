package sandboxstate

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// State is one of the API's states. None is that of a sandbox before its first event.
type State = agboxv1.SandboxState

// Cause is the type of the event that makes a transition.
type Cause = agboxv1.EventType

// Short names: the table below must be readable as a table.
const (
	none     = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED
	pending  = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready    = agboxv1.SandboxState_SANDBOX_STATE_READY
	paused   = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	stopped  = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	failed   = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	deleting = agboxv1.SandboxState_SANDBOX_STATE_DELETING
	deleted  = agboxv1.SandboxState_SANDBOX_STATE_DELETED

	isAccepted        = agboxv1.EventType_SANDBOX_ACCEPTED
	isRehydrated      = agboxv1.EventType_SANDBOX_REHYDRATED
	isPreparing       = agboxv1.EventType_SANDBOX_PREPARING
	isServiceReady    = agboxv1.EventType_SANDBOX_SERVICE_READY
	isServiceFailed   = agboxv1.EventType_SANDBOX_SERVICE_FAILED
	isReady           = agboxv1.EventType_SANDBOX_READY
	isRestarted       = agboxv1.EventType_SANDBOX_RESTARTED
	isPauseRequested  = agboxv1.EventType_SANDBOX_PAUSE_REQUESTED
	isPaused          = agboxv1.EventType_SANDBOX_PAUSED
	isStopRequested   = agboxv1.EventType_SANDBOX_STOP_REQUESTED
	isStopped         = agboxv1.EventType_SANDBOX_STOPPED
	isFailed          = agboxv1.EventType_SANDBOX_FAILED
	isRecovered       = agboxv1.EventType_SANDBOX_RECOVERED
	isDeleteRequested = agboxv1.EventType_SANDBOX_DELETE_REQUESTED
	isDeleted         = agboxv1.EventType_SANDBOX_DELETED

	run    = storev1.RunState_RUN_STATE_RUN
	stop   = storev1.RunState_RUN_STATE_STOP
	pause  = storev1.RunState_RUN_STATE_PAUSE
	remove = storev1.RunState_RUN_STATE_DELETE
)

// row is one state.
type row struct {
	state State
	// meaning is a sentence for the reference page.
	meaning string
	traits
	// wants are the desired states that a sandbox in this state may have.
	wants []storev1.RunState
	// moves are the legal transitions: by their cause, the states that it may lead to.
	moves map[Cause][]State
}

type traits struct {
	live      bool // the reconciler works on it, and it is counted in agboxd_sandboxes
	up        bool // its containers run, are frozen, or are being started: it has a deadline, and its logs may grow
	whole     bool // every part of it exists, so the engine's IDs of its parts are recorded
	resumable bool // it stays as it is until a resume makes it READY again
}

// table has the states in the order in which a sandbox usually passes through them.
var table = []row{
	{none, "", traits{}, nil, map[Cause][]State{
		isAccepted: {pending}, isRehydrated: {pending, ready, paused, stopped, failed, deleting},
	}},
	{pending, "accepted; being created or resumed", traits{live: true, up: true}, []storev1.RunState{run}, map[Cause][]State{
		isPreparing: {pending}, isServiceReady: {pending}, isServiceFailed: {pending}, isReady: {ready},
		isFailed: {failed}, isDeleteRequested: {deleting},
	}},
	{ready, "running; execs are accepted", traits{live: true, up: true, whole: true}, []storev1.RunState{run, stop, pause}, map[Cause][]State{
		isServiceReady: {ready}, isServiceFailed: {ready}, isRestarted: {ready},
		isPauseRequested: {ready}, isPaused: {paused}, isStopRequested: {ready}, isStopped: {stopped},
		isAccepted: {pending}, isFailed: {failed}, isDeleteRequested: {deleting},
	}},
	{paused, "frozen with its memory, or demoted: stopped with its files", traits{live: true, up: true, whole: true, resumable: true}, []storev1.RunState{pause, stop}, map[Cause][]State{
		isPaused: {paused}, isStopRequested: {paused}, isStopped: {stopped},
		isAccepted: {pending}, isFailed: {failed}, isDeleteRequested: {deleting},
	}},
	{stopped, "stopped on request, by a deadline or when idle", traits{live: true, whole: true, resumable: true}, []storev1.RunState{stop}, map[Cause][]State{
		isAccepted: {pending}, isFailed: {failed}, isDeleteRequested: {deleting},
	}},
	{failed, "ended by an error that retrying cannot fix", traits{live: true}, []storev1.RunState{run, stop, pause}, map[Cause][]State{
		isRecovered: {pending, ready, paused, stopped},
		isAccepted:  {pending}, isDeleteRequested: {deleting},
	}},
	{deleting, "being removed", traits{live: true}, []storev1.RunState{remove}, map[Cause][]State{
		isDeleted: {deleted},
	}},
	{deleted, "removed; only its history is left", traits{}, []storev1.RunState{remove}, nil},
}
