package controller

import (
	"context"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/inspect"
)

// newExplainer connects the explainer of sandboxes with ports that only read.
func (c *Controller) newExplainer() *inspect.Explainer {
	return inspect.NewExplainer(inspect.ExplainOptions{
		Sandbox:   c.cfg.Store.Sandbox,
		Sandboxes: func() inspect.Sandboxes { return c.reader.With(c.link.Checker(), c.absences.Reader()) },
		Engine:    c.link.State, RunOf: c.link.RunOf, Clock: c.clock.Read, Queue: c.sandboxLoop, Status: c.Status,
	})
}

func (c *Controller) newAgentExplainer() *inspect.AgentExplainer {
	return inspect.NewAgentExplainer(inspect.AgentOptions{
		Agent: c.cfg.Store.Agent, Sandbox: c.cfg.Store.Sandbox, Agents: c.agents.Observer(), Engine: c.link.State, Clock: c.clock.Read,
		Queue: c.agentLoop, Status: c.AgentStatus,
	})
}

// newCollector connects the garbage collector: it only reads, except for its Remover.
func (c *Controller) newCollector() *inspect.Collector {
	return inspect.NewCollector(inspect.CollectOptions{
		Records: c.cfg.Store, Sandboxes: c.reader, Objects: c.objects, Containers: c.cfg.Engine.ListContainers, Dirs: c.cfg.Execs.Dirs,
		Life: c.link.Life, CheckMarker: c.link.Checker().CheckMarker, Clock: c.clock.Read, Remover: remover{c.cfg.Engine, c.cfg.Execs},
		Logger: c.log, Metrics: c.cfg.Metrics,
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

// Explain calls inspect.Explainer.Sandbox.
func (c *Controller) Explain(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
	return c.explainer.Sandbox(ctx, id)
}

// ExplainAgent calls inspect.AgentExplainer.Agent.
func (c *Controller) ExplainAgent(ctx context.Context, id string) (*agboxv1.ExplainResponse, error) {
	return c.agentExplainer.Agent(ctx, id)
}

// CollectGarbage calls inspect.Collector.Collect.
func (c *Controller) CollectGarbage(ctx context.Context, req *agboxv1.CollectGarbageRequest) ([]*agboxv1.GarbageItem, error) {
	return c.garbage.Collect(ctx, req)
}
