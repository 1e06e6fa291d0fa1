package controller

import (
	"context"

	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/controller/sandbox"
)

// newExplainer connects the explainer with ports that only read.
func (c *Controller) newExplainer() *inspect.Explainer {
	return inspect.NewExplainer(inspect.Options{
		Sandbox: c.cfg.Store.Sandbox, Agent: c.cfg.Store.Agent,
		Sandboxes: func() *sandbox.Reader { return c.reader.With(c.link.Checker, c.absences.ReadOnly()) }, Agents: c.agents.Observer(),
		Engine: c.link.State, RunOf: c.link.RunOf, Clock: c.clock.Read, SandboxQueue: c.sandboxLoop, AgentQueue: c.agentLoop,
		SandboxStatus: c.Status, AgentStatus: c.AgentStatus,
	})
}

// newCollector connects the garbage collector: it only reads, except for its Remover.
func (c *Controller) newCollector() *inspect.Collector {
	return inspect.NewCollector(inspect.CollectOptions{
		Lister: inspect.Lister{
			Records: c.cfg.Store, Sandboxes: c.reader, Objects: c.objects, Containers: c.cfg.Engine.ListContainers, Dirs: c.cfg.Execs.Dirs,
			Life: c.link.Life, CheckMarker: c.link.Checker.CheckMarker, Clock: c.clock.Read,
		},
		Remover: remover{c.cfg.Engine, c.cfg.Execs}, Logger: c.log, Metrics: c.cfg.Metrics,
	})
}

// remover removes garbage from the engine and from the host.
type remover struct {
	engineRemover
	dirRemover
}

type engineRemover interface {
	RemoveContainer(ctx context.Context, id string) error
	RemoveNetwork(ctx context.Context, id string) error
}

type dirRemover interface{ RemoveDir(path string) error }
