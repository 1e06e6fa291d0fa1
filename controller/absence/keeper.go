package absence

import (
	"context"
	"log/slog"
	"maps"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Store is the part of the store that a Keeper uses.
type Store interface {
	Records
	GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error
	GivenUp(ctx context.Context) (map[string]*storev1.GivenUp, error)
	ForgetGivenUp(ctx context.Context, id string) error
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	Store   Store
	Engine  Engine
	Objects owned.Objects
	// Exec reads the journal of an exec.
	Exec func(sandboxID, execID, nonce string) (execjournal.Status, error)
	// SameEngine checks that the engine is ours and has not restarted since run. CheckSame does the same and changes nothing.
	SameEngine, CheckSame func(ctx context.Context, run *storev1.EngineRun) error
	// Record returns the part of a live sandbox's record that decisions depend on.
	Record func(store.Sandbox) plan.Record

	// Enqueue adds the key of a sandbox.
	Enqueue func(sandboxID string)
	// DoubtEnded is called when the doubt about a sandbox has ended.
	DoubtEnded func(sandboxID string)

	Logger *slog.Logger
}

// Keeper judges absences, and records which sandboxes an operator gave up.
type Keeper struct {
	reader Reader // its memory is the lasting one
	o      Options
	log    *slog.Logger
}

// New returns a Keeper with the recorded confirmations. An unreadable record is logged and counts as empty.
func New(o Options) *Keeper {
	k := &Keeper{o: o, log: o.Logger, reader: Reader{
		store: o.Store, engine: o.Engine, objects: o.Objects, exec: o.Exec, same: o.SameEngine, record: o.Record, log: o.Logger,
		memory: newMemory(),
	}}
	confirmed, err := o.Store.GivenUp(context.Background())
	if err != nil {
		k.log.Error("the record of sandboxes that an operator gave up can't be read; run `agbox engine confirm` again if they are gone", "err", err)
		return k
	}
	maps.Copy(k.reader.memory.confirmed, confirmed)
	return k
}

// Reader returns a Reader with a copy of the Keeper's memory. It logs nothing.
func (k *Keeper) Reader() *Reader {
	r := k.reader
	r.same, r.log, r.memory = k.o.CheckSame, slog.New(slog.DiscardHandler), k.reader.memory.copied()
	return &r
}

// Find calls Reader.Find.
func (k *Keeper) Find(ctx context.Context, rec plan.Record, w *plan.World) error {
	return k.reader.Find(ctx, rec, w)
}

// Judge calls Reader.Judge, and keeps the looks and the confirmations. Errors: those of Reader.Judge, and ErrUnavailable of the store; then
// nothing may be decided about the sandbox.
func (k *Keeper) Judge(ctx context.Context, s Sandbox, w *plan.World) error {
	if !s.InDoubt(*w) {
		if k.reader.memory.seen(s.Record.ID, s.Record.Objects) {
			k.o.DoubtEnded(s.Record.ID)
		}
		w.Doubt = ""
		return k.forgetStale(ctx, s.Record.ID)
	}
	if err := k.forgetStale(ctx, s.Record.ID); err != nil {
		return err
	}
	return k.reader.prove(ctx, s, w)
}

// Forget drops the memory of a deleted sandbox.
func (k *Keeper) Forget(id string, o *storev1.Objects) { k.reader.memory.seen(id, o) }

// Note records the removal that an event of the engine reports.
func (k *Keeper) Note(e dockerx.Event) { k.reader.memory.note(e) }

// StreamEnded drops the removals that the stream of events has reported.
func (k *Keeper) StreamEnded() { k.reader.memory.streamEnded() }

// Doubts reports whether a part of a sandbox was not found and its absence is not proven yet.
func (k *Keeper) Doubts(id string) bool { return k.reader.memory.doubts(id) }

// HasConfirmation reports whether a confirmation of a sandbox may be recorded.
func (k *Keeper) HasConfirmation(id string) bool { return k.reader.memory.hasConfirmation(id) }

// Held returns the number of sandboxes that vanished together and wait for an operator.
func (k *Keeper) Held() int { return len(k.reader.memory.holding()) }

// Vanished returns one sentence about sandboxes that vanished together and wait for an operator; empty: there are none.
func (k *Keeper) Vanished() string {
	if names := k.reader.memory.holding(); len(names) > 0 {
		return vanishedTogether(names)
	}
	return ""
}

// giveUp records that sandboxes held for an operator are given up, and enqueues them. Errors: ErrUnavailable; then none is given up.
func (k *Keeper) giveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error {
	if len(confirmed) == 0 {
		return nil
	}
	lasting := maps.Clone(confirmed)
	maps.DeleteFunc(lasting, func(_ string, g *storev1.GivenUp) bool {
		return g.GetEngineRun().GetEngineStart() == "" // the next life of this engine could not be distinguished from this one
	})
	if err := k.o.Store.GiveUp(ctx, lasting); err != nil {
		return err
	}
	k.reader.memory.confirm(confirmed)
	for id := range confirmed {
		k.log.Warn("an operator gave up a sandbox that vanished", "sandbox_id", id)
		k.o.Enqueue(id)
	}
	return nil
}

// forgetStale removes a stale confirmation from the record; nothing may be judged by it any more. Errors: ErrUnavailable; then nothing may
// be decided about the sandbox.
func (k *Keeper) forgetStale(ctx context.Context, id string) error {
	if !k.reader.memory.isStale(id) {
		return nil
	}
	if err := k.o.Store.ForgetGivenUp(ctx, id); err != nil {
		return err
	}
	k.reader.memory.forgotten(id)
	return nil
}
