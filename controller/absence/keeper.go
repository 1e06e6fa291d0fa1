package absence

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Confirmations are the record of what an operator confirmed.
type Confirmations interface {
	GiveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error
	GivenUp(ctx context.Context) (map[string]*storev1.GivenUp, error)
	ForgetGivenUp(ctx context.Context, id string) error
}

// Options are the dependencies of a Keeper. All are required.
type Options struct {
	// Ports are those of the Keeper: their CheckSame may also record what it finds.
	Ports
	Confirmations Confirmations
	// ReadSame is CheckSame for a Reader: it changes nothing.
	ReadSame func(ctx context.Context, run *storev1.EngineRun) error

	// Enqueue adds the key of a sandbox.
	Enqueue func(sandboxID string)
	// DoubtEnded is called when the doubt about a sandbox has ended.
	DoubtEnded func(sandboxID string)
}

// Keeper judges absences, and records which sandboxes an operator gave up.
type Keeper struct {
	Reader // its memory is the lasting one
	o      Options
}

// New returns a Keeper with the recorded confirmations. An unreadable record is logged and counts as empty.
func New(o Options) *Keeper {
	k := &Keeper{o: o, Reader: Reader{newMemory(), o.Ports}}
	confirmed, err := o.Confirmations.GivenUp(context.Background())
	if err != nil {
		k.o.Logger.Error("the record of sandboxes that an operator gave up can't be read; run `agbox engine confirm` again if they are gone", "err", err)
		return k
	}
	for id, g := range confirmed {
		k.of[id] = record{confirmed: g}
	}
	return k
}

// ReadOnly returns a Reader with a copy of the Keeper's memory. It logs nothing.
func (k *Keeper) ReadOnly() *Reader {
	r := &Reader{k.copied(), k.o.Ports}
	r.p.CheckSame, r.p.Logger = k.o.ReadSame, slog.New(slog.DiscardHandler)
	return r
}

// Judge calls Reader.Judge, and keeps the observations and the confirmations. Errors: those of Reader.Judge, and ErrUnavailable of the store; then
// nothing may be decided about the sandbox.
func (k *Keeper) Judge(ctx context.Context, s Sandbox, w *plan.World) error {
	if !s.InDoubt(*w) {
		if k.seen(s.Record.ID, s.Record.Objects) {
			k.o.DoubtEnded(s.Record.ID)
		}
		w.Doubt = ""
		return k.forgetStale(ctx, s.Record.ID)
	}
	if err := k.forgetStale(ctx, s.Record.ID); err != nil {
		return err
	}
	return k.prove(ctx, s, w)
}

// Forget drops the memory of a deleted sandbox.
func (k *Keeper) Forget(id string, o *storev1.Objects) { k.seen(id, o) }

// Held returns the number of sandboxes that vanished together and wait for an operator.
func (k *Keeper) Held() int { return len(k.holding()) }

// Vanished returns one sentence about sandboxes that vanished together and wait for an operator; empty: there are none.
func (k *Keeper) Vanished() string {
	if names := k.holding(); len(names) > 0 {
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
	if err := k.o.Confirmations.GiveUp(ctx, lasting); err != nil {
		return err
	}
	k.confirm(confirmed)
	for id := range confirmed {
		k.o.Logger.Warn("an operator gave up a sandbox that vanished", "sandbox_id", id)
		k.o.Enqueue(id)
	}
	return nil
}

// forgetStale removes a stale confirmation from the record; nothing may be judged by it any more. Errors: ErrUnavailable; then nothing may
// be decided about the sandbox.
func (k *Keeper) forgetStale(ctx context.Context, id string) error {
	if !k.get(id).stale {
		return nil
	}
	if err := k.o.Confirmations.ForgetGivenUp(ctx, id); err != nil {
		return err
	}
	k.forgotten(id)
	return nil
}

// Bounds of the wait of GiveUp.
const (
	// confirmWait is longer than the time between the two observations that prove an absence.
	confirmWait = observationsApart + 5*time.Second
	confirmPoll = time.Second
)

// GiveUp judges the sandboxes that vanished together in one life of the engine as if each had vanished alone, because an operator confirmed
// that they are gone. The confirmation is recorded, so a later daemon uses it too. GiveUp gives up only sandboxes that the engine showed
// neither at the call nor at any later observation. It waits up to 15 s for the observations that prove each absence, and returns the IDs of the
// sandboxes that stayed absent: decided, whose loss is certain, and undecided. Errors: ErrUnavailable, and that of ctx; then none is given
// up.
func (k *Keeper) GiveUp(ctx context.Context, run *storev1.EngineRun) (decided, undecided []string, err error) {
	engine, err := k.o.Store.EngineIdentity(ctx)
	if err != nil {
		return nil, nil, err
	}
	gone, open, err := k.await(ctx, run, engine)
	if err != nil {
		return nil, nil, fmt.Errorf("prove which sandboxes vanished: %w", err)
	}
	if err := k.giveUp(ctx, k.confirmable(open, run, engine)); err != nil {
		return nil, nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(gone)) {
		_, absent := open[id]
		switch {
		case k.decided(ctx, gone[id], run, engine):
			decided = append(decided, id)
		case absent:
			undecided = append(undecided, id)
		}
	}
	return decided, undecided, nil
}

// await waits until each sandbox that the engine does not list at the call is held, decided or observed again. open are those of them that
// no later list shows and that are not decided.
func (k *Keeper) await(ctx context.Context, run *storev1.EngineRun, engine *storev1.EngineIdentity) (gone, open map[string]store.Sandbox, err error) {
	gone, _, err = k.unlisted(ctx, run, engine)
	if err != nil {
		return nil, nil, err
	}
	for id := range gone {
		k.o.Enqueue(id) // without an event, only the next resync would enqueue it
	}
	open = maps.Clone(gone)
	for deadline := time.Now().Add(confirmWait); len(k.confirmable(open, run, engine)) < len(open) && time.Now().Before(deadline); {
		if wait.For(ctx, confirmPoll) != nil {
			return nil, nil, ctx.Err()
		}
		still, _, err := k.unlisted(ctx, run, engine)
		if err != nil {
			return nil, nil, err
		}
		maps.DeleteFunc(open, func(id string, _ store.Sandbox) bool {
			_, ok := still[id]
			return !ok
		})
	}
	return gone, open, nil
}

// decided reports whether an operator gave up a sandbox, or it FAILED because a part of it is gone. The verdict removes the confirmation,
// so the confirmation is read first.
func (k *Keeper) decided(ctx context.Context, sb store.Sandbox, run *storev1.EngineRun, engine *storev1.EngineIdentity) bool {
	if k.isConfirmed(sb.ID, sb.Desired.GetObjects(), run, engine) {
		return true
	}
	sb, err := k.o.Store.Sandbox(ctx, sb.ID)
	return err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && sb.Progress.GetMissing()
}
