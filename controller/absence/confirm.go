package absence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Bounds of the wait of GiveUp.
const (
	// confirmWait is longer than the time between the two looks that prove an absence.
	confirmWait = looksApart + 5*time.Second
	confirmPoll = time.Second
)

// GiveUp judges the sandboxes that vanished together in one life of the engine as if each had vanished alone, because an operator confirmed
// that they are gone. The confirmation is recorded, so a later daemon uses it too. GiveUp gives up only sandboxes that the engine showed
// neither at the call nor at any later look. It waits up to 15 s for the looks that prove each absence, and returns the IDs of the
// sandboxes that stayed absent: decided, whose loss is certain, and undecided. Errors: ErrUnavailable, and that of ctx; then none is given
// up.
func (k *Keeper) GiveUp(ctx context.Context, run *storev1.EngineRun) (decided, undecided []string, err error) {
	engine, err := k.o.Store.EngineIdentity(ctx)
	if err != nil {
		return nil, nil, err
	}
	v := vanishing{k, run, engine}
	held, gone, err := v.await(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("prove which sandboxes vanished: %w", err)
	}
	if err := k.giveUp(ctx, held); err != nil {
		return nil, nil, err
	}
	for _, sb := range gone {
		if v.decided(ctx, sb) {
			decided = append(decided, sb.ID)
		} else {
			undecided = append(undecided, sb.ID)
		}
	}
	return decided, undecided, nil
}

// vanishing are the sandboxes that an engine does not show in one life.
type vanishing struct {
	keeper *Keeper
	run    *storev1.EngineRun
	engine *storev1.EngineIdentity
}

// unlisted returns the sandboxes that the engine does not list now, by ID.
func (v vanishing) unlisted(ctx context.Context) (map[string]store.Sandbox, error) {
	shown, err := v.keeper.o.Objects.Primaries(ctx)
	if err != nil {
		return nil, err
	}
	return v.keeper.unlisted(ctx, shown, v.run, v.engine)
}

// await waits until each sandbox that the engine does not list is held, decided or observed again. gone are those that were not observed
// again, by ID; held are the confirmations of those that wait for an operator.
func (v vanishing) await(ctx context.Context) (held map[string]*storev1.GivenUp, gone []store.Sandbox, err error) {
	open, err := v.unlisted(ctx)
	if err != nil {
		return nil, nil, err
	}
	for id := range open {
		v.keeper.o.Enqueue(id) // without an event, only the next resync would enqueue it
	}
	for deadline := time.Now().Add(confirmWait); ; {
		held = v.keeper.confirmable(open, v.run, v.engine)
		if len(held) == len(open) || !time.Now().Before(deadline) {
			break
		}
		if wait.For(ctx, confirmPoll) != nil {
			return nil, nil, ctx.Err()
		}
		still, err := v.unlisted(ctx)
		if err != nil {
			return nil, nil, err
		}
		for id, sb := range open {
			if _, ok := still[id]; ok {
				continue
			}
			delete(open, id)
			if v.decided(ctx, sb) {
				gone = append(gone, sb)
			}
		}
	}
	gone = slices.AppendSeq(gone, maps.Values(open))
	slices.SortFunc(gone, func(a, b store.Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return held, gone, nil
}

// decided reports whether an operator gave up a sandbox, or it FAILED because a part of it is gone. The verdict removes the confirmation,
// so the confirmation is read first.
func (v vanishing) decided(ctx context.Context, sb store.Sandbox) bool {
	if v.keeper.isConfirmed(sb.ID, sb.Desired.GetObjects(), v.run, v.engine) {
		return true
	}
	sb, err := v.keeper.o.Store.Sandbox(ctx, sb.ID)
	return err == nil && sb.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED && sb.Progress.GetMissing()
}
