package cli

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/wait"
)

// relistEvery is the pause between lists: the longest delay of a row.
const relistEvery = 500 * time.Millisecond

// tableWatch prints a row for each change of a sandbox. It compares lists, so it survives a restart of the daemon.
type tableWatch struct {
	a        *app
	all      bool // also sandboxes that were deleted before
	named    bool // only the named sandboxes, until all are deleted
	selector selector

	style rowStyle
	table *table
	// shown are the rows printed last, by ID. It contains the watched sandboxes that are not deleted, and with all also deleted ones.
	shown map[string]string
}

func (a *app) watchSandboxes(cmd *cobra.Command, refs []string, o getOptions) error {
	w := &tableWatch{a: a, all: o.all && len(refs) == 0, named: len(refs) > 0, selector: *o.labels, style: noisy, shown: map[string]string{}}
	if o.output.format == "wide" {
		w.style = full
	}
	w.table = a.sandboxTable(w.style)
	w.table.widths = map[int]int{0: 12, 1: idWidth, 2: len("DELETING")} // for later rows
	ctx := cmd.Context()
	for _, ref := range refs { // once, because another sandbox may get a name later
		sb, err := a.sandboxKind().resolve(ctx, ref)
		if err != nil {
			return err
		}
		w.shown[sb.GetSandboxId()] = ""
	}
	a.warnEngine(ctx)
	return w.run(ctx)
}

// run compares lists until ctx ends or all named sandboxes are deleted.
func (w *tableWatch) run(ctx context.Context) error {
	for {
		switch err := w.look(ctx); {
		case client.IsUnavailable(err) && ctx.Err() == nil:
			w.a.notes.say("agboxd does not answer; the watch continues when it answers again")
		case err != nil:
			return err
		case len(w.table.rows) > 0:
			w.a.notes.clear()
			w.table.write(w.a.Out)
		}
		if w.named && len(w.shown) == 0 {
			return nil
		}
		if err := wait.For(ctx, relistEvery); err != nil {
			return err
		}
	}
}

// look adds rows for the sandboxes that have changed. It reads watched sandboxes that are not listed one by one; without
// names, the next look reads again one whose read failed.
func (w *tableWatch) look(ctx context.Context) error {
	equal, _ := w.selector.equal()
	found, err := w.a.conn().ListSandboxes(ctx, w.all, equal)
	if err != nil {
		return err
	}
	found = having(&w.selector, found)
	listed := map[string]bool{}
	for _, sb := range found {
		listed[sb.GetSandboxId()] = true
		if _, watched := w.shown[sb.GetSandboxId()]; watched || !w.named {
			w.see(sb)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.shown)) {
		if listed[id] {
			continue
		}
		sb, err := w.a.conn().GetSandbox(ctx, id)
		switch {
		case client.IsNotFound(err):
			delete(w.shown, id) // purged
		case err == nil:
			w.see(sb)
		case w.named || client.IsUnavailable(err):
			return err
		}
	}
	return nil
}

// see adds a row if it differs from the last one.
func (w *tableWatch) see(sb *agboxv1.SandboxHandle) {
	id, row := sb.GetSandboxId(), w.style.row(sb)
	if now := w.style.news(sb, row); now != w.shown[id] {
		w.shown[id] = now
		w.table.add(row...)
	}
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED && !w.all {
		delete(w.shown, id)
	}
}
