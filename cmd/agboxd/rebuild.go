package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/backoff"
	"github.com/agbox/agbox/internal/recovery"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

const (
	// rebuildPatience is the longest time that agboxd does not serve because the engine cannot be listed. After it, agboxd serves the
	// records it has and answers UNAVAILABLE for those it cannot know.
	rebuildPatience = 10 * time.Second
	// rebuildTry is the timeout of one attempt to gather and record, and rebuildPause the pause after a failed attempt.
	rebuildTry   = 5 * time.Minute
	rebuildPause = 2 * time.Second
)

// rebuilder completes the records after the database was lost and its log was also lost or incomplete.
type rebuilder struct {
	store    *store.Store
	gather   func() recovery.Gatherer // uses the current settings and engine run
	engine   func() (problem string)
	same     func(ctx context.Context, run *storev1.EngineRun) error // see controller.SameEngine
	recorded func(source recovery.Source, n int)
	skipped  func(n int) // counts objects that could not be read
	log      *slog.Logger
}

// sentence returns the message for callers while records may be missing; empty if none are.
func (r *rebuilder) sentence() string {
	if r.store.RebuildPending() {
		return "the database was lost and its records are being rebuilt: an object that is not found may still exist; try again later"
	}
	return ""
}

// fromLog records the hidden sandboxes that need no information from the engine.
func (r *rebuilder) fromLog(ctx context.Context) error {
	if !r.store.RebuildPending() {
		return nil
	}
	g, known, err := r.hidden(ctx)
	if err == nil {
		known = slices.DeleteFunc(known, recovery.Known.NeedsEngine)
		_, err = r.record(ctx, g.GatherKnown(known))
	}
	if err != nil {
		return fmt.Errorf("rebuild the records: %w", err)
	}
	return nil
}

// hidden returns the records that the store hides, and a gatherer that does not treat their IDs as reserved.
func (r *rebuilder) hidden(ctx context.Context) (g recovery.Gatherer, known []recovery.Known, err error) {
	list, err := r.store.Unproven(ctx)
	if err != nil {
		return g, nil, err
	}
	hides := map[string]bool{}
	for _, u := range list {
		hides[u.Record.GetSandboxId()] = true
		known = append(known, recovery.Known{Record: u.Record, Execs: u.Execs, Torn: true})
	}
	g = r.gather()
	g.Reserved = func(id string) bool {
		reserved, err := r.store.Reserved(ctx, id)
		return err == nil && reserved && !hides[id]
	}
	return g, known, nil
}

// finish records the sandboxes that only the engine knows, and the hidden ones, once the engine answers and its identity is confirmed, and
// ends the rebuild. It returns earlier only if ctx ends.
func (r *rebuilder) finish(ctx context.Context) {
	for r.store.RebuildPending() && r.awaitEngine(ctx) {
		err := r.fromEngine(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.log.Warn("rebuilding the records failed; retrying", "err", err)
		if wait.For(ctx, rebuildPause) != nil {
			return
		}
	}
}

// engineLook is the pause between checks for an unavailable engine.
var engineLook = backoff.Backoff{Base: 2 * time.Millisecond, Max: time.Second}

func (r *rebuilder) awaitEngine(ctx context.Context) bool {
	for checks := uint32(1); r.engine() != ""; checks++ {
		if wait.For(ctx, engineLook.After(checks)) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

func (r *rebuilder) fromEngine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rebuildTry)
	defer cancel()
	g, known, err := r.hidden(ctx)
	if err != nil {
		return err
	}
	in, err := g.Gather(ctx, known)
	if err != nil {
		return err
	}
	if err := r.same(ctx, g.Settings.EngineRun); err != nil { // another engine's list does not prove that an object is gone
		return err
	}
	unread, err := r.record(ctx, in)
	r.skipped(unread)
	if err != nil {
		return err
	}
	return r.store.RebuildDone(ctx)
}

// record commits the sandboxes of a plan. It logs a record that is not that of a live sandbox and continues: the engine may still have its
// objects. It returns the number of unreadable objects.
func (r *rebuilder) record(ctx context.Context, in recovery.Input) (unread int, err error) {
	out := recovery.Plan(in, time.Now())
	if len(out.Former) > 0 {
		if err := r.store.RememberInstances(ctx, out.Former); err != nil {
			return 0, err
		}
	}
	recorded, err := r.store.RecordRebuilt(ctx, out.Rebuilt())
	if errdefs.IsInvalidArgument(err) { // all valid records were stored
		r.log.Error("invalid rebuilt records were skipped", "err", err)
		err = nil
	}
	r.logRebuilt(ctx, out.Sandboxes, recorded)
	return r.logSkipped(ctx, out.Skipped), err
}

// logRebuilt logs and counts the rebuilt sandboxes.
func (r *rebuilder) logRebuilt(ctx context.Context, list []recovery.Sandbox, recorded []string) {
	for _, s := range list {
		id := s.Record.GetSandboxId()
		if !slices.Contains(recorded, id) {
			continue
		}
		r.recorded(s.Source, 1)
		defaulted := s.Defaulted
		if sb, err := r.store.Sandbox(ctx, id); err == nil { // the store knows which names and execs are taken
			defaulted = sb.Desired.GetRehydrated().GetDefaulted()
		}
		r.log.Info("record rebuilt", "sandbox_id", id, "source", string(s.Source), "defaulted", defaulted)
	}
}

// logSkipped logs each skipped object, and returns how many could not be read. Containers and networks of other daemons, of which there
// may be many, are logged at debug level and summarized in one line.
func (r *rebuilder) logSkipped(ctx context.Context, list []recovery.Skipped) (unread int) {
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
		r.log.Info("skipped Docker objects of other instances; agboxd rehydrate --dry-run lists them", "count", others)
	}
	return unread
}
