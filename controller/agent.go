package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/internal/agent/agentstate"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// LoopAgents is the name of the agents' queue.
const LoopAgents = "agents"

// reconcileAgent is one pass over one agent: observe, decide, take the one step. It needs the store and files, never the
// engine: what the engine has to say of its sandbox is in the sandbox's state.
func (c *Controller) reconcileAgent(ctx context.Context, id string) (queue.Result, error) {
	at := c.clock.Look()
	a, err := c.cfg.Store.Agent(ctx, id)
	if errdefs.IsNotFound(err) {
		c.agentBoard.forget(id)
		return queue.Result{}, nil
	}
	if err != nil {
		return queue.Result{}, fmt.Errorf("load agent: %w", err)
	}
	if a.Corrupt {
		c.agentBoard.set(id, "its stored record does not decode, so it is left alone; see the daemon's log")
		return queue.Result{}, nil
	}
	if c.cfg.Store.RebuildPending() { // nor before it is known which processes there are
		c.agentBoard.set(id, recordsAway)
		return queue.Result{}, nil
	}
	c.countTransitions(ctx, a)
	v, err := c.observeAgent(ctx, a, at)
	if err != nil {
		c.agentBoard.set(id, "retrying: "+message.Of(err))
		return queue.Result{}, fmt.Errorf("observe agent: %w", err)
	}
	p := agentplan.Decide(agentRecord(a), v.world, at.Now)
	if why := c.noRoom(); why != "" && p.WaitsForRoom(agentRecord(a), v.world) {
		c.agentBoard.set(id, why)
		return queue.Result{Next: roomLook}, nil
	}
	c.agentBoard.set(id, p.Waiting)
	if p.Kind == agentplan.Adopt {
		c.agentBoard.verify(id) // it is known to be there before that is on record
	}
	if err := v.take(ctx, p); err != nil {
		if errdefs.IsAborted(err) { // the newer state has its own pass, unless it is that of the sandbox to move to
			return queue.Result{Next: abortedLook}, nil
		}
		c.agentBoard.set(id, "retrying: "+message.Of(err))
		return queue.Result{}, fmt.Errorf("%s: %w", p.Kind, err)
	}
	if p.Kind == agentplan.Read || p.Kind == agentplan.Deliver || p.Kind == agentplan.Adopt {
		c.agents.Add(id) // what follows from it is decided by the next pass, whether or not anything was recorded
		return queue.Result{}, nil
	}
	c.agentBoard.verify(id)
	return queue.Result{Next: p.Next}, nil
}

// agentRecord is the part of an agent's record that decisions depend on.
func agentRecord(a store.Agent) agentplan.Record {
	return agentplan.Record{
		Run: a.Desired.GetRun(), State: a.Status.GetState(), Incarnation: a.Status.GetIncarnation(),
		Attempts: a.Status.GetAttempts(), LastStart: clock.FromNanos(a.Status.GetLastStartAt()),
		ReadyAt: clock.FromNanos(a.Status.GetReadyAt()), ChangedAt: clock.FromNanos(a.Status.GetStateChangedAt()),
		NeedsAttention: a.Status.GetNeedsAttention(), Parked: a.Status.GetParked(),
		ReadyIsProcess: a.Spec.GetReady() == "process", Restart: agentplan.RestartPolicy(a.Spec.GetRestartPolicy()),
		StartTimeout: startTimeout(a.Spec), Queued: a.Queued > 0,
		Nudged: wasNudged(a) || isFrozen(a), Interrupted: interrupted(a), Resumes: a.Status.GetRung() == agboxv1.AgentRung_AGENT_RUNG_NATIVE,
	}
}

// abortedLook is when an agent is looked at again whose state was not what a pass had seen: no commit tells it of a destination
// that is gone.
const abortedLook = time.Second

// defaultStartTimeout is part of the contract.
const defaultStartTimeout = 60 * time.Second

