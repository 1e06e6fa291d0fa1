// Package disklimit watches the disk limits of sandboxes on engines that cannot hold them: it measures what a container has written, and
// has a sandbox over its limit stopped. What it knows is derived, and lost with the process: the next daemon measures again.
package disklimit

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	units "github.com/docker/go-units"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Store is the part of the store about the sandboxes that run.
type Store interface {
	LiveIDs() []string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	RequestDiskStop(ctx context.Context, id string, since time.Time, sentence string) (bool, error)
}

// Link is *enginelink.Link.
type Link interface {
	Life() (run *storev1.EngineRun, problem string)
	Info() dockerx.Info
	CheckSame(ctx context.Context, run *storev1.EngineRun) error
}

// Options are the dependencies of a Watcher. All are required.
type Options struct {
	Store Store
	Link  Link
	// Measure is dockerx.Engine.MeasureContainer.
	Measure func(ctx context.Context, containerID string) (int64, error)
	Logger  *slog.Logger
}

const (
	// Every is the time between two measurements of a sandbox, and from its start to the first one: within it, a user can remove files after
	// a resume. A disk that writes 500 MiB/s lets a sandbox exceed its limit by 5 GiB meanwhile.
	Every = 10 * time.Second
	// again is the time until a measurement over the limit is confirmed by a second one, so that a file that is removed at once, or one wrong
	// answer, stops no sandbox. It is also the time between two rounds.
	again = 2 * time.Second
	// share is the least time between two measurements, in times of the duration of the last: measuring takes 5% of the time at most. The
	// time between two measurements of different sandboxes is at most Every, or one with many files would keep the others from being measured.
	share = 20
)

// Watcher measures the sandboxes that have a disk limit which the engine does not hold.
type Watcher struct {
	o Options

	mu sync.Mutex
	of map[string]memory
}

// New returns a Watcher.
func New(o Options) *Watcher { return &Watcher{o: o, of: map[string]memory{}} }

// subject is what a measurement is about. One of another subject does not count: the sandbox was resumed since.
type subject struct {
	container string
	since     time.Time // the sandbox's StateChangedAt
	limit     int64
}

// memory is what is known of one sandbox.
type memory struct {
	of    subject
	due   time.Time     // when it is measured next, by the monotonic clock
	took  time.Duration // the last measurement
	bytes int64         // measured last; valid if known
	known bool
	err   error // of the last measurement
	none  bool  // it has no limit, and no update gives it one
}

func (m memory) over() bool { return m.err == nil && m.known && m.bytes > m.of.limit }

// measurement is one answer of the engine.
type measurement struct {
	bytes int64
	err   error
	at    time.Time
	took  time.Duration
}

// begins returns what is known of a sandbox when of is its subject. The duration of its measurements outlasts a resume: removing many files
// takes long, as measuring them does.
func (m memory) begins(of subject, now time.Time) memory {
	if m.of == of {
		return m
	}
	return memory{of: of, took: m.took, due: now.Add(max(Every, share*m.took))}
}

// after returns what is known after a measurement, and whether it confirms that the sandbox is over its limit.
func (m memory) after(one measurement) (now memory, confirmed bool) {
	now = memory{of: m.of, took: one.took, err: one.err, bytes: m.bytes, known: m.known}
	if one.err == nil {
		now.bytes, now.known = one.bytes, true
	}
	if now.over() {
		now.due = one.at.Add(max(again, one.took)) // once in a row: what it writes until then may fill the disk
		return now, m.over()
	}
	now.due = one.at.Add(max(Every, share*one.took))
	return now, false
}

// subjectOf returns what is to be measured of a sandbox. Only a READY one grows: nothing runs in the others.
func subjectOf(sb store.Sandbox) (subject, bool) {
	limit, err := validate.MemoryBytes(sb.Spec.GetDiskLimit())
	s := subject{sb.Desired.GetObjects().GetPrimaryId(), sb.StateChangedAt, limit}
	runs := sb.State == agboxv1.SandboxState_SANDBOX_STATE_READY && sb.Desired.GetRunState() == storev1.RunState_RUN_STATE_RUN
	return s, err == nil && limit > 0 && s.container != "" && runs
}

// Run measures until ctx ends, one sandbox at a time.
func (w *Watcher) Run(ctx context.Context) {
	for wait.For(ctx, again) == nil {
		live := map[string]bool{}
		for _, id := range w.o.Store.LiveIDs() {
			live[id] = true
			if took := w.look(ctx, id); took > 0 && wait.For(ctx, min(share*took, Every)) != nil {
				return
			}
		}
		w.keep(live)
	}
}

