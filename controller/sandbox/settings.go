package sandbox

import "time"

// Settings are the parts of the configuration that may change while the controller runs. Each pass reads them once.
type Settings struct {
	// IdleTTL stops a sandbox whose spec has no idle_ttl of its own; 0: never.
	IdleTTL time.Duration
	// CleanupTTL deletes a sandbox that has been STOPPED or FAILED for so long; 0: never.
	CleanupTTL time.Duration
	// Timeout is how long a sandbox may run whose spec has no timeout of its own; 0: forever.
	Timeout time.Duration
	// FreezeDuration, MaxFrozen and StoppedGCAfter bound what paused sandboxes cost: how long one stays frozen, how many do at a
	// time, and when one that was stopped instead is deleted; 0: no bound.
	FreezeDuration time.Duration
	MaxFrozen      int
	StoppedGCAfter time.Duration
	// ClockGrace is for how long nothing is stopped, demoted, deleted or purged because its time has passed after the clock jumped
	// or the host slept; 0: not at all.
	ClockGrace time.Duration
	// StopGrace is what a container gets between TERM and KILL.
	StopGrace time.Duration
	// CancelGrace is what a cancelled exec gets between TERM and KILL.
	CancelGrace time.Duration
	// HookTimeout bounds one post_start_on_primary hook.
	HookTimeout time.Duration
	// HealthTimeout bounds the wait for the health of a service, whatever its healthcheck allows.
	HealthTimeout time.Duration
	// PidsLimit is for containers whose spec has none of its own.
	PidsLimit int64
	// LogLimit bounds each log of an exec, in bytes; 0: no bound. KillAtLogLimit ends the exec there; otherwise what follows
	// is dropped. A spec may say otherwise.
	LogLimit       int64
	KillAtLogLimit bool
	// SandboxQuota bounds what the logs of all execs of a sandbox take on disk together, in bytes; 0: no bound.
	SandboxQuota int64
	// EventRetention is how long the history of a deleted sandbox stays readable; 0: forever.
	EventRetention time.Duration

	FailInterruptedCreate bool
	FailOnEngineDeath     bool
	KeepOrphans           bool
}
