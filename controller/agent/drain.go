package agent

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

// drainPoll is the interval at which a drain checks its conditions.
const drainPoll = 100 * time.Millisecond

// Drainer carries out drains. A drain and its phase are recorded in the store; the Drainer's memory may be lost.
type Drainer struct {
	cfg     Options // those of the Reconciler
	agents  *Reconciler
	store   DrainStore
	drained func(exit bool)
	wake    chan struct{}

	mu     sync.Mutex
	forced bool // no more waiting
}

// NewDrainer returns a Drainer that parks the agents of r. It calls drained when a drain is DONE, with the exit that its caller requested;
// drained must not block, and may be nil.
func NewDrainer(r *Reconciler, s DrainStore, drained func(exit bool)) *Drainer {
	return &Drainer{cfg: r.cfg, agents: r, store: s, drained: drained, wake: make(chan struct{}, 1)}
}

func (d *Drainer) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Drainer) hurry(forced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forced = forced
}

func (d *Drainer) hurries() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forced
}

// Drain closes the gates and starts to park agents, or only closes the gates, by mode. It returns once that is recorded.
func (d *Drainer) Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error) {
	if _, err := d.store.BeginDrain(ctx, o); err != nil {
		return nil, err
	}
	d.cfg.Metrics.Drained(agboxv1.DrainPhase_DRAIN_PHASE_WAITING.String())
	d.hurry(false)
	d.rouse()
	d.agents.EnqueueAll()
	d.cfg.Logger.Warn("draining", "mode", o.Mode.String(), "reason", o.Reason)
	return d.Status(), nil
}

// Hurry stops waiting for agents in a turn: their work is saved now.
func (d *Drainer) Hurry() {
	d.hurry(true)
	d.rouse()
}

// Undrain opens the gates. changed is false if there was no drain.
func (d *Drainer) Undrain(ctx context.Context) (changed bool, err error) {
	changed, err = d.store.EndDrain(ctx)
	d.agents.EnqueueAll()
	return changed, err
}

// Status returns the phase and the progress of a drain.
func (d *Drainer) Status() *agboxv1.DrainStatus {
	rec := d.cfg.Store.Drain()
	if rec == nil {
		return &agboxv1.DrainStatus{}
	}
	busy := d.BusyAgents()
	return &agboxv1.DrainStatus{
		Draining: true, Mode: rec.GetMode(), Phase: rec.GetPhase(), Reason: rec.GetReason(),
		StartedAt: timestamppb.New(time.Unix(0, rec.GetStartedAt())), WaitUntil: timestamppb.New(time.Unix(0, rec.GetWaitUntil())),
		Busy: uint32(len(busy)), BusyAgents: busy, Parked: rec.GetParked(), Saved: rec.GetSaved(), NotSaved: rec.GetNotSaved(),
	}
}

// BusyAgents returns the IDs of the agents in a turn, sorted.
func (d *Drainer) BusyAgents() []string {
	return d.agentsIn(context.Background(), agboxv1.AgentState_AGENT_STATE_BUSY)
}

// agentsIn returns the live agents in one of the given states. It leaves out agents in a paused sandbox: they lose nothing, and their
// processes cannot react to a nudge.
func (d *Drainer) agentsIn(ctx context.Context, states ...agboxv1.AgentState) (ids []string) {
	for _, id := range d.cfg.Store.LiveAgentIDs() {
		a, err := d.cfg.Store.Agent(ctx, id)
		if err != nil || !slices.Contains(states, a.Status.GetState()) {
			continue
		}
		if sb, err := d.store.Sandbox(ctx, a.SandboxID); err == nil && isAsleep(sb.Desired.GetRunState(), sb.State) {
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Run carries out drains until ctx ends.
func (d *Drainer) Run(ctx context.Context) {
	for {
		next := time.Hour // no drain runs; Drain wakes the loop
		if rec := d.cfg.Store.Drain(); rec != nil && rec.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_DONE {
			next = drainPoll
			if err := d.advance(ctx, rec); err != nil && ctx.Err() == nil {
				d.cfg.Logger.Warn("the drain goes on later", "err", err)
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// advance runs the next step of a drain.
func (d *Drainer) advance(ctx context.Context, rec *storev1.DrainRecord) error {
	if rec.GetMode() != agboxv1.DrainMode_DRAIN_MODE_PARK {
		return d.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_DONE)
	}
	alive := d.agentsIn(ctx, agboxv1.AgentState_AGENT_STATE_STARTING, agboxv1.AgentState_AGENT_STATE_IDLE, agboxv1.AgentState_AGENT_STATE_BUSY)
	switch {
	case len(alive) == 0:
		return d.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_DONE)
	case rec.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_SAVING:
		d.saveStragglers(ctx, rec, alive)
		return d.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_DONE)
	case d.hurries(), waited(rec, d.cfg.Clock.Look()):
		return d.endPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_SAVING)
	}
	return nil // the passes over busy agents nudge them
}

// waited reports whether a drain has waited its full time.
func waited(rec *storev1.DrainRecord, l clock.Look) bool {
	return l.Now.Sub(l.Began(clock.FromNanos(rec.GetStartedAt()))) >= time.Duration(rec.GetWaitUntil()-rec.GetStartedAt())
}

func (d *Drainer) endPhase(ctx context.Context, rec *storev1.DrainRecord, next agboxv1.DrainPhase) error {
	_, err := d.store.SetDrainPhase(ctx, rec, next)
	if errdefs.IsFailedPrecondition(err) {
		return nil // it was ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("record the phase of the drain: %w", err)
	}
	d.cfg.Logger.Info("drain goes on", "phase", next.String(), "mode", rec.GetMode().String())
	d.cfg.Metrics.Drained(next.String())
	d.rouse()
	if next == agboxv1.DrainPhase_DRAIN_PHASE_DONE && d.drained != nil {
		d.drained(rec.GetExit())
	}
	return nil
}
