package absence

import (
	"context"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/store"
)

// Listing is what one list of all containers shows of absences that passes have proven. It makes no verdict. A resync uses it to leave alone
// the sandboxes about which a pass would report what the last pass over them has reported.
type Listing struct {
	k    *Keeper
	gone map[string]store.Sandbox // as unlisted returns them
}

// Compare returns the Listing of a list that showed the given sandboxes' primaries, in one life of the engine. Errors: ErrUnavailable of the
// store.
func (k *Keeper) Compare(ctx context.Context, run *storev1.EngineRun, shown map[string]bool) (Listing, error) {
	engine, err := k.o.Store.EngineIdentity(ctx)
	if err != nil {
		return Listing{}, err
	}
	gone, err := k.unshown(ctx, shown, run, engine)
	return Listing{k, gone}, err
}

// Recall sets w.Doubt as a pass over s would that observes w and proves the same absence of the primary again. It reports false and does
// nothing unless a pass has observed this absence in the same life of the engine, and nothing was listed, removed or confirmed since.
func (l Listing) Recall(s Sandbox, w *plan.World) bool {
	id := s.Record.ID
	known := l.k.get(id).misses(plan.ThePrimary, w.Run) && !l.k.HasConfirmation(id) && !l.k.isDestroyed(s.Record.Objects.GetPrimaryId())
	if w.HasPrimary() || !known {
		return false
	}
	w.Doubt = ""
	if others := l.k.beside(s.Record, l.gone); len(others) > 0 {
		w.Doubt = vanishedTogether(append(others, s.Name))
	}
	return true
}
