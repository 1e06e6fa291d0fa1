package controller

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/sandbox"
)

// newSandboxes connects the Reconciler of sandboxes with the other packages.
func (c *Controller) newSandboxes() *sandbox.Reconciler {
	return sandbox.New(sandbox.Options{
		Store: c.cfg.Store, Engine: c.cfg.Engine, Objects: c.objects, Files: c.cfg.Execs, Link: c.link, Absences: c.absences, Clock: c.clock,
		Queue: c.sandboxLoop, Settings: c.inForce, Started: c.started, ParkGrace: agentplan.ParkGrace, Turns: c.agents.Observer().Turns,
		EnqueueExecs: func(id string) { c.execs.EnqueueOf(id) }, EnqueueAgents: c.agents.EnqueueOf, NoRoom: c.noRoom,
		ShimDir: c.cfg.ShimDir, CoverDir: c.cfg.CoverDir, CheckMounted: c.cfg.CheckMounted, HostUID: c.cfg.HostUID, HostGID: c.cfg.HostGID,
		Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// Status returns in one sentence what a sandbox waits for or its last error; empty if it is as wanted.
func (c *Controller) Status(sandboxID string) string { return c.sandboxes.Status(sandboxID) }

// Ports returns the last observed published ports of a sandbox. The caller must not change the messages.
func (c *Controller) Ports(sandboxID string) []*agboxv1.PublishedPort {
	return c.sandboxes.Ports(sandboxID)
}

// OverQuota returns how many sandboxes have used up their quota, as last measured.
func (c *Controller) OverQuota() int { return c.quotas.Full() }

// EngineRefuses calls sandbox.Reconciler.EngineRefuses.
func (c *Controller) EngineRefuses(spec *agboxv1.CreateSpec, confinement *storev1.Confinement) validate.Errors {
	return c.sandboxes.EngineRefuses(spec, confinement)
}
