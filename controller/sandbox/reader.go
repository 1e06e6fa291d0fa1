// Package sandbox is the room of sandboxes: Reconciler makes one pass over one sandbox, and Reader is its observing half. Nothing
// that the reader does changes anything: its ports only read. Package inspect explains sandboxes by it.
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

// ProbeFlag makes PID 1 prove its runtime before its release. A container that was made without it is not asked: its PID 1 may be of an
// earlier release.
const ProbeFlag = "--probe"

// Store is what a reader reads of the store.
type Store interface {
	InstanceID() string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	Reserved(ctx context.Context, id string) (bool, error)
	Unswept(ctx context.Context, id string) (bool, error)
	Leaving(ctx context.Context, sandboxID string) (int, error)
	FrozenIDs() []string
	ExecKilledForMemory(ctx context.Context, sandboxID string, since time.Time) (bool, error)
}

// Engine is what a reader asks the engine.
type Engine interface {
	Info(ctx context.Context) (dockerx.Info, error)
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
}

// Files are what a reader reads of a sandbox's files on the host.
type Files interface {
	Prepared(sandboxID string) (bool, error)
	Terminated(sandboxID string) (bool, error)
	Look(sandboxID, execID, nonce string) (execjournal.Status, error)
	Tail(sandboxID, execID string, stderr bool, limit int) ([]byte, error)
}

// Link knows whether the engine is ours: *enginelink.Link, or enginelink.Checker, which only reads.
type Link interface {
	CheckMarker(ctx context.Context) error
	CheckSame(ctx context.Context, run *storev1.EngineRun) error
	RunOf(info dockerx.Info) *storev1.EngineRun
}

// Absences judge what the engine does not show: *absence.Keeper, or *absence.Reader, which only reads.
type Absences interface {
	Find(ctx context.Context, rec plan.Record, w *plan.World) error
	Judge(ctx context.Context, s absence.Sandbox, w *plan.World) error
}

// readerOptions are what a reader works with. All are required.
type readerOptions struct {
	Store    Store
	Engine   Engine
	Objects  owned.Objects
	Files    Files
	Link     Link
	Absences Absences

	// Settings are those of the next pass, and Started is when the daemon was.
	Settings func() Settings
	Started  time.Time
	// ParkGrace is what the stop of a sandbox waits for its agents.
	ParkGrace time.Duration
	// Now is the clock of the wait for a hook.
	Now func() time.Time

	// Tries is how often the key of a sandbox was added with back-off.
	Tries func(sandboxID string) int
	// Turns is the number of agents whose turns the end of a sandbox waits for.
	Turns func(ctx context.Context, rec plan.Record) int
	// Stopping are the containers of a sandbox that are being stopped.
	Stopping func(sandboxID string) []string
	// Killed reports whether a container was killed through the engine.
	Killed func(containerID string) bool
	// Hook is since when the hook of a sandbox is waited for; the zero value: for none.
	Hook func(sandboxID string) HookWait
}

// Reader reads sandboxes and decides about them.
type Reader struct{ o readerOptions }

// With returns a reader that asks another link and other absences.
func (r *Reader) With(l Link, a Absences) *Reader {
	o := r.o
	o.Link, o.Absences = l, a
	return &Reader{o}
}

// Glance decides about a sandbox from what the lists of the engine show of it in w, which it completes.
func (r *Reader) Glance(ctx context.Context, id string, w *plan.World, at clock.Look) (plan.Plan, plan.Record, store.Sandbox, error) {
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
