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
	// StateChangedAt is since when.
	StateChangedAt time.Time
	// ErrorCode is why the sandbox is FAILED.
	ErrorCode string
	// Preparing: SANDBOX_PREPARING is recorded for this create.
	Preparing bool
	// EngineRun is the engine's life under which the sandbox was last known to run; nil before anything was started.
	EngineRun *storev1.EngineRun
	// Progress is what the present run has come to; nil counts as nothing.
	Progress *storev1.Progress
	// Objects are the engine's IDs of the parts as last seen; nil before the first READY.
	Objects *storev1.Objects
	// Recover: the resume under way may make the network again.
	Recover bool
	// LimitsPending: an update changed limits that the containers do not have yet.
	LimitsPending bool
	// ActiveExecs is the number of execs without a recorded end.
	ActiveExecs int
	// Agents: it has some. Turns is the number of those whose turns its end waits for.
	Agents bool
	Turns  int
	// Leaving is the number of agents that outlive it and still have something in it.
	Leaving int
	// ExecOOM: an exec of this run was ended by the OOM killer. The engine's flag is sticky and cannot tell.
	ExecOOM bool
	// IdleSince is zero unless READY without an active exec.
	IdleSince time.Time
	// DeadlineAt is when the sandbox is to end by its spec's on_timeout; zero: never. Acted on while it runs only.
	DeadlineAt time.Time
	// DemotedAt: paused, and since then to be stopped rather than frozen; zero: frozen.
	DemotedAt time.Time
	// OverFrozen: more sandboxes are frozen than may be, and this one has been for longer than enough others.
	OverFrozen bool
	// Tries is how often in a row passes over the sandbox have failed.
	Tries int
	// Wanted is what the spec asks for.
	Wanted Wanted
}

// WorkingDir is where execs start unless the spec says otherwise. It is part of the contract.
const WorkingDir = "/workspace"

// Runs reports whether the sandbox is READY and wanted to be.
func (r Record) Runs() bool {
	return r.Desired == storev1.RunState_RUN_STATE_RUN && r.State == agboxv1.SandboxState_SANDBOX_STATE_READY
}

// Ending reports whether the sandbox is on record and is to stop or to be deleted.
func (r Record) Ending() bool {
	return r.Standing == Live && (r.Desired == storev1.RunState_RUN_STATE_STOP || r.Desired == storev1.RunState_RUN_STATE_DELETE)
}

// Wanted is the part of a spec that decisions depend on.
type Wanted struct {
	// Services, the required ones first, each kind in the order of the spec.
	Services []Service
	// Main: the primary has a main process, which runs once for each start.
	Main bool
	// Copies: host files are copied into the primary before its first start.
	Copies bool
	// Restart is the primary's restart policy.
	Restart RestartPolicy
	Limits  Limits
}

// Service is one service of the spec.
type Service struct {
	Name     string
	Required bool
	// Hooks is the number of its post-start hooks.
	Hooks int
	// Healthcheck: its spec has one, so that no verdict yet is not a good one.
	Healthcheck bool
	// HealthWait bounds the time from its start to its first good verdict.
	HealthWait time.Duration
	Restart    RestartPolicy
	Limits     Limits
}

// Limits are the limits of a container that can change in place; 0: none.
type Limits struct{ NanoCPUs, MemoryBytes, Pids int64 }

// RestartPolicy says what follows when a container ends by itself.
type RestartPolicy string

// The policies. The empty one is RestartNever.
const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
)

// Standing is what the store says of an ID.
type Standing int

// The standings.
const (
	// Live: a record that is not DELETED.
	Live Standing = iota
	// Gone: deleted or purged. What Docker still holds of it are orphans.
	Gone
	// Unswept: deleted by cleanup_ttl after a failure that may have been a wrong verdict. What Docker still holds of it is
	// reported, never removed.
	Unswept
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
	// Hook is the next hook that has not ended well; nil when there is none to run.
	Hook *Hook
	// Doubt says why the absence of missing parts is not proven. Empty: it is, by two looks apart in time, by ID and by name, on an engine
	// with the recorded storage driver and data root.
	Doubt string
	// LookAgain is when a look may end the doubt; zero: only something else ends it.
	LookAgain time.Duration
	// Terminated: PID 1 of the primary got a TERM in its present or last run.
	Terminated bool
	// Stopping are the IDs of the containers that the engine is asked to stop now.
	Stopping []string
}

// Container is one container of the sandbox.
type Container struct {
	ID, Name string
	// Component is the value of the component label, Service that of the service label.
	Component, Service string
	// Status is the engine's word: created, running, paused, restarting, removing, exited, dead.
	Status string
	// Health is the verdict of its healthcheck: "", starting, healthy or unhealthy. HealthOutput is what the last probe
	// printed.
	Health, HealthOutput string
	// NetworkIDs are the networks it is attached to.
	NetworkIDs []string
	// EndedWell: it has exited with code 0.
	EndedWell bool
	// The fields below are set when it was inspected. ExitCode and OOMKilled are of one that is not running.
	Inspected bool
	ExitCode  int
	OOMKilled bool
	// KilledOutside: an event says that a KILL was sent to it through the engine. False proves nothing: events can be missed.
	KilledOutside         bool
	StartedAt, FinishedAt time.Time
	Limits                Limits
	// Probes: PID 1 waits for the proof of its runtime.
	Probes bool
}

