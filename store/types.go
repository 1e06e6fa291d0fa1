package store

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Sandbox is a copy of the store's records of one sandbox; changing it does not change the store.
type Sandbox struct {
	ID string
	// Name as given at creation, or empty. Unique among sandboxes whose delete was not requested.
	Name string
	// Spec is the final spec. Nil if it does not decode; Corrupt is then true.
	Spec *agboxv1.CreateSpec
	// Desired is the intent. Nil if it does not decode; Corrupt is then true.
	Desired *storev1.Desired
	// State of the last event that has one.
	State agboxv1.SandboxState
	// StateChangedAt is when the first event of the current unbroken run of that state occurred; a SANDBOX_REHYDRATED starts a run and
	// carries its time.
	StateChangedAt time.Time
	// ErrorCode and ErrorMessage are those of the last SANDBOX_FAILED; empty unless State is FAILED.
	ErrorCode, ErrorMessage string
	// CreatedAt is when the ID was reserved.
	CreatedAt time.Time
	// DeletedAt is zero while the sandbox is live.
	DeletedAt time.Time
	// LastSequence is that of the newest event, at least 1.
	LastSequence uint64
	// Preparing is true while PENDING by a create whose SANDBOX_PREPARING is recorded, or was recorded before the record was rebuilt.
	Preparing bool
	// ActiveExecs lists the sorted IDs of the execs that have not ended.
	ActiveExecs []string
	// Agents lists the sorted IDs of its agents, including those whose delete was requested.
	Agents []string
	// IdleSince is the newest of these times: SANDBOX_READY, SANDBOX_RESTARTED, SANDBOX_RECOVERED and the exec ends of this run, or the
	// time in a newer SANDBOX_REHYDRATED; and the state changes of its agents. Zero unless the sandbox is READY, none of its agents is
	// BUSY, and all active execs are processes of its agents.
	IdleSince time.Time
	// Progress is the progress of the current run; never nil unless Corrupt.
	Progress *storev1.Progress
	// Corrupt is true when the config, the desired state, the progress or the state does not decode. Such a sandbox is returned with its
	// readable parts, is not in LiveIDs, and every write to it returns ErrDataLoss.
	Corrupt bool

	history history
	// idleFrom is IdleSince without regard to agents.
	idleFrom time.Time
}

// Exec is one exec, active or ended. It is a copy.
type Exec struct {
	ID, SandboxID string
	Request       *agboxv1.CreateExecRequest
	Desired       *storev1.ExecDesired
	// End is nil while the exec has not ended.
	End *storev1.ExecEnd
	// Anchor is a sequence, at least 1, after which Events returns the end of an exec that has not ended: that of the exec's newest event,
	// or a newer one if the history limit has dropped that event.
	Anchor uint64
}

// Report is the result of a reconcile pass: status only, never intent.
type Report struct {
	// Generation is the generation that the pass read.
	Generation uint64
	// Events to append, in order. The caller sets event_type, sandbox_state and details; the store sets event_id, sequence, sandbox_id and
	// occurred_at. Report accepts no exec events: CreateExec and EndExec write them.
	Events []*agboxv1.SandboxEvent
	// EngineRun replaces the recorded one. Nil: unchanged. The generation does not change.
	EngineRun *storev1.EngineRun
	// Progress replaces the recorded one. Nil: unchanged. The generation does not change.
	Progress *storev1.Progress
	// Objects replaces the recorded ones. Nil: unchanged. The generation does not change.
	Objects *storev1.Objects
	// LimitsApplied: the containers have the limits of the spec; clears Desired.limits_pending.
	LimitsApplied bool
	// Timeout is how long the sandbox may run from now, for a report with SANDBOX_READY; 0: forever. A recorded deadline in the future is
	// kept, and so is one that was set to never.
	Timeout time.Duration
}

// Filter selects sandboxes for List.
type Filter struct {
	// IncludeDeleted adds deleted sandboxes whose history is retained.
	IncludeDeleted bool
	// Labels that the spec must all have. Empty selects everything.
	Labels map[string]string
	// GatewayOwner selects the sandboxes of this owner's keys. Empty selects everything.
	GatewayOwner string
	// GatewayTemplate and GatewayMetadata select by what the spec says of the gateway. Empty selects everything.
	GatewayTemplate string
	GatewayMetadata map[string]string
	// OldestFirst reverses the order.
	OldestFirst bool
	// After selects what follows this position in the order. Nil selects everything.
	After *Position
	// Limit is the most sandboxes that are returned; 0: any number.
	Limit int
}

// Position is a place in the order of List. No sandbox need be there.
type Position struct {
	CreatedAt time.Time
	ID        string
}

// Corrupt identifies one record that does not decode. The record stays unchanged in the file.
type Corrupt struct {
	Bucket, Key string
	// SandboxID is the sandbox that the record belongs to; empty: none.
	SandboxID string
	Err       error
}
