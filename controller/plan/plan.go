// Package plan decides: from the record of a sandbox, the observed world and the time to the steps that bring the world to the record. It
// is pure. Any pass may be the first after a crash, may be repeated, may be late; so a plan never depends on the memory of an earlier pass.
package plan

import (
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// Record is the store's knowledge of a sandbox.
type Record struct {
	ID string
	// Standing says whether there is a record; the fields below are set for Live only.
	Standing Standing

	Desired     storev1.RunState
	Attempt     storev1.Attempt
	Reason      string
	RequestedAt time.Time
	// State is the state of the last event that has one.
	State agboxv1.SandboxState
	// StateChangedAt is the time of that event.
	StateChangedAt time.Time
	// ErrorCode is the error code of a FAILED sandbox.
	ErrorCode string
	// Preparing: SANDBOX_PREPARING is recorded for this create.
	Preparing bool
	// EngineRun is the engine's life in which the sandbox was last known to run; nil before its first start.
	EngineRun *storev1.EngineRun
	// Progress is what the present run has done; nil counts as empty.
	Progress *storev1.Progress
	// Objects are the last observed engine IDs of the parts; nil before the first READY.
	Objects *storev1.Objects
	// Recover: the resume under way may create the network again.
	Recover bool
	// LimitsPending: an update changed limits that the containers do not have yet.
	LimitsPending bool
	// ActiveExecs is the number of execs without a recorded end.
	ActiveExecs int
	// Agents: the sandbox has agents. Turns is the number of agents whose turns its end waits for.
	Agents bool
	Turns  int
	// Leaving is the number of agents that outlive the sandbox and have not left it yet.
	Leaving int
	// Namesake is another live sandbox of the same name, if volumes of that name are needed: it may still use or remove them. Empty: none.
	Namesake string
	// RemoveVolumes: the delete also removes the volumes of the sandbox's name, or those that its container may have left.
	RemoveVolumes bool
	// IdleSince is zero unless the sandbox is READY without an active exec.
	IdleSince time.Time
	// DeadlineAt is when on_timeout applies; zero: never. It applies only while the sandbox runs.
	DeadlineAt time.Time
	// DemotedAt is since when a paused sandbox is to be stopped rather than frozen; zero: frozen.
	DemotedAt time.Time
	// OverFrozen: more sandboxes are frozen than allowed, and this one is among those frozen for longest.
	OverFrozen bool
	// KeepStopped: neither CleanupTTL nor StoppedGCAfter deletes it, unless it is FAILED.
	KeepStopped bool
	// Tries is how many passes over the sandbox failed in a row.
	Tries int
	// Wanted is what the spec requests.
	Wanted Wanted
}

// Kept reports whether nothing but a request deletes the sandbox while it does not run.
func (r Record) Kept() bool {
	return r.KeepStopped && r.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED
}

// WorkingDir is where execs start unless the spec says otherwise. It is part of the contract.
const WorkingDir = "/workspace"

// Reached reports whether the sandbox is in the state that its desired state leads to.
func (r Record) Reached() bool { return r.State == sandboxstate.Goal(r.Desired) }

// Failed reports whether the sandbox is FAILED.
func (r Record) Failed() bool { return r.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED }

// Runs reports whether the sandbox is READY and wanted to run.
func (r Record) Runs() bool { return r.WantsRun() && r.Reached() }

// WantsRun reports whether the sandbox is to become or stay READY; a FAILED one is not.
func (r Record) WantsRun() bool { return r.Desired == storev1.RunState_RUN_STATE_RUN && !r.Failed() }

// Creating reports whether the create of the sandbox is in progress.
func (r Record) Creating() bool {
	return r.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING && r.Attempt == storev1.Attempt_ATTEMPT_CREATE
}

// AtRest reports whether only a request changes the sandbox: it is FAILED, or was stopped on request.
func (r Record) AtRest() bool {
	return r.Failed() || r.Desired == storev1.RunState_RUN_STATE_STOP && r.Reached()
}

// Departs reports whether the sandbox has no live record, or is to be deleted.
func (r Record) Departs() bool {
	return r.Standing != Live || r.Desired == storev1.RunState_RUN_STATE_DELETE
}

// Ending reports whether the sandbox is live and is to be stopped or deleted.
func (r Record) Ending() bool {
	return r.Standing == Live && (r.Desired == storev1.RunState_RUN_STATE_STOP || r.Desired == storev1.RunState_RUN_STATE_DELETE)
}

// Wanted is the part of a spec that decisions depend on.
type Wanted struct {
	// Services are the required ones first, each kind in the order of the spec.
	Services []Service
	// Main: the primary has a main process, which runs once per start.
	Main bool
	// Copies: host files are copied into the primary before its first start.
	Copies bool
	// Volumes: a container mounts named volumes.
	Volumes bool
	// Restart is the primary's restart policy.
	Restart RestartPolicy
	Limits  Limits
	// Confined: the network policy needs packet filter rules.
	Confined bool
}

// Service is one service of the spec.
type Service struct {
	Name     string
	Required bool
	// Hooks is the number of its post-start hooks.
	Hooks int
	// Healthcheck: its spec has one, so a missing verdict does not count as healthy.
	Healthcheck bool
	// HealthWait bounds the time from its start to its first healthy verdict.
	HealthWait time.Duration
	Restart    RestartPolicy
	Limits     Limits
}

// Limits are the limits of a container that can change in place; 0: no limit.
type Limits struct{ NanoCPUs, MemoryBytes, Pids int64 }

// RestartPolicy says whether a container, or the process of an agent, that ended on its own is restarted.
type RestartPolicy string

// The policies. The empty one is RestartNever for a container, and RestartOnFailure for an agent.
const (
	RestartNever     RestartPolicy = "never"
	RestartOnFailure RestartPolicy = "on-failure"
	RestartAlways    RestartPolicy = "always"
)

// Standing is the store's knowledge of an ID.
type Standing int

// The standings.
const (
	// Live: a record that is not DELETED.
	Live Standing = iota
	// Gone: deleted or purged. Its remaining objects in Docker are orphans.
	Gone
	// Unswept: deleted by cleanup_ttl after a failure that may have been a wrong verdict. Its remaining objects in Docker are reported,
	// never removed.
	Unswept
	// NeverReserved: the store has no trace of the ID. History was lost: report, never remove.
	NeverReserved
	// Unreadable: the record is quarantined. No verdict, no step.
	Unreadable
)

// World is what the engine holds of one sandbox, found by label.
type World struct {
	Containers []Container
	Networks   []Network
	// Inputs: the directories that are mounted into the primary exist.
	Inputs bool
	// Begun: a primary was started, or was about to be, since these directories exist.
	Begun bool
	// Run is the engine's present life.
	Run *storev1.EngineRun
	// Hook is the next hook without a recorded success; nil: there is none to run.
	Hook *Hook
	// Doubt says why the absence of missing parts is not proven. Empty: it is proven, by two observations apart in time, by ID and by name,
	// on an engine with the recorded storage driver and data root.
	Doubt string
	// Removed: an event of the engine reported the removal of the missing part, or an operator confirmed that it is gone.
	Removed bool
	// ObserveAgain is the delay until an observation that may end the doubt; zero: a resync, an event or a request enqueues it.
	ObserveAgain time.Duration
	// Start is what PID 1 of the primary reported about its present or last run, if its container Reports.
	Start Start
	// Terminated: PID 1 of the primary got a TERM in its present or last run.
	Terminated bool
	// ExecOOM: the OOM killer ended an exec of this run. The engine's sticky flag cannot distinguish that.
	ExecOOM bool
	// Stopping are the IDs of the containers that the engine is stopping now.
	Stopping []string
	// Committing: this daemon has the engine make an image of the primary, which it has frozen for that, and thaws itself.
	Committing bool
}

// Start is what became of one run of the primary after its release.
type Start struct {
	// Reported: PID 1 has reported. Error says why the main process could not be started, or why commands have no user; empty: it has started.
	Reported bool
	Error    string
	// Main: the image's ENTRYPOINT is the main process, although the spec has none.
	Main bool
	// Since is when this daemon first observed that the process Pid of the host, PID 1 of the container, was released and has not reported.
	Since time.Time
	Pid   int
}

// HasPrimary reports whether the engine shows the primary.
func (w World) HasPrimary() bool {
	return slices.ContainsFunc(w.Containers, func(ct Container) bool { return ct.Component == naming.ComponentPrimary })
}

// Container is one container of the sandbox.
type Container struct {
	ID, Name string
	// Component is the value of the component label, Service that of the service label.
	Component, Service string
	// Status is the engine's: created, running, paused, restarting, removing, exited, dead.
	Status string
	// Health is the verdict of its healthcheck: "", starting, healthy or unhealthy. HealthOutput is the output of the last probe.
	Health, HealthOutput string
	// NetworkIDs are the networks it is attached to.
	NetworkIDs []string
	// EndedWell: it has exited with code 0.
	EndedWell bool
	// The fields below are set if it was inspected. ExitCode and OOMKilled are valid if it is not running.
	Inspected bool
	ExitCode  int
	OOMKilled bool
	// KilledOutside: an event says that a KILL was sent through the engine. False proves nothing: events can be missed.
	KilledOutside         bool
	StartedAt, FinishedAt time.Time
	Limits                Limits
	// Output is the end of what it printed, if it has failed and the failure is not recorded yet.
	Output string
	// Probes: PID 1 waits for the proof of its runtime.
	Probes bool
	// Reports: PID 1 reports its starts; that of earlier releases does not.
	Reports bool
}

// Alive reports whether the container's processes exist.
func (c Container) Alive() bool {
	return c.Status == "running" || c.Status == "paused" || c.Status == "restarting"
}

// Frozen reports a container whose processes exist but are suspended.
func (c Container) Frozen() bool { return c.Status == "paused" }

// Unclear reports a transient status on which nothing may be decided.
func (c Container) Unclear() bool { return c.Status == "removing" || c.Status == "restarting" }

// Ended reports a container that has run and no longer runs.
func (c Container) Ended() bool { return !c.Alive() && !c.neverStarted() && !c.Unclear() }

// neverStarted reports a container that has not run yet.
func (c Container) neverStarted() bool { return c.Status == "created" }

// Network is one network of the sandbox.
type Network struct {
	ID, Name string
	Created  time.Time
	// Unconfined: its packet filter rules are not those of the sandbox's policy.
	Unconfined bool
}

// Hook is the state of one hook, which is an internal exec.
type Hook struct {
	// Index is the position among all hooks of required services, from 0.
	Index int
	// Service is the service of the hook; Number is the position among its hooks, from 1.
	Service   string
	Number    int
	Phase     execphase.Phase
	StartedAt time.Time
	ExitCode  int
	// Cancelled: a cancel ended it. Stopped: the end of its container did.
	Cancelled, Stopped bool
	// Error says why the command could not start; empty otherwise.
	Error string
	// Memory says what the kernel killed for memory meanwhile: the end of a message, empty if nothing.
	Memory string
	// Output is the end of the output of a failed hook.
	Output string
	// Since is when this daemon first requested it or observed it running; zero: not yet. The start time that the container reports may be
	// false.
	Since time.Time
}

// Settings is the part of the configuration that may change while the controller runs. Each pass reads it once.
type Settings struct {
	// IdleTTL is the idle time after which a sandbox is stopped whose spec has no idle_ttl; 0: never.
	IdleTTL time.Duration
	// CleanupTTL is the time after which a STOPPED or FAILED sandbox is deleted; 0: never.
	CleanupTTL time.Duration
	// Timeout is how long a sandbox may run whose spec has no timeout; 0: forever.
	Timeout time.Duration
	// FreezeDuration, MaxFrozen and StoppedGCAfter bound what paused sandboxes cost: how long one stays frozen, how many are frozen at a
	// time, and after what time one that was stopped instead is deleted; 0: no bound.
	FreezeDuration time.Duration
	MaxFrozen      int
	StoppedGCAfter time.Duration
	// ClockGrace is how long after a clock jump or a sleep of the host no expired deadline stops, demotes, deletes or purges anything; 0:
	// not at all.
	ClockGrace time.Duration
	// StopGrace is the time between TERM and KILL for a container.
	StopGrace time.Duration
	// CancelGrace is the time between TERM and KILL for a cancelled exec.
	CancelGrace time.Duration
	// HookTimeout bounds one post_start_on_primary hook.
	HookTimeout time.Duration
	// HealthTimeout bounds the wait for the health of a service, even if its healthcheck allows more.
	HealthTimeout time.Duration
	// PidsLimit applies to containers whose spec sets none.
	PidsLimit int64
	// LogLimit bounds each log of an exec, in bytes; 0: no bound. KillAtLogLimit ends the exec at the limit; otherwise further output is
	// dropped. A spec may override both.
	LogLimit       int64
	KillAtLogLimit bool
	// SandboxQuota bounds the disk space of the logs of all execs of a sandbox together, in bytes; 0: no bound.
	SandboxQuota int64
	// EventRetention is how long the history of a deleted sandbox stays readable; 0: forever.
	EventRetention time.Duration

	// FailInterruptedCreate: a create that was accepted before Policy.Started fails instead of continuing.
	FailInterruptedCreate bool
	// FailOnEngineDeath: the engine's death fails a running sandbox instead of restarting it.
	FailOnEngineDeath bool
	// KeepOrphans: report orphans, do not remove them.
	KeepOrphans bool
}

// Policy is what decisions about one sandbox depend on beside its record. IdleTTL is that of its spec, if that has one.
type Policy struct {
	Settings
	// AwakeSince is when the clock last jumped, as after a sleep of the host, or when the daemon started to watch it. What could not happen
	// before that time is not late.
	AwakeSince time.Time
	// EngineSince is when the engine last became usable. What only it can report is not late before that.
	EngineSince time.Time
	// Hold is how long deadlines that stop, demote or delete still wait after a jump of the clock. 0: they act. Shorter waits, which bound
	// how long a request waits, count from the jump; see Began.
	Hold time.Duration
	// Started is when this daemon started.
	Started time.Time
}

// Plan is what a pass does: Before is recorded, Steps run in order up to the first error, After is recorded if there was none, and then
// each of Asides runs, even if others fail.
type Plan struct {
	Before Report
	Steps  []Step
	After  Report
	Asides []Aside
	// Next is the requeue delay; zero: none.
	Next time.Duration
	// Waiting says for a human what the sandbox waits for; empty: nothing.
	Waiting string
	// InDoubt: World.Doubt is set, and without it the plan would differ.
	InDoubt bool
	// Unknown: there are objects of an ID that was never reserved or is Unswept; they are reported, never touched.
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
	// Objects replaces the recorded one if set.
	Objects *storev1.Objects
}

// Empty reports whether there is nothing to record.
func (r Report) Empty() bool {
	return len(r.Events) == 0 && r.EngineRun == nil && r.Progress == nil && !r.LimitsApplied && r.Objects == nil
}

// Aside is work that the sandbox's state does not depend on, such as one optional service. Its failure affects nothing else.
type Aside struct {
	Service string
	// State is the sandbox's state when the aside is recorded.
	State agboxv1.SandboxState
	Steps []Step
	// Then is the service's progress after the steps; Events are recorded with it.
	Then   *storev1.ServiceProgress
	Events []*agboxv1.SandboxEvent
	// LimitsApplied is set on the aside that applies limits, which records nothing else.
	LimitsApplied bool
}

// Idle reports whether a pass would do nothing but requeue.
func (p Plan) Idle() bool {
	return p.Before.Empty() && len(p.Steps) == 0 && p.After.Empty() && len(p.Asides) == 0 && !p.Unknown
}

// soonest sets Next to d if d is sooner. d must be positive to count.
func (p *Plan) soonest(d time.Duration) {
	if d > 0 && (p.Next == 0 || d < p.Next) {
		p.Next = d
	}
}

func (p *Plan) add(steps ...Step) { p.Steps = append(p.Steps, steps...) }

// with adds events to the final report.
func (p Plan) with(events ...*agboxv1.SandboxEvent) Plan {
	p.After.Events = append(p.After.Events, events...)
	return p
}
