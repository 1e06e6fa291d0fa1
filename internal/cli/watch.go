package cli

import (
	"context"
	"sync"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

// relistEvery is the pause between lists, which find new sandboxes and changes without an event, such as a status message.
const relistEvery = time.Second

// tableWatch prints a row for each change of a sandbox. Each sandbox has a subscription whose events only cause another read, so it
// need not be complete: lists find missed changes, also after a restart of the daemon.
type tableWatch struct {
	a        *app
	all      bool
	selector map[string]string
	ids      map[string]bool // the named sandboxes that are not deleted; nil: all that the selector matches

	style rowStyle
	table *table
	last  map[string]string // the row printed last, by ID
	subs  map[string]context.CancelFunc
	news  chan news
	tasks sync.WaitGroup
}

// news means that a sandbox may have changed, or that its subscription has ended.
type news struct {
	id   string
	over bool
}

func (a *app) watchSandboxes(cmd *cobra.Command, refs []string, o getOptions) error {
	selector, err := parseSelector(cmd, o.labels)
	if err != nil {
		return err
	}
	w := &tableWatch{
		a: a, all: o.all, selector: selector, style: noisy,
		last: map[string]string{}, subs: map[string]context.CancelFunc{}, news: make(chan news),
	}
	if *o.output == "wide" {
		w.style = full
	}
	w.table = a.sandboxTable(w.style)
	w.table.widths = map[int]int{0: 12, 1: idWidth, 2: len("DELETING")} // for later rows
	ctx, cancel := context.WithCancel(cmd.Context())
	defer w.tasks.Wait()
	defer cancel()
	if err := w.name(ctx, refs); err != nil {
		return err
	}
	a.warnEngine(ctx)
	return w.run(ctx)
}

// name resolves the names once, because another sandbox may get a name later.
func (w *tableWatch) name(ctx context.Context, refs []string) error {
	for _, ref := range refs {
		sb, err := w.a.resolve(ctx, ref)
		if err != nil {
			return err
		}
		if w.ids == nil {
			w.ids = map[string]bool{}
		}
		w.ids[sb.GetSandboxId()] = true
	}
	return nil
}

// run lists and follows until ctx ends or all named sandboxes are deleted.
func (w *tableWatch) run(ctx context.Context) error {
	tick := time.NewTicker(relistEvery)
	defer tick.Stop()
	for {
		err := w.list(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case client.IsUnavailable(err):
			w.a.notes.say("agboxd does not answer; the watch continues when it answers again")
		case err != nil:
			return err
		default:
			w.flush()
		}
		if done, err := w.follow(ctx, tick.C); done {
			return err
		}
	}
}

// follow prints changes of subscribed sandboxes until the next list is due.
func (w *tableWatch) follow(ctx context.Context, due <-chan time.Time) (done bool, err error) {
	for {
		if w.ids != nil && len(w.ids) == 0 {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case <-due:
			return false, nil
		case n := <-w.news:
			if n.over { // the next list starts another if the sandbox still exists
				w.unsubscribe(n.id)
				continue
			}
			if w.refresh(ctx, n.id) != nil {
				return false, nil // the next list returns the error
			}
			w.flush()
		}
	}
}

// list reads all sandboxes.
func (w *tableWatch) list(ctx context.Context) error {
	found, err := w.a.conn().ListSandboxes(ctx, w.all && w.ids == nil, w.selector)
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, sb := range found {
		listed[sb.GetSandboxId()] = true
		if w.ids == nil || w.ids[sb.GetSandboxId()] {
			w.see(ctx, sb)
		}
	}
	for id := range w.ids {
		if !listed[id] {
			if err := w.refresh(ctx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// refresh reads one sandbox again, and ignores a purged one.
func (w *tableWatch) refresh(ctx context.Context, id string) error {
	sb, err := w.a.conn().GetSandbox(ctx, id)
	if client.IsNotFound(err) {
		w.unsubscribe(id)
		delete(w.ids, id)
		return nil
	}
	if err != nil {
		return err
	}
	w.see(ctx, sb)
	return nil
}

// see adds a row if it differs from the last one, and starts or ends the subscription.
func (w *tableWatch) see(ctx context.Context, sb *agboxv1.SandboxHandle) {
	id, row := sb.GetSandboxId(), w.style.row(sb)
	if now := w.style.news(sb, row); now != w.last[id] {
		w.last[id] = now
		w.table.add(row...)
	}
	if sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_DELETED {
		w.unsubscribe(id)
		delete(w.ids, id)
	} else if w.subs[id] == nil {
		w.subscribe(ctx, sb)
	}
}

func (w *tableWatch) flush() {
	if len(w.table.rows) > 0 {
		w.a.notes.clear()
		w.table.write(w.a.Out)
	}
}

func (w *tableWatch) subscribe(ctx context.Context, sb *agboxv1.SandboxHandle) {
	ctx, cancel := context.WithCancel(ctx)
	id, from := sb.GetSandboxId(), sb.GetLastEventSequence()
	w.subs[id] = cancel
	tell := func(n news) (told bool) {
		select {
		case w.news <- n:
			return true
		case <-ctx.Done():
			return false
		}
	}
	w.tasks.Go(func() {
		for _, err := range w.a.conn().Events(ctx, id, client.EventOptions{From: from, Reconnect: true}) {
			if err != nil || !tell(news{id: id}) {
				break
			}
		}
		tell(news{id: id, over: true})
	})
}

func (w *tableWatch) unsubscribe(id string) {
	if cancel := w.subs[id]; cancel != nil {
		cancel()
		delete(w.subs, id)
	}
}