// look measures a sandbox if that is due, and returns how long that took.
func (w *Watcher) look(ctx context.Context, id string) time.Duration {
	run, problem := w.o.Link.Life()
	if problem != "" || w.Holds() || w.lacksLimit(id) {
		return 0
	}
	sb, err := w.o.Store.Sandbox(ctx, id)
	if err != nil {
		return 0 // deleted meanwhile, or damaged
	}
	if sb.Spec.GetDiskLimit() == "" {
		w.forgo(id)
		return 0
	}
	of, ok := subjectOf(sb)
	if !ok || !w.isDue(id, of) {
		return 0
	}
	begun := time.Now()
	n, err := w.o.Measure(ctx, of.container)
	if ctx.Err() != nil {
		return 0
	}
	one := measurement{bytes: n, err: err, at: time.Now(), took: max(time.Since(begun), 1)}
	if w.note(id, one) {
		w.stop(ctx, id, of, run, n)
	}
	return one.took
}

// lacksLimit reports whether forgo was called: a read of each sandbox in each round copies each spec.
func (w *Watcher) lacksLimit(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[id].none
}

func (w *Watcher) forgo(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[id] = memory{none: true}
}

func (w *Watcher) isDue(id string, of subject) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.of[id] = w.of[id].begins(of, now)
	return !now.Before(w.of[id].due)
}

func (w *Watcher) note(id string, one measurement) (confirmed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.of[id]
	w.of[id], confirmed = was.after(one)
	if one.err != nil && was.err == nil && !errdefs.IsNotFound(one.err) { // a pass judges containers that are gone
		w.o.Logger.Warn("measuring what a sandbox has written failed; it is not stopped for its disk_limit", "sandbox_id", id, "err", one.err)
	}
	return confirmed
}

// stop has a sandbox stopped, if the engine that answered is ours. If that fails, the next measurement tries again.
func (w *Watcher) stop(ctx context.Context, id string, of subject, run *storev1.EngineRun, bytes int64) {
	err := w.o.Link.CheckSame(ctx, run)
	stopped := false
	if err == nil {
		stopped, err = w.o.Store.RequestDiskStop(ctx, id, of.since,
			fmt.Sprintf("it has written %s, and its disk_limit is %s", size(bytes), size(of.limit)))
	}
	switch {
	case err != nil && ctx.Err() == nil:
		w.o.Logger.Warn("stopping a sandbox over its disk_limit failed; trying again", "sandbox_id", id, "err", err)
	case stopped:
		w.o.Logger.Info("a sandbox over its disk_limit is stopped", "sandbox_id", id, "bytes", bytes, "limit_bytes", of.limit)
	}
}

// keep forgets all sandboxes but those that live.
func (w *Watcher) keep(live map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.of, func(id string, _ memory) bool { return !live[id] })
}

// Holds reports whether the last observed engine holds disk limits by itself, or none was observed yet.
func (w *Watcher) Holds() bool {
	info := w.o.Link.Info()
	return info.Version == "" || info.DiskLimit
}

// Warnings says how the disk limit of a sandbox is kept, what was measured last, and what follows from a stop for it. There are none for
// a limit that the engine holds.
func (w *Watcher) Warnings(sb store.Sandbox) []string {
	if sb.Spec.GetDiskLimit() == "" || w.Holds() {
		return nil
	}
	w.mu.Lock()
	m := w.of[sb.ID]
	w.mu.Unlock()
	text := fmt.Sprintf("disk_limit is watched, because the engine's storage (%s) does not hold it: agboxd measures about every %s what the sandbox "+
		"has written, and stops it when that is too much", w.o.Link.Info().StorageDriver, max(Every, share*m.took).Round(time.Second))
	of, runs := subjectOf(sb)
	switch {
	case runs && m.of == of && m.err != nil:
		text += "; the last measurement failed: " + m.err.Error()
	case runs && m.of == of && m.known:
		text += fmt.Sprintf("; it has written %s", size(m.bytes))
	}
	if sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_STOP || sb.Desired.GetReason() != store.ReasonDiskLimit {
		return []string{text}
	}
	return []string{text, fmt.Sprintf("it was stopped because it had written more than its disk_limit; its files are kept: resume it and remove some within %s, "+
		"or delete it and create it with a higher disk_limit", max(Every, share*m.took).Round(time.Second))}
}

func size(n int64) string { return units.BytesSize(float64(n)) }
