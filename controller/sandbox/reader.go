// Package sandbox reconciles sandboxes. Reconciler makes one pass over one sandbox; Reader is its observing half, which only reads. Package
// inspect uses Reader to explain sandboxes.
package sandbox

import (
	"context"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
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

// Store is the part of the store that a Reader reads.
type Store interface {
	InstanceID() string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	Reserved(ctx context.Context, id string) (bool, error)
	Unswept(ctx context.Context, id string) (bool, error)
	Leaving(ctx context.Context, sandboxID string) (int, error)
	FrozenIDs() []string
	ExecKilledForMemory(ctx context.Context, sandboxID string, since time.Time) (bool, error)
}

// Engine is the part of the engine that a Reader reads.
type Engine interface {
	Info(ctx context.Context) (dockerx.Info, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
}

// Files are the files of a sandbox on the host that a Reader reads.
type Files interface {
	Prepared(sandboxID string) (bool, error)
	Terminated(sandboxID string) (bool, error)
	Status(sandboxID, execID, nonce string) (execjournal.Status, error)
	Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error)
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
	// ParkGrace is how long the stop of a sandbox waits for its agents.
	ParkGrace time.Duration
	// Now is the clock that the wait for a hook is measured by.
	Now func() time.Time

	// Tries returns how many times in a row the key of a sandbox was requeued with backoff.
	Tries func(sandboxID string) int
	// Turns returns the number of agents whose turns the end of a sandbox waits for.
	Turns func(ctx context.Context, rec plan.Record) int
	// Stopping returns the IDs of the containers of a sandbox that are being stopped.
	Stopping func(sandboxID string) []string
	// Killed reports whether a container was killed through the engine.
	Killed func(containerID string) bool
	// Hook returns the time since which the hook of a sandbox is waited for; the zero value: no hook is.
	Hook func(sandboxID string) HookWait
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
	w.Stopping = r.o.Stopping(id)
	if w.Inputs, err = r.o.Files.Prepared(id); err != nil {
		return plan.Plan{}, rec, sb, err
	}
	return r.Decide(rec, sb, *w, at), rec, sb, nil
}
