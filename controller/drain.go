package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/store"
)

// drainLook is how often a drain looks at what it waits for.
const drainLook = 100 * time.Millisecond

// drainer carries out a drain. That something drains, and how far it is, is on record; what is here can be lost.
type drainer struct {
	wake chan struct{}

	mu     sync.Mutex
	forced bool // no more waiting: somebody is in a hurry
}

func newDrainer() *drainer { return &drainer{wake: make(chan struct{}, 1)} }

func (d *drainer) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *drainer) hurry(forced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forced = forced
}

func (d *drainer) hurries() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forced
}

// Drain closes the gates and begins to park agents, or only closes the gates, by mode. It returns once that is on record.
func (c *Controller) Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error) {
	if _, err := c.cfg.Store.BeginDrain(ctx, o); err != nil {
		return nil, err
	}
	c.cfg.Metrics.Drained(agboxv1.DrainPhase_DRAIN_PHASE_WAITING.String())
	c.drainer.hurry(false)
	c.drainer.rouse()
	c.wakeAgents()
	c.log.Warn("draining", "mode", o.Mode.String(), "reason", o.Reason)
	return c.DrainStatus(), nil
}

// HurryDrain has what still works saved now instead of waiting for it.
func (c *Controller) HurryDrain() {
	c.drainer.hurry(true)
	c.drainer.rouse()
}

// Undrain opens the gates. changed is false when nothing drained.
func (c *Controller) Undrain(ctx context.Context) (changed bool, err error) {
	changed, err = c.cfg.Store.EndDrain(ctx)
	c.wakeAgents()
	return changed, err
}

// DrainStatus says how far a drain is.
func (c *Controller) DrainStatus() *agboxv1.DrainStatus {
	rec := c.cfg.Store.Drain()
	if rec == nil {
		return &agboxv1.DrainStatus{}
	}
	busy := c.busyAgents()
	return &agboxv1.DrainStatus{
		Draining: true, Mode: rec.GetMode(), Phase: rec.GetPhase(), Reason: rec.GetReason(),
		StartedAt: timestamppb.New(time.Unix(0, rec.GetStartedAt())), WaitUntil: timestamppb.New(time.Unix(0, rec.GetWaitUntil())),
		Busy: uint32(len(busy)), BusyAgents: busy, Parked: rec.GetParked(), Saved: rec.GetSaved(), NotSaved: rec.GetNotSaved(),
	}
}

// BusyAgents is the number of agents in a turn.
func (c *Controller) BusyAgents() int { return len(c.busyAgents()) }

// busyAgents are the IDs of the agents in a turn, sorted.
func (c *Controller) busyAgents() []string {
	return c.agentsIn(context.Background(), agboxv1.AgentState_AGENT_STATE_BUSY)
}

// agentsIn are the agents in one of the states that a drain has to do with: in a sandbox that is paused nothing is lost, and
// nobody heeds a nudge.
func (c *Controller) agentsIn(ctx context.Context, states ...agboxv1.AgentState) (ids []string) {
	for _, id := range c.cfg.Store.LiveAgentIDs() {
		a, err := c.cfg.Store.Agent(ctx, id)
		if err != nil || !slices.Contains(states, a.Status.GetState()) {
			continue
		}
		if sb, err := c.cfg.Store.Sandbox(ctx, a.SandboxID); err == nil && isAsleep(sb.Desired.GetRunState(), sb.State) {
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// drainLoop carries out drains until ctx ends.
func (c *Controller) drainLoop(ctx context.Context) {
	for {
		next := time.Hour // as long as a drain can last
		if rec := c.cfg.Store.Drain(); rec != nil && rec.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE {
			next = drainLook
			if err := c.drainOn(ctx, rec); err != nil && ctx.Err() == nil {
				c.log.Warn("the drain goes on later", "err", err)
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-c.drainer.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// drainOn takes a drain one step on.
func (c *Controller) drainOn(ctx context.Context, rec *storev1.DrainRecord) error {
	if rec.GetMode() != agboxv1.DrainMode_DRAIN_MODE_PARK {
		return c.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_DONE)
	}
	alive := c.agentsIn(ctx, agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY)
	switch {
	case len(alive) == 0:
		return c.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_DONE)
	case rec.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_SAVING:
		c.saveStragglers(ctx, rec, alive)
		return c.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_DONE)
	case c.drainer.hurries(), waited(rec, c.clock.Look()):
		return c.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_SAVING)
	}
	return nil // busy ones are nudged by their own passes
}

// waited reports whether a drain has waited for as long as it is to.
func waited(rec *storev1.DrainRecord, l clock.Look) bool {
	return l.Now.Sub(l.Began(clock.FromNanos(rec.GetStartedAt()))) >= time.Duration(rec.GetWaitUntil()-rec.GetStartedAt())
}

func (c *Controller) endPhase(ctx context.Context, rec *storev1.DrainRecord, next agboxv1.DrainPhase) error {
	_, err := c.cfg.Store.SetDrainPhase(ctx, rec, next)
	if errdefs.IsFailedPrecondition(err) {
		return nil // somebody ended it
	}
	if err != nil {
		return fmt.Errorf("record the phase of the drain: %w", err)
	}
	c.log.Info("drain goes on", "phase", next.String(), "mode", rec.GetMode().String())
	c.cfg.Metrics.Drained(next.String())
	c.drainer.rouse()
	if next == agboxv1.DrainPhase_DRAIN_PHASE_DONE && c.cfg.Drained != nil {
		c.cfg.Drained(rec.GetExit())
	}
	return nil
}