// Alive reports whether the container's processes exist.
func (c Container) Alive() bool {
	return c.Status == "running" || c.Status == "paused" || c.Status == "restarting"
}

// Frozen reports a container whose processes exist and do nothing.
func (c Container) Frozen() bool { return c.Status == "paused" }

// Unclear reports a status on which nothing may be decided; it passes by itself.
func (c Container) Unclear() bool { return c.Status == "removing" || c.Status == "restarting" }

// Ended reports a container that ran, and runs no more.
func (c Container) Ended() bool { return !c.Alive() && !c.neverStarted() && !c.Unclear() }

// neverStarted reports a container that has not run yet.
func (c Container) neverStarted() bool { return c.Status == "created" }

// Network is one network of the sandbox.
type Network struct {
	ID      string
	Created time.Time
}

// Hook is the state of one internal exec.
type Hook struct {
	// Index counts all hooks of required services, in order, from 0.
	Index int
	// Service is whose hook it is, and Number which of that service's, from 1.
	Service   string
	Number    int
	Phase     Phase
	StartedAt time.Time
	ExitCode  int
	Cancelled bool
	// Error says why the command could not start; empty otherwise.
	Error string
	// Output is the end of what it printed, when it failed.
	Output string
	// Since is when this daemon first asked for it or saw it run; zero: not yet. What the container says of its start may be
	// wrong.
	Since time.Time
}

// Policy is the part of the daemon's configuration that decisions depend on.
type Policy struct {
	// IdleTTL stops a sandbox without active execs; 0: never. The spec's own value is resolved by the caller.
	IdleTTL time.Duration
	// CleanupTTL deletes a sandbox that has been STOPPED or FAILED for so long; 0: never.
	CleanupTTL time.Duration
	// FreezeDuration demotes a sandbox that has been frozen for so long, and StoppedGCAfter deletes one that has been demoted
	// for so long; 0: never.
	FreezeDuration, StoppedGCAfter time.Duration
	// AwakeSince is when the clock last jumped, as it does when the host wakes from sleep, or when the daemon began to look
	// at it. What had no time to happen before that is not late.
	AwakeSince time.Time
	// Hold is how long deadlines that stop, demote or delete still wait after a jump of the clock. 0: they act. Shorter waits, which
	// bound what a request waits for, count from the jump; see Began.
	Hold time.Duration
	// HookTimeout bounds one hook.
	HookTimeout time.Duration
	// FailInterruptedCreate: a create that was accepted before Started fails instead of going on.
	FailInterruptedCreate bool
	// Started is when this daemon did.
	Started time.Time
	// FailOnEngineDeath: the engine's death fails what ran instead of restarting it.
	FailOnEngineDeath bool
	// CancelGrace is how long a cancelled exec gets between TERM and KILL.
	CancelGrace time.Duration
	// ParkGrace is what the end of a sandbox grants its agents beyond CancelGrace: a turn, and saving its work.
	ParkGrace time.Duration
	// KeepOrphans: report orphans, do not remove them.
	KeepOrphans bool
}

// Plan is what a pass does: Before is recorded, then Steps are taken in order up to the first error, After is recorded if
// there was none, and then each of Asides is taken, whatever becomes of the others.
type Plan struct {
	Before Report
	Steps  []Step
	After  Report
	Asides []Aside
	// Next is when to look again; zero: only when something happens.
	Next time.Duration
	// Waiting says what the sandbox waits for, for a person; empty when it waits for nothing.
	Waiting string
	// InDoubt: there is a World.Doubt, and without it the plan would be another one.
	InDoubt bool
	// Unknown: objects of an ID that was never reserved, or is Unswept; reported, never touched.
	Unknown bool
}

// Report is what is recorded in one transaction.
type Report struct {
	Events []*agboxv1.SandboxEvent
	// EngineRun and Progress replace the recorded ones if set.
	EngineRun *storev1.EngineRun
	Progress  *storev1.Progress
	// LimitsApplied: the containers have the limits of the spec.
	LimitsApplied bool
	// Objects replace the recorded ones if set.
	Objects *storev1.Objects
}

// Empty reports whether there is nothing to record.
func (r Report) Empty() bool {
	return len(r.Events) == 0 && r.EngineRun == nil && r.Progress == nil && !r.LimitsApplied && r.Objects == nil
}

// Aside is work on which the state does not depend, such as one optional service. Its failure affects nothing else.
type Aside struct {
	Service string
	// State is the sandbox's when the aside is recorded.
	State agboxv1.SandboxState
	Steps []Step
	// Then is the service's progress, and Events are recorded, once the steps are done.
	Then   *storev1.ServiceProgress
	Events []*agboxv1.SandboxEvent
	// LimitsApplied is recorded, and nothing else, of the aside that applies limits.
	LimitsApplied bool
}

// Idle reports whether a pass would do nothing but look again.
func (p Plan) Idle() bool {
	return p.Before.Empty() && len(p.Steps) == 0 && p.After.Empty() && len(p.Asides) == 0 && !p.Unknown
}

// soonest takes d as the time of the next look if it is sooner than the present one. d is positive.
func (p *Plan) soonest(d time.Duration) {
	if d > 0 && (p.Next == 0 || d < p.Next) {
		p.Next = d
	}
}

func (p *Plan) add(steps ...Step) { p.Steps = append(p.Steps, steps...) }

// with adds events to what is recorded at the end.
func (p Plan) with(events ...*agboxv1.SandboxEvent) Plan {
	p.After.Events = append(p.After.Events, events...)
	return p
}
