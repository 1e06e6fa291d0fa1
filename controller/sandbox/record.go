package sandbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/store"
)

// Record loads the record of an ID. It returns the store's errors; a damaged record is not an error.
func (r *Reader) Record(ctx context.Context, id string) (plan.Record, store.Sandbox, error) {
	sb, err := r.o.Store.Sandbox(ctx, id)
	switch {
	case errdefs.IsNotFound(err):
		return r.recordOfUnknown(ctx, id)
	case errdefs.IsDataLoss(err):
		return plan.Record{ID: id, Standing: plan.Unreadable}, sb, nil
	case err != nil:
		return plan.Record{}, sb, fmt.Errorf("load record: %w", err)
	case sb.State == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		standing, err := r.standingOfGone(ctx, id)
		return plan.Record{ID: id, Standing: standing}, sb, err
	}
	rec := r.RecordOf(sb)
	rec.OverFrozen, rec.Tries = r.overFrozen(sb), r.o.Tries(id)
	rec.Turns = r.o.Turns(ctx, rec)
	if rec.Agents && rec.Desired == storev1.RunState_RUN_STATE_DELETE {
		if rec.Leaving, err = r.o.Store.Leaving(ctx, id); err != nil {
			return plan.Record{}, sb, fmt.Errorf("look at its agents: %w", err)
		}
	}
	return rec, sb, nil
}

// RecordOf converts the stored record of a live sandbox.
func (r *Reader) RecordOf(sb store.Sandbox) plan.Record {
	return plan.Record{
		ID: sb.ID, Standing: plan.Live,
		Desired: sb.Desired.GetRunState(), Attempt: sb.Desired.GetAttempt(), Reason: sb.Desired.GetReason(),
		RequestedAt: time.Unix(0, sb.Desired.GetRequestedAt()),
		State:       sb.State, StateChangedAt: sb.StateChangedAt, ErrorCode: sb.ErrorCode, Preparing: sb.Preparing,
		Objects: sb.Desired.GetObjects(), Recover: sb.Desired.GetRecover(),
		EngineRun: sb.Desired.GetEngineRun(), Progress: sb.Progress, LimitsPending: sb.Desired.GetLimitsPending(),
		ActiveExecs: len(sb.ActiveExecs), IdleSince: sb.IdleSince, Wanted: WantedOf(sb.Spec, sb.Desired.GetConfinement(), r.o.Settings()),
		DeadlineAt: clock.FromNanos(sb.Desired.GetDeadlineAt()), DemotedAt: clock.FromNanos(sb.Desired.GetDemotedAt()),
		Agents: len(sb.Agents) > 0,
	}
}

// overFrozen reports whether TooLongFrozen includes sb.
func (r *Reader) overFrozen(sb store.Sandbox) bool {
	return sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && slices.Contains(r.TooLongFrozen(), sb.ID)
}

// TooLongFrozen returns the sandboxes frozen for longest, as many as exceed pause.max_frozen.
func (r *Reader) TooLongFrozen() []string {
	most := r.o.Settings().MaxFrozen
	frozen := r.o.Store.FrozenIDs()
	if most <= 0 || len(frozen) <= most {
		return nil
	}
	return frozen[:len(frozen)-most]
}

func (r *Reader) recordOfUnknown(ctx context.Context, id string) (plan.Record, store.Sandbox, error) {
	reserved, err := r.o.Store.Reserved(ctx, id)
	if err != nil {
		return plan.Record{}, store.Sandbox{}, fmt.Errorf("look up reservation: %w", err)
	}
	if !reserved {
		return plan.Record{ID: id, Standing: plan.NeverReserved}, store.Sandbox{}, nil
	}
	standing, err := r.standingOfGone(ctx, id)
	return plan.Record{ID: id, Standing: standing}, store.Sandbox{}, err
}

// standingOfGone distinguishes a sandbox whose objects are orphans from one whose objects are kept.
func (r *Reader) standingOfGone(ctx context.Context, id string) (plan.Standing, error) {
	unswept, err := r.o.Store.Unswept(ctx, id)
	if err != nil {
		return plan.Gone, fmt.Errorf("look up how it was deleted: %w", err)
	}
	if unswept {
		return plan.Unswept, nil
	}
	return plan.Gone, nil
}

// Decide calls plan.Decide with the times that the present clock would have recorded; see clock.Reading.Dated.
func (r *Reader) Decide(rec plan.Record, sb store.Sandbox, w plan.World, l clock.Reading) plan.Plan {
	return plan.Decide(l.Dated(rec, sb), w, r.Policy(sb, l), l.Now)
}

// Policy returns what the configuration and the spec prescribe for a sandbox.
func (r *Reader) Policy(sb store.Sandbox, l clock.Reading) plan.Policy {
	s := r.o.Settings()
	return plan.Policy{
		IdleTTL: IdleTTL(sb, s), CleanupTTL: s.CleanupTTL, HookTimeout: s.HookTimeout, CancelGrace: s.CancelGrace,
		Started: r.o.Started, FailInterruptedCreate: s.FailInterruptedCreate, FailOnEngineDeath: s.FailOnEngineDeath,
		ParkGrace: r.o.ParkGrace, KeepOrphans: s.KeepOrphans, FreezeDuration: s.FreezeDuration, StoppedGCAfter: s.StoppedGCAfter,
		AwakeSince: l.Awake, Hold: l.Hold,
	}
}

// Timeout returns how long a sandbox may run after it became READY; 0: forever.
func Timeout(sb store.Sandbox, s Settings) time.Duration {
	if t := sb.Spec.GetTimeout(); t != nil {
		return t.AsDuration()
	}
	return s.Timeout
}

// IdleTTL returns how long a sandbox may be idle before it is stopped; 0: forever.
func IdleTTL(sb store.Sandbox, s Settings) time.Duration {
	if ttl := sb.Spec.GetIdleTtl(); ttl != nil {
		return ttl.AsDuration()
	}
	return s.IdleTTL
}
