package agent

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/store"
)

// DrainKey is the key of the only drain that there can be.
const DrainKey = "drain"

// Drainer advances a drain from phase to phase. The store holds the drain and its phase, and the passes over agents park them.
type Drainer struct {
	agents  *Reconciler
	store   DrainStore
	queue   *queue.Loop
	drained func(exit bool)
}

// NewDrainer returns a Drainer for the agents of r, whose queue q has the key DrainKey. It calls drained once or more when a drain is
// over: DONE, with the exit that its caller requested, or withdrawn, with false; drained must not block, and may be nil.
func NewDrainer(r *Reconciler, s DrainStore, q *queue.Loop, drained func(exit bool)) *Drainer {
	return &Drainer{agents: r, store: s, queue: q, drained: drained}
}

// Drain closes the gates and starts to park agents, or only closes the gates, by mode. It returns once that is recorded.
func (d *Drainer) Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error) {
	if _, err := d.store.StartDrain(ctx, o); err != nil {
		return nil, err
	}
	d.agents.cfg.Metrics.Drained(agboxv1.DrainPhase_DRAIN_PHASE_WAITING.String())
	d.queue.Add(DrainKey)
	d.agents.EnqueueAll()
	d.agents.cfg.Logger.Warn("draining", "mode", o.Mode.String(), "reason", o.Reason)
	return d.DrainStatus(), nil
}

// SaveNow stops waiting for agents in a turn: their work is saved now. Without a drain that waits for agents it does nothing.
func (d *Drainer) SaveNow(ctx context.Context) error {
	rec := d.agents.cfg.Store.Drain()
	if rec.GetMode() != agboxv1.DrainMode_DRAIN_MODE_PARK || rec.GetPhase() != agboxv1.DrainPhase_DRAIN_PHASE_WAITING {
		return nil
	}
	return d.enterPhase(ctx, rec, agboxv1.DrainPhase_DRAIN_PHASE_SAVING)
}

// Undrain opens the gates. changed is false if there was no drain.
func (d *Drainer) Undrain(ctx context.Context) (changed bool, err error) {
	changed, err = d.store.WithdrawDrain(ctx)
	d.queue.Add(DrainKey)
	d.agents.EnqueueAll()
	return changed, err
}

// DrainStatus returns the phase and the progress of a drain.
func (d *Drainer) DrainStatus() *agboxv1.DrainStatus {
	rec := d.agents.cfg.Store.Drain()
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
	return slices.Sorted(d.agentsIn(context.Background(), func(s agboxv1.AgentState) bool { return s == agboxv1.AgentState_AGENT_STATE_BUSY }))
}

// anyAlive reports whether an agent has a process. It reads no more agents than it needs: each end of a process adds the key of the drain.
func (d *Drainer) anyAlive(ctx context.Context) bool {
	for range d.agentsIn(ctx, agentplan.Lives) {
		return true
	}
	return false
}

// agentsIn returns the agents whose state is, unordered. It leaves out agents in a paused sandbox: they lose nothing, and their
// processes cannot react to a nudge.
func (d *Drainer) agentsIn(ctx context.Context, is func(agboxv1.AgentState) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, id := range d.agents.cfg.Store.LiveAgentIDs() {
			a, err := d.agents.cfg.Store.Agent(ctx, id)
			if err != nil || !is(a.Status.GetState()) {
				continue
			}
			sb, err := d.store.Sandbox(ctx, a.SandboxID)
			asleep := err == nil && isAsleep(sb.Desired.GetRunState(), sb.State)
			if !asleep && !yield(id) {
				return
			}
		}
	}
}

// EnqueueDrain enqueues the drain, if there is one: the state of an agent or of a sandbox has changed.
func (d *Drainer) EnqueueDrain() {
	if d.agents.cfg.Store.Drain() != nil {
		d.queue.Add(DrainKey)
	}
}

// drainLook bounds the time between two passes: after a jump of the clock a drain is over by its age, without a change that adds its key.
const drainLook = 10 * time.Second

// ReconcileDrain makes one pass over the drain.
func (d *Drainer) ReconcileDrain(ctx context.Context, _ string) (queue.Result, error) {
	rec := d.agents.cfg.Store.Drain()
	if rec == nil || rec.GetPhase() == agboxv1.DrainPhase_DRAIN_PHASE_DONE { // here and not after the commit, whose reply may be lost
		if d.drained != nil {
			d.drained(rec.GetExit())
		}
		return queue.Result{}, nil
	}
	at := d.agents.cfg.Clock.Read()
	next, left := agentplan.Drain{
		Mode: rec.GetMode(), Phase: rec.GetPhase(), WaitLeft: waitLeft(rec, at), SaveLeft: saveLeft(rec, at),
		Alive: d.anyAlive(ctx),
	}.Next()
	if next == rec.GetPhase() {
		return queue.Result{Next: min(left, drainLook)}, nil
	}
	return queue.Result{}, d.enterPhase(ctx, rec, next)
}

// waitLeft returns the rest of the time that turns may take in a drain.
func waitLeft(rec *storev1.DrainRecord, at clock.Reading) time.Duration {
	return time.Duration(rec.GetWaitUntil()-rec.GetStartedAt()) - at.Now.Sub(at.Began(clock.FromNanos(rec.GetStartedAt())))
}

// saveLeft returns the rest of the time that saving may take in a drain; negative: it is over.
func saveLeft(rec *storev1.DrainRecord, at clock.Reading) time.Duration {
	return cmp.Or(time.Duration(max(rec.GetSaveAll(), 0)), defaultSaveAll) - sinceSaving(rec, at)
}

// sinceSaving returns how long a drain has been in phase SAVING.
func sinceSaving(rec *storev1.DrainRecord, at clock.Reading) time.Duration {
	return at.Now.Sub(at.Began(clock.FromNanos(rec.GetSavingAt())))
}

func (d *Drainer) enterPhase(ctx context.Context, rec *storev1.DrainRecord, next agboxv1.DrainPhase) error {
	changed, err := d.store.SetDrainPhase(ctx, rec, next)
	if errdefs.IsFailedPrecondition(err) {
		return nil // it was ended meanwhile
	}
	if err != nil {
		return fmt.Errorf("record the phase of the drain: %w", err)
	}
	d.queue.Add(DrainKey)
	if changed {
		d.agents.cfg.Logger.Info("drain entered phase", "phase", next.String(), "mode", rec.GetMode().String())
		d.agents.cfg.Metrics.Drained(next.String())
	}
	return nil
}
