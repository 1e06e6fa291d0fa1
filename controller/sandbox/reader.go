// Package sandbox reconciles sandboxes. Reconciler makes one pass over one sandbox; Reader is its observing half, which only reads. Package
// inspect uses Reader to explain sandboxes.
package sandbox

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/absence"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// ProbeFlag makes PID 1 prove its runtime before its release. Containers created without it are not proven: their PID 1 may be of an
// earlier release.
const ProbeFlag = "--probe"

// ReportFlag makes PID 1 report its starts. Containers created without it, by earlier releases, are READY once they are released.
const ReportFlag = "--report"

// Store is the part of the store that a Reader reads.
type Store interface {
	InstanceID() string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	Reserved(ctx context.Context, id string) (bool, error)
	Unswept(ctx context.Context, id string) (bool, error)
	Leaving(ctx context.Context, sandboxID string) (int, error)
	FrozenIDs() []string
	Namesakes(name, except string) []string
	ExecKilledForMemory(ctx context.Context, sandboxID string, since time.Time) (bool, error)
}

// Engine is the part of the engine that a Reader reads.
type Engine interface {
	Info(ctx context.Context) (dockerx.Info, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	ReadLogs(ctx context.Context, id string, tail int) ([]dockerx.LogRecord, error)
	ReadTar(ctx context.Context, id, name string, read func(io.Reader) error) error
}

// Files are the files of a sandbox on the host that a Reader reads.
type Files interface {
	Prepared(sandboxID string) (bool, error)
	Begun(sandboxID string) (bool, error)
	Terminated(sandboxID string) (time.Time, error)
	Started(sandboxID string) (execjournal.Start, error)
	Status(sandboxID, execID, nonce string) (execjournal.Status, error)
	Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error)
	SecretValues(sandboxID, service string) map[string]string
}

// Link checks whether the engine is ours: *enginelink.Link, or enginelink.Checker, which only reads.
type Link interface {
	CheckMarker(ctx context.Context) error
	CheckSame(ctx context.Context, run *storev1.EngineRun) error
	RunOf(info dockerx.Info) *storev1.EngineRun
}

// Absences judges parts that the engine does not show: *absence.Keeper, or *absence.Reader, which only reads.
type Absences interface {
	Find(ctx context.Context, rec plan.Record, w *plan.World) error
	Judge(ctx context.Context, s absence.Sandbox, w *plan.World) error
}

// readerOptions are the dependencies of a Reader. All are required.
type readerOptions struct {
	Store    Store
	Engine   Engine
	Objects  owned.Objects
	Files    Files
	Link     Link
	Absences Absences

	// Settings returns the settings of the next pass. Started is when the daemon started.
	Settings func() Settings
	Started  time.Time

	// EngineSince returns since when the engine has been usable.
	EngineSince func() time.Time
	// Tries returns how many times in a row the key of a sandbox was requeued with backoff.
	Tries func(sandboxID string) int
	// Turns returns the number of agents whose turns the end of a sandbox waits for.
	Turns func(ctx context.Context, rec plan.Record) int
	// Stopping returns the IDs of the containers of a sandbox that are being stopped.
	Stopping func(sandboxID string) []string
	// Committing reports whether an image of the primary of a sandbox is being made.
	Committing func(sandboxID string) bool
	// Confined reports whether the packet filter rules of a network are those of the sandbox's policy.
	Confined func(sb store.Sandbox, networkID string) bool
	// Killed reports whether a container was killed through the engine.
	Killed func(containerID string) bool
	// Hook returns the time since which the hook of a sandbox is waited for; the zero value: no hook is.
	Hook func(sandboxID string) HookWait
	// Start returns the same for the report of a start; its index is the process ID of the container.
	Start func(sandboxID string) HookWait
}

// Reader observes sandboxes and decides about them. It changes nothing.
type Reader struct{ o readerOptions }

// With returns a copy of the reader that uses another link and other absences.
func (r *Reader) With(l Link, a Absences) *Reader {
	o := r.o
	o.Link, o.Absences = l, a
	return &Reader{o}
}

