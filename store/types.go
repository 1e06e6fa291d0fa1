package store

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Sandbox is what the store knows of one sandbox. It is a copy: changing it changes nothing in the store.
type Sandbox struct {
	ID string
	// Name as given at creation, or empty. Unique among sandboxes that nobody asked to delete.
	Name string
	// Spec is the final spec. Nil while Corrupt says that it does not decode.
	Spec *agboxv1.CreateSpec
	// Desired is the intent. Nil while Corrupt says that it does not decode.
	Desired *storev1.Desired
	// State of the last event that has one.
	State agboxv1.SandboxState
	// StateChangedAt is when the first event of the present unbroken run of that state occurred; a SANDBOX_REHYDRATED begins a
	// run, and says itself when it was.
	StateChangedAt time.Time
	// ErrorCode and ErrorMessage are those of the last SANDBOX_FAILED; empty unless State is FAILED.
	ErrorCode, ErrorMessage string
	// CreatedAt is when the ID was reserved.
	CreatedAt time.Time
	// DeletedAt is zero while the sandbox is live.
	DeletedAt time.Time
	// LastSequence is that of the newest event, at least 1.
	LastSequence uint64
	// Preparing is true while PENDING by a create whose SANDBOX_PREPARING is recorded, or was when the record was rebuilt.
	Preparing bool
	// ActiveExecs are the sorted IDs of the execs that have not ended.
	ActiveExecs []string
	// Agents are the sorted IDs of its agents, those that are to be deleted included.
	Agents []string
	// IdleSince is the newest of: when SANDBOX_READY, SANDBOX_RESTARTED and the exec ends of this run occurred, or what a newer
	// SANDBOX_REHYDRATED says; and when its agents changed their state. Zero unless the sandbox is READY, no agent of it is BUSY,
	// and no exec is active but of agents.
	IdleSince time.Time
	// Progress is what the present run has come to; never nil unless Corrupt.
	Progress *storev1.Progress
	// Corrupt is true when the config, the desired state or the progress does not decode. Such a sandbox is served with what is
	// readable, is not in LiveIDs, and every write to it is ErrDataLoss.
	Corrupt bool

	history history
	// idleFrom is IdleSince without a look at the agents.
	idleFrom time.Time
}

// Exec is one exec, active or ended. It is a copy.
type Exec struct {
	ID, SandboxID string
	Request       *agboxv1.CreateExecRequest
	Desired       *storev1.ExecDesired
	// End is nil while the exec has not ended.
	End *storev1.ExecEnd
	// Anchor is a sequence, of 1 at least, behind which Events has the end of an exec that has not ended: that of its newest
	// event, or a newer one when the history limit has dropped that.
	Anchor uint64
}

// Report is what a reconcile pass found out: status only, never intent.
type Report struct {
	// Generation is the one that the pass worked on.
	Generation uint64
	// Events to append, in order. The caller sets event_type, sandbox_state and details; the store fills event_id,
	// sequence, sandbox_id and occurred_at. Exec events are not for Report: CreateExec and EndExec write them.
	Events []*agboxv1.SandboxEvent
	// EngineRun replaces the recorded one. Nil: unchanged. The generation does not move.
	EngineRun *storev1.EngineRun
	// Progress replaces the recorded one. Nil: unchanged. The generation does not move.
	Progress *storev1.Progress
	// Objects replaces the recorded ones. Nil: unchanged. The generation does not move.
	Objects *storev1.Objects
	// LimitsApplied: the containers have the limits of the spec; clears Desired.limits_pending.
	LimitsApplied bool
	// Timeout is how long the sandbox may run from now on, for a report with SANDBOX_READY; 0: forever. A deadline that is
	// still to come holds, and so does one that was set to never.
	Timeout time.Duration
}

// Filter selects sandboxes for List.
type Filter struct {
	// IncludeDeleted adds deleted sandboxes whose history is retained.
	IncludeDeleted bool
	// Labels that the spec must have, all of them. Empty selects everything.
	Labels map[string]string
}

// Corrupt names one record that does not decode. It stays in the file as it is.
type Corrupt struct {
	Bucket, Key string
	// SandboxID that the record belongs to; empty for records of none.
	SandboxID string
	Err       error
}
