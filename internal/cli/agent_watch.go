package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// agentWatch prints a row for each change of an agent that the row shows.
type agentWatch struct {
	a       *app
	wide    bool
	sandbox string          // only those of this sandbox; empty: of all
	named   map[string]bool // only these IDs, until all are deleted; nil: all

	selector selector

	table     *table
	sandboxes map[string]string // names by ID
	shown     map[string]*agboxv1.AgentHandle
}

// agentDeletedState is the state in the last row of an agent.
const agentDeletedState = "DELETED"

func (a *app) watchAgents(cmd *cobra.Command, refs []string, o agentGetOptions) error {
	ctx := cmd.Context()
	w := &agentWatch{a: a, wide: o.output.format == "wide", selector: *o.labels, shown: map[string]*agboxv1.AgentHandle{}}
	if o.sandbox != "" {
		sb, err := a.sandboxKind().resolve(ctx, o.sandbox)
		if err != nil {
			return err
		}
		w.sandbox = sb.GetSandboxId()
	}
	for _, ref := range refs { // once, because another agent may get a name later
		one, err := a.agentKind().resolve(ctx, ref)
		if err != nil {
			return err
		}
		if w.named == nil {
			w.named = map[string]bool{}
		}
		w.named[one.GetAgentId()] = true
	}
	if err := w.readNames(ctx); err != nil {
		return err
	}
	w.table = newTable(a.Out, w.wide)
	w.table.paintStates(a.Out, 1)
	w.table.add(agentHeader(w.wide)...)
	w.table.widths = map[int]int{0: 12, 1: len("STARTING"), 2: 12} // for later rows
	a.warnEngine(ctx)
	return w.run(ctx)
}

// run prints the agents once, and then each change, until ctx ends or all named agents are deleted.
func (w *agentWatch) run(ctx context.Context) error {
	synced := false
	equal, _ := w.selector.equal()
	items := w.a.conn().WatchAgents(ctx, client.AgentWatchOptions{Selector: equal, Reconnect: true, OnAway: func() {
		w.a.notes.say("agboxd does not answer; the watch continues when it answers again")
	}})
	for item, err := range items {
		if err != nil {
			return err
		}
		w.a.notes.clear()
		if err := w.see(ctx, item.GetAgent()); err != nil {
			return err
		}
		if synced = synced || item.GetSynced(); synced && len(w.table.rows) > 0 {
			w.table.write(w.a.Out)
		}
		if synced && w.named != nil && len(w.named) == 0 {
			return nil
		}
	}
	return ctx.Err()
}

// see adds a row if it differs from the last one of the agent.
func (w *agentWatch) see(ctx context.Context, change *agboxv1.AgentChange) error {
	id, one := change.GetCursor().GetAgentId(), change.GetAgent()
	if change == nil || w.named != nil && !w.named[id] {
		return nil
	}
	last := w.shown[id]
	if one == nil {
		delete(w.named, id)
		delete(w.shown, id)
		if last != nil {
			row := agentRow(last, w.sandboxes, w.wide, time.Now())
			row[1], row[len(row)-1] = agentDeletedState, ""
			w.table.add(row...)
		}
		return nil
	}
	if w.sandbox != "" && one.GetSandboxId() != w.sandbox || !w.selector.matches(one.GetLabels()) {
		return nil
	}
	if w.sandboxes[one.GetSandboxId()] == "" {
		if err := w.readNames(ctx); err != nil && !client.IsUnavailable(err) {
			return err
		}
	}
	w.shown[id] = one
	if last == nil || !slices.Equal(w.news(last), w.news(one)) {
		w.table.add(agentRow(one, w.sandboxes, w.wide, time.Now())...)
	}
	return nil
}

// news is the row of an agent without its age.
func (w *agentWatch) news(one *agboxv1.AgentHandle) []string {
	return agentRow(one, w.sandboxes, w.wide, one.GetCreatedAt().AsTime())
}

func (w *agentWatch) readNames(ctx context.Context) error {
	all, err := w.a.live(ctx)
	if err == nil {
		w.sandboxes = sandboxNames(all)
	}
	return err
}