func startTimeout(spec *agboxv1.AgentSpec) time.Duration {
	if t := spec.GetStartTimeout(); t != nil {
		return t.AsDuration()
	}
	return defaultStartTimeout
}

// interrupted reports whether somebody asked for the end of the present turn.
func interrupted(a store.Agent) bool {
	return a.Status.GetPromptId() != "" && a.Desired.GetInterruptPromptId() == a.Status.GetPromptId()
}

// AgentStatus says in one sentence what an agent waits for, and whether it has not been looked at since the start.
func (c *Controller) AgentStatus(agentID string) (line string, unverified bool) {
	return c.agentBoard.get(agentID)
}

// watchAgents turns what agents say into keys. Losing the watch costs promptness only, until the next resync.
func (c *Controller) watchAgents(ctx context.Context) {
	if c.cfg.WatchAgents == nil {
		return
	}
	for ctx.Err() == nil {
		err := c.cfg.WatchAgents(ctx, c.agentSpoke)
		if ctx.Err() != nil {
			return
		}
		c.log.Error("inotify is unavailable; polling the output of agents", "err", err)
		c.pollAgents(ctx)
	}
}

// agentPoll is the interval at which the output of agents is polled while the kernel does not watch it. It grows with every pollAtOnce
// agents.
const (
	agentPoll  = 100 * time.Millisecond
	pollAtOnce = 20
)

// pollAgents enqueues all agents periodically until it is time to ask the kernel for a watch again.
func (c *Controller) pollAgents(ctx context.Context) {
	for begun := time.Now(); time.Since(begun) < watchRetry; {
		n := len(c.cfg.Store.LiveAgentIDs())
		if wait.For(ctx, agentPoll*time.Duration(1+n/pollAtOnce)) != nil {
			return
		}
		c.wakeAgents()
	}
}

func (c *Controller) agentSpoke(sandboxID, execID string) {
	switch {
	case execID != "":
		c.wakeAgentOf(execID)
	case sandboxID != "":
		c.wakeAgentsOf(sandboxID)
	default:
		c.wakeAgents()
	}
}

func (c *Controller) wakeAgents() {
	for _, id := range c.cfg.Store.LiveAgentIDs() {
		c.agents.Add(id)
	}
}

// wakeAgentsOf adds the keys of the agents of a sandbox.
func (c *Controller) wakeAgentsOf(sandboxID string) {
	for _, id := range c.cfg.Store.AgentsOf(sandboxID) {
		c.agents.Add(id)
	}
}

// wakeAgentOf adds the key of the agent whose process an exec is, if it is one.
func (c *Controller) wakeAgentOf(execID string) {
	if id, _, ok := agentstate.OfExec(execID); ok {
		c.agents.Add(id)
	}
}

// agentExec is the exec of an incarnation.
func agentExec(a store.Agent) string {
	return agentstate.ExecID(a.ID, a.Status.GetIncarnation())
}

// hydrateAgents takes in, before anything is decided, what the agents have printed while no daemon was there. One that can't be
// read stops nothing: its own pass says why.
func (c *Controller) hydrateAgents(ctx context.Context) {
	if c.cfg.Store.RebuildPending() {
		return // its end has all of them looked at
	}
	for _, id := range c.cfg.Store.LiveAgentIDs() {
		if err := c.readBacklog(ctx, id); err != nil && ctx.Err() == nil {
			c.log.Warn("the output of an agent is not read yet", "agent_id", id, "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
	c.wakeAgents()
}

// backlogReads bounds how much of one agent is read before the others have their turn.
const backlogReads = 64

func (c *Controller) readBacklog(ctx context.Context, id string) error {
	for range backlogReads {
		a, err := c.cfg.Store.Agent(ctx, id)
		if err != nil || a.Corrupt || a.Status.GetIncarnation() == 0 {
			return err
		}
		v, err := c.observeAgent(ctx, a, c.clock.Look())
		if err != nil || !v.world.Unread || c.noRoom() != "" {
			return err
		}
		if err := v.read(ctx); err != nil {
			return err
		}
	}
	return nil
}
