package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/recordfile"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/store"
)

// Bounds of a rebuild.
const (
	// rebuildPatience is for how long the daemon does not serve while it waits for an engine to list; later it serves what it
	// has, and refuses what it can't know.
	rebuildPatience = 10 * time.Second
	// rebuildTry bounds one look at everything, and rebuildPause is between two that fail.
	rebuildTry   = 5 * time.Minute
	rebuildPause = 2 * time.Second
	// engineLook is how often an engine that is away is looked for, doubling to engineLookMax.
	engineLook    = 2 * time.Millisecond
	engineLookMax = time.Second
)

// rebuilder brings back the records of a database that was lost.
type rebuilder struct {
	store   *store.Store
	gather  func() recovery.Gatherer // with the settings and the engine's life as they are then
	runRoot string
	// agentsRoot is where the record files of agents are.
	agentsRoot string
	engine     func() (problem string)
	same       func(ctx context.Context, run *storev1.EngineRun) error // see controller.SameEngine
	adopted    func(source recovery.Source, n int)
	skipped    func(n int) // that could not be read
	log        *slog.Logger
	unread     int // of what belongs to record files
	// torn are the record files of which the engine decides.
	torn []recovery.Known
}

// sentence is what callers are told while records may be missing; empty when none is.
func (r *rebuilder) sentence() string {
	if r.store.RebuildPending() {
		return "the database was lost and its records are being rebuilt: what is not found may still be there; try again later"
	}
	return ""
}

// fromFiles adopts the record files that are not torn. It needs no engine.
func (r *rebuilder) fromFiles(ctx context.Context) error {
	if !r.store.RebuildPending() {
		return nil
	}
	known, err := knownFiles(r.runRoot, r.log)
	if err == nil {
		r.torn = slices.DeleteFunc(slices.Clone(known), func(k recovery.Known) bool { return !k.NeedsEngine() })
		known = slices.DeleteFunc(known, recovery.Known.NeedsEngine)
		r.unread, err = r.adopt(ctx, r.gather().GatherKnown(known))
		r.skipped(r.unread)
	}
	if err == nil {
		err = r.agentsFromFiles(ctx) // after their sandboxes
	}
	if err != nil {
		return fmt.Errorf("rebuild the records: %w", err)
	}
	return nil
}

// finish adopts the sandboxes that only the engine shows, and those with torn records, once the engine answers and is ours, and ends the
// rebuild. It returns earlier only when ctx ends.
func (r *rebuilder) finish(ctx context.Context) {
	for r.store.RebuildPending() && r.awaitEngine(ctx) {
		err := r.fromEngine(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.log.Warn("the records are not rebuilt yet; it is tried again", "err", err)
		if !sleep(ctx, rebuildPause) {
			return
		}
	}
}

func (r *rebuilder) awaitEngine(ctx context.Context) bool {
	for pause := engineLook; r.engine() != ""; pause = min(2*pause, engineLookMax) {
		if !sleep(ctx, pause) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (r *rebuilder) fromEngine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rebuildTry)
	defer cancel()
	g := r.gather()
	in, err := g.Gather(ctx, r.torn) // what the others held is in the store by now
	if err != nil {
		return err
	}
	if err := r.same(ctx, g.Settings.EngineRun); err != nil { // or nothing that it did not list is known to be gone
		return err
	}
	unread, err := r.adopt(ctx, in)
	r.skipped(r.unread + unread)
	if err != nil {
		return err
	}
	return r.store.RebuildDone(ctx)
}

// knownFiles reads the record files. What can't be read of them is told, and left as it is.
func knownFiles(runRoot string, log *slog.Logger) ([]recovery.Known, error) {
	found, problems, err := recordfile.ReadAll(runRoot)
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		log.Warn("a record file can't be read", "path", p.Path, "err", p.Err)
	}
	known := make([]recovery.Known, 0, len(found))
	for _, f := range found {
		known = append(known, recovery.Known{Record: f.Record, Execs: f.Execs, Torn: f.Torn, TornExecs: f.TornExecs})
	}
	return known, nil
}

// adopt records what is to be adopted. A record that is none of a live sandbox is told and stops nothing: whatever the engine
// has of it may still be found.
func (r *rebuilder) adopt(ctx context.Context, in recovery.Input) (unread int, err error) {
	out := recovery.Plan(in, time.Now())
	if len(out.Former) > 0 {
		if err := r.store.RememberInstances(ctx, out.Former); err != nil {
			return 0, err
		}
	}
	adopted, err := r.store.Adopt(ctx, out.Rebuilt())
	if errdefs.IsInvalidArgument(err) { // all others were adopted
		r.log.Error("records can't be taken; they are left as they are", "err", err)
		err = nil
	}
	r.tell(ctx, out.Sandboxes, adopted)
	return r.tellSkipped(ctx, out.Skipped), err
}

// tell logs and counts the outcome of a plan.
func (r *rebuilder) tell(ctx context.Context, list []recovery.Sandbox, adopted []string) {
	for _, s := range list {
		id := s.Record.GetSandboxId()
		if !slices.Contains(adopted, id) {
			continue
		}
		r.adopted(s.Source, 1)
		defaulted := s.Defaulted
		if sb, err := r.store.Sandbox(ctx, id); err == nil { // the store knows which names and execs others have
			defaulted = sb.Desired.GetRehydrated().GetDefaulted()
		}
		r.log.Info("record rebuilt", "sandbox_id", id, "source", string(s.Source), "defaulted", defaulted)
	}
}

// tellSkipped tells of each thing that may be ours, and counts what could not be read. The rest is other daemons', and may be a
// lot.
func (r *rebuilder) tellSkipped(ctx context.Context, list []recovery.Skipped) (unread int) {
	others := 0
	for _, s := range list {
		level := slog.LevelWarn
		switch {
		case s.Unreadable:
			unread++
		case s.Kind == "container" || s.Kind == "network":
			level = slog.LevelDebug
			others++
		}
		r.log.Log(ctx, level, "left alone by the rebuild", "kind", s.Kind, "object_id", s.ID, "sandbox_id", s.SandboxID, "reason", s.Reason)
	}
	if others > 0 {
		r.log.Info("objects that are not ours are left alone; agboxd rehydrate --dry-run lists them", "count", others)
	}
	return unread
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