// Glance decides about a sandbox from the engine's lists alone, as given in w, and completes w.
func (r *Reader) Glance(ctx context.Context, id string, w *plan.World, at clock.Reading) (plan.Plan, plan.Record, store.Sandbox, error) {
	rec, sb, err := r.Record(ctx, id)
	if err != nil {
		return plan.Plan{}, rec, sb, err
	}
	w.Doubt = unproven
	w.Stopping, w.Committing = r.o.Stopping(id), r.o.Committing(id)
	if err := r.observeFiles(id, w); err != nil {
		return plan.Plan{}, rec, sb, err
	}
	r.observeRules(rec, sb, w)
	return r.Decide(rec, sb, *w, at), rec, sb, nil
}

// observeFiles completes w with what the directories of a sandbox show.
func (r *Reader) observeFiles(id string, w *plan.World) (err error) {
	if w.Inputs, err = r.o.Files.Prepared(id); err == nil && w.Inputs {
		w.Begun, err = r.o.Files.Begun(id)
	}
	return err
}

// observeRules completes w with what the packet filter lets through. Of a sandbox that departs nothing is asked.
func (r *Reader) observeRules(rec plan.Record, sb store.Sandbox, w *plan.World) {
	if rec.Departs() {
		return
	}
	for i, n := range w.Networks {
		w.Networks[i].Unconfined = !r.o.Confined(sb, n.ID)
	}
}

// Record loads the record of an ID. It returns the store's errors; a damaged record is not an error.
func (r *Reader) Record(ctx context.Context, id string) (plan.Record, store.Sandbox, error) {
	sb, err := r.o.Store.Sandbox(ctx, id)
	switch {
	case errdefs.IsNotFound(err), err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_DELETED:
		standing, err := r.standingOfGone(ctx, id, err == nil)
		return plan.Record{ID: id, Standing: standing}, sb, err
	case errdefs.IsDataLoss(err):
		return plan.Record{ID: id, Standing: plan.Unreadable}, sb, nil
	case err != nil:
		return plan.Record{}, sb, fmt.Errorf("load record: %w", err)
	}
	rec := r.RecordOf(sb)
	rec.OverFrozen = sb.State == agboxv1.SandboxState_SANDBOX_STATE_PAUSED && slices.Contains(r.TooLongFrozen(), id)
	rec.Tries = r.o.Tries(id)
	rec.Turns = r.o.Turns(ctx, rec)
	if rec.Wanted.Volumes && rec.Creating() {
		if ids := r.o.Store.Namesakes(sb.Name, id); len(ids) > 0 {
			rec.Namesake = ids[0]
		}
	}
	if rec.Agents && rec.Desired == storev1.RunState_RUN_STATE_DELETE {
		if rec.Leaving, err = r.o.Store.Leaving(ctx, id); err != nil {
			return plan.Record{}, sb, fmt.Errorf("read its agents: %w", err)
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
		Agents: len(sb.Agents) > 0, KeepStopped: sb.Spec.GetKeepStopped(),
		// A record that was rebuilt may not know that its root was read-only.
		RemoveVolumes: sb.Desired.GetRemoveVolumes() && sb.Name != "" || len(validate.WritableRoots(sb.Spec)) > 0 || sb.Desired.GetRehydrated() != nil,
	}
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

// standingOfGone distinguishes a sandbox whose objects are orphans from one whose objects are kept. onRecord: its history is not purged.
func (r *Reader) standingOfGone(ctx context.Context, id string, onRecord bool) (plan.Standing, error) {
	if !onRecord {
		if reserved, err := r.o.Store.Reserved(ctx, id); err != nil {
			return plan.NeverReserved, fmt.Errorf("look up reservation: %w", err)
		} else if !reserved {
			return plan.NeverReserved, nil
		}
	}
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
	s.IdleTTL = IdleTTL(sb, s)
	return plan.Policy{Settings: s, Started: r.o.Started, AwakeSince: l.Awake, EngineSince: r.o.EngineSince(), Hold: l.Hold}
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
