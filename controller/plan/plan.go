// Package plan decides: from the record of a sandbox, the world as observed and the time, to the steps that bring the
// one to the other. It is pure. Any pass may be the first after a crash, may be repeated, may be late; so a plan never
// depends on what an earlier pass remembers.
package plan

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Record is what the store knows of a sandbox.
type Record struct {
	ID string
	// Standing says whether there is a record at all; the fields below are set for Live only.
	Standing Standing

	Desired     storev1.RunState
	Attempt     storev1.Attempt
	Reason      string
	RequestedAt time.Time
	// State is that of the last event that has one.
	State agboxv1.SandboxState
	// ErrorCode is why the sandbox is FAILED.
	ErrorCode string
	// Preparing: SANDBOX_PREPARING is recorded for this create.
	Preparing bool
	// EngineRun is the engine's life under which the sandbox was last known to run; nil before the first READY.
	EngineRun *storev1.EngineRun
	// ActiveExecs is the number of execs without a recorded end.
	ActiveExecs int
	// ExecOOM: an exec of this run was ended by the OOM killer. The engine's flag is sticky and cannot tell.
	ExecOOM bool
	// IdleSince is zero unless READY without an active exec.
	IdleSince time.Time
}

// Standing is what the store says of an ID.
type Standing int

// The standings.
const (
	// Live: a record that is not DELETED.
	Live Standing = iota
	// Gone: deleted or purged. What Docker still holds of it are orphans.
	Gone
	// NeverReserved: the store has no trace of the ID. History was lost: report, never remove.
	NeverReserved
	// Unreadable: the record is quarantined. No verdict, no step.
	Unreadable
)

// World is what the engine holds of one sandbox, by label.
type World struct {
	Containers []Container
	Networks   []Network
	// Inputs: the directories that are mounted into the primary exist.
	Inputs bool
	// Run is the engine's present life.
	Run *storev1.EngineRun
	// Operation is the background operation now under way for the sandbox, or empty.
	Operation Kind
}

// Container is one container of the sandbox.
type Container struct {
	ID, Name string
	// Component is the value of the component label.
	Component string
	// Status is the engine's word: created, running, paused, restarting, removing, exited, dead.
	Status string
	// NetworkIDs are the networks it is attached to.
	NetworkIDs []string
	// ExitCode and OOMKilled are set for a primary that is not running.
	ExitCode  int
	OOMKilled bool
}

// Alive reports whether the container's processes exist.
func (c Container) Alive() bool {
	return c.Status == "running" || c.Status == "paused" || c.Status == "restarting"
}

// Unclear reports a status on which nothing may be decided; it passes by itself.
func (c Container) Unclear() bool { return c.Status == "removing" || c.Status == "restarting" }

// Network is one network of the sandbox.
type Network struct {
	ID      string
	Created time.Time
}

// Policy is the part of the daemon's configuration that decisions depend on.
type Policy struct {
	// IdleTTL stops a sandbox without active execs; 0: never. The spec's own value is resolved by the caller.
	IdleTTL time.Duration
	// FailInterruptedCreate: a create that was accepted before Started fails instead of going on.
	FailInterruptedCreate bool
	// Started is when this daemon did.
	Started time.Time
	// FailOnEngineDeath: the engine's death fails what ran instead of restarting it.
	FailOnEngineDeath bool
	// CancelGrace is how long a cancelled exec gets between TERM and KILL.
	CancelGrace time.Duration
	// KeepOrphans: report orphans, do not remove them.
	KeepOrphans bool
}

// Kind names a step. The set is closed: it is a metric label.
type Kind string

// The steps. Each is idempotent.
const (
	// MakeInputs makes the directories that are mounted into the primary.
	MakeInputs Kind = "make-inputs"
	// EnsureImage finds the image or pulls it in the background.
	EnsureImage Kind = "ensure-image"
	// CreateNetwork makes the sandbox's network.
	CreateNetwork Kind = "create-network"
	// CreatePrimary makes the primary container on the network.
	CreatePrimary Kind = "create-primary"
	// StartContainer starts Step.ID, or the primary just made.
	StartContainer Kind = "start-container"
	// CancelExecs wakes the execs; each sees what its sandbox wants and ends.
	CancelExecs Kind = "cancel-execs"
	// StopContainer stops Step.ID in the background: TERM, KILL after the grace period.
	StopContainer Kind = "stop-container"
	// RemoveContainer kills and removes Step.ID.
	RemoveContainer Kind = "remove-container"
	// RemoveNetwork removes Step.ID.
	RemoveNetwork Kind = "remove-network"
	// RemoveInputs removes the directories that MakeInputs made, but for the logs.
	RemoveInputs Kind = "remove-inputs"
	// RemoveFiles removes inputs and artifacts, logs included.
	RemoveFiles Kind = "remove-files"
	// StopIdle asks the store to turn the idle sandbox's desired state to stop.
	StopIdle Kind = "stop-idle"
)

// Kinds lists every step.
func Kinds() []Kind {
	return []Kind{
		MakeInputs, EnsureImage, CreateNetwork, CreatePrimary, StartContainer, CancelExecs, StopContainer,
		RemoveContainer, RemoveNetwork, RemoveInputs, RemoveFiles, StopIdle,
	}
}

// Step is one action. ID is the engine's ID of its object where it has one.
type Step struct {
	Kind Kind
	ID   string
	// Why is set for steps that an operator may want to audit.
	Why string
}

// Plan is what a pass does: First is recorded, then Steps are taken in order up to the first error, and Events are
// recorded if there was none.
type Plan struct {
	First []*agboxv1.SandboxEvent
	Steps []Step
	// Events are recorded in one transaction when all steps are done.
	Events []*agboxv1.SandboxEvent
	// EngineRun is recorded with them if set.
	EngineRun *storev1.EngineRun
	// Next is when to look again; zero: only when something happens.
	Next time.Duration
	// Waiting says what the sandbox waits for, for a person; empty when it waits for nothing.
	Waiting string
	// Unknown: objects of an ID that was never reserved; reported, never touched.
	Unknown bool
}

// Idle reports whether a pass would do nothing but look again.
func (p Plan) Idle() bool {
	return len(p.First) == 0 && len(p.Steps) == 0 && len(p.Events) == 0 && p.EngineRun == nil && !p.Unknown
}
