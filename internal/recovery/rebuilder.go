package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/backoff"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

const (
	// rebuildTry is the timeout of one attempt to gather and record, and rebuildPause the pause after a failed attempt.
	rebuildTry   = 5 * time.Minute
	rebuildPause = 2 * time.Second
)

// Rebuilder completes the records after the database was lost and its log was also lost or incomplete.
type Rebuilder struct {
	Store *store.Store
	// Gather returns a gatherer with the current settings and engine run.
	Gather func() Gatherer
	// Engine returns the problem of the engine in one sentence, or "".
	Engine func() (problem string)
	// SameEngine returns an error unless the engine is the one of run.
	SameEngine func(ctx context.Context, run *storev1.EngineRun) error
	// Recorded counts rebuilt records, and Skipped objects that could not be read.
	Recorded func(source Source, n int)
	Skipped  func(n int)
	Logger   *slog.Logger
}

// Sentence returns the message for callers while records may be missing; empty if none are.
func (r *Rebuilder) Sentence() string {
	if r.Store.RebuildPending() {
		return "the database was lost and its records are being rebuilt: an object that is not found may still exist; try again later"
	}
	return ""
}

// FromLog records the hidden sandboxes that need no information from the engine.
func (r *Rebuilder) FromLog(ctx context.Context) error {
	if !r.Store.RebuildPending() {
		return nil
	}
	g, known, err := r.hidden(ctx)
	if err == nil {
		known = slices.DeleteFunc(known, Known.NeedsEngine)
		_, err = r.record(ctx, g.GatherKnown(known))
	}
	if err != nil {
		return fmt.Errorf("rebuild the records: %w", err)
	}
	return nil
}

// hidden returns the records that the store hides, and a gatherer that does not treat their IDs as reserved.
func (r *Rebuilder) hidden(ctx context.Context) (g Gatherer, known []Known, err error) {
	list, err := r.Store.Unproven(ctx)
	if err != nil {
		return g, nil, err
	}
	hides := map[string]bool{}
	for _, u := range list {
		hides[u.Record.GetSandboxId()] = true
		known = append(known, Known{Record: u.Record, Execs: u.Execs, Torn: true})
	}
	g = r.Gather()
	g.Reserved = func(id string) bool {
		reserved, err := r.Store.Reserved(ctx, id)
		return err == nil && reserved && !hides[id]
	}
	return g, known, nil
}

// Finish records the sandboxes that only the engine knows, and the hidden ones, once the engine answers and its identity is confirmed, and
// ends the rebuild. It returns earlier only if ctx ends.
func (r *Rebuilder) Finish(ctx context.Context) {
	for r.Store.RebuildPending() && r.awaitEngine(ctx) {
		err := r.fromEngine(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.Logger.Warn("rebuilding the records failed; retrying", "err", err)
		if wait.For(ctx, rebuildPause) != nil {
			return
		}
	}
}

// engineLook is the pause between checks for an unavailable engine.
var engineLook = backoff.Backoff{Base: 2 * time.Millisecond, Max: time.Second}

func (r *Rebuilder) awaitEngine(ctx context.Context) bool {
	for checks := uint32(1); r.Engine() != ""; checks++ {
		if wait.For(ctx, engineLook.After(checks)) != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

func (r *Rebuilder) fromEngine(ctx context.Context) error {
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
	if err := r.SameEngine(ctx, g.Settings.EngineRun); err != nil { // another engine's list does not prove that an object is gone
		return err
	}
	unread, err := r.record(ctx, in)
	r.Skipped(unread)
	if err != nil {
		return err
	}
	return r.Store.RebuildDone(ctx)
}

// record commits the sandboxes of a plan. It logs a record that is not that of a live sandbox and continues: the engine may still have its
// objects. It returns the number of unreadable objects.
func (r *Rebuilder) record(ctx context.Context, in Input) (unread int, err error) {
	out := Plan(in, time.Now())
	if len(out.Former) > 0 {
		if err := r.Store.RememberInstances(ctx, out.Former); err != nil {
			return 0, err
		}
	}
	recorded, err := r.Store.RecordRebuilt(ctx, out.Rebuilt())
	if errdefs.IsInvalidArgument(err) { // all valid records were stored
		r.Logger.Error("invalid rebuilt records were skipped", "err", err)
		err = nil
	}
	r.logRebuilt(ctx, out.Sandboxes, recorded)
	return r.logSkipped(ctx, out.Skipped), err
}

// logRebuilt logs and counts the rebuilt sandboxes.
func (r *Rebuilder) logRebuilt(ctx context.Context, list []Sandbox, recorded []string) {
	for _, s := range list {
		id := s.Record.GetSandboxId()
		if !slices.Contains(recorded, id) {
			continue
		}
		r.Recorded(s.Source, 1)
		defaulted := s.Defaulted
		if sb, err := r.Store.Sandbox(ctx, id); err == nil { // the store knows which names and execs are taken
			defaulted = sb.Desired.GetRehydrated().GetDefaulted()
		}
		r.Logger.Info("record rebuilt", "sandbox_id", id, "source", string(s.Source), "defaulted", defaulted)
	}
}

// logSkipped logs each skipped object, and returns how many could not be read. Containers and networks of other daemons, of which there
// may be many, are logged at debug level and summarized in one line.
func (r *Rebuilder) logSkipped(ctx context.Context, list []Skipped) (unread int) {
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
		r.Logger.Log(ctx, level, "left alone by the rebuild", "kind", s.Kind, "object_id", s.ID, "sandbox_id", s.SandboxID, "reason", s.Reason)
	}
	if others > 0 {
		r.Logger.Info("skipped Docker objects of other instances; agboxd rehydrate --dry-run lists them", "count", others)
	}
	return unread
}
