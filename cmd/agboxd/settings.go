package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/agbox/agbox/config"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/host/mountpolicy"
	"github.com/agbox/agbox/internal/host/resolvers"
	"github.com/agbox/agbox/internal/server"
)

// apply passes the reloadable keys to their users.
func (d *daemon) apply(cfg config.Config) {
	d.level.Set(cfg.Log.Level.Level())
	d.store.SetEventHistoryLimit(cfg.Runtime.EventHistoryLimit)
	d.ctl.SetSettings(settings(cfg))
	d.current.Store(&cfg)
	d.disk.SetLowWater(int64(cfg.Disk.LowWater))
	d.reloadIdentity(cfg.TCP)
	d.reloadE2BCert(cfg.E2B)
}

// rulesNow returns the rules in force.
func (d *daemon) rulesNow() server.Rules {
	cfg := d.current.Load()
	r := rules(*cfg)
	r.Resolvers = func() []netip.Addr { return resolvers.ForContainers(d.resolvers()) }
	r.Mounts = d.places.Policy(cfg.Mounts.AllowSystem, cfg.Mounts.Allow, d.engineData(), d.log)
	return r
}

// engineData returns the data directory of the engine, or the last one on record; "" before the engine's first answer.
func (d *daemon) engineData() string {
	if _, info := d.ctl.EngineRun(); info.DataRoot != "" {
		return info.DataRoot
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	was, err := d.store.EngineIdentity(ctx)
	if err != nil {
		d.log.Warn("where the engine keeps its data is unknown until it answers: mounts of it are accepted", "err", err)
	}
	return was.GetDataRoot()
}

func callerLimits(cfg config.Config) server.CallerLimits {
	l := cfg.Limits
	return server.CallerLimits{Sandboxes: l.SandboxesPerCaller, Pending: l.PendingPerCaller, Execs: l.ExecsPerCaller}
}

// rules returns the rules that depend only on the configuration.
func rules(cfg config.Config) server.Rules {
	return server.Rules{
		Profile: cfg.Security.Profile, SecurityAllow: cfg.Security.Allow, Entrypoint: cfg.Runtime.Entrypoint, MemoryLimit: int64(cfg.Runtime.MemoryLimit),
		NetworkMode: cfg.Runtime.NetworkMode, NetworkRequired: cfg.Runtime.NetworkRequired,
		Mounts: mountpolicy.Policy{AllowSystem: cfg.Mounts.AllowSystem, Allow: cfg.Mounts.Allow},
	}
}

func settings(cfg config.Config) controller.Settings {
	r := cfg.Runtime
	return controller.Settings{
		IdleTTL: r.IdleTTL, CleanupTTL: r.CleanupTTL, Timeout: r.Timeout,
		ClockGrace:     r.ClockGrace,
		FreezeDuration: cfg.Pause.FreezeDuration, MaxFrozen: cfg.Pause.MaxFrozen, StoppedGCAfter: cfg.Pause.StoppedGCAfter,
		StopGrace: r.StopGrace, CancelGrace: r.CancelGrace,
		HookTimeout: r.HookTimeout, HealthTimeout: r.HealthTimeout, PidsLimit: int64(r.PidsLimit),
		LogLimit:              int64(cfg.Artifacts.ExecLogMaxBytes),
		SandboxQuota:          int64(cfg.Artifacts.SandboxMaxBytes),
		KillAtLogLimit:        cfg.Artifacts.OnLogLimit == config.OnLogLimitKill,
		EventRetention:        r.EventRetentionTTL,
		FailInterruptedCreate: r.InterruptedCreate == config.InterruptedCreateFail,
		FailOnEngineDeath:     r.EngineDeath == config.EngineDeathFail,
		KeepOrphans:           r.OrphanSweep == config.OrphanSweepDryRun,
	}
}
