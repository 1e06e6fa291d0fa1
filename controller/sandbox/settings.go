package sandbox

import "time"

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

	FailInterruptedCreate bool
	FailOnEngineDeath     bool
	KeepOrphans           bool
}
