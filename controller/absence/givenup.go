package absence

import (
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/store"
)

// An operator's confirmation that sandboxes are gone is recorded, so a daemon that starts after a crash right after the call uses it. It is
// bound to one vanishing: to the container that was not shown, and to the engine and its life that did not show it. When a sandbox is
// observed again, its confirmation is removed, from the record too, before anything else is decided about it. A later vanishing waits for
// the operator again.

// isConfirmed reports whether an operator gave up a sandbox that an engine does not show in the given life.
func (a *memory) isConfirmed(id string, o *storev1.Objects, run *storev1.EngineRun, engine *storev1.EngineIdentity) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.confirmed[id]
	return g != nil && !a.stale[id] && g.GetPrimaryId() == o.GetPrimaryId() &&
		proto.Equal(g.GetEngineRun(), run) && proto.Equal(g.GetEngine(), engine)
}

// confirmable returns the confirmations of those of the vanished sandboxes that are held in a life of the engine.
func (a *memory) confirmable(vanished map[string]store.Sandbox, run *storev1.EngineRun, engine *storev1.EngineIdentity) map[string]*storev1.GivenUp {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[string]*storev1.GivenUp{}
	for id, sb := range vanished {
		h, held := a.held[id]
		if held && h.primary == sb.Desired.GetObjects().GetPrimaryId() && proto.Equal(h.run, run) {
			out[id] = &storev1.GivenUp{EngineRun: run, Engine: engine, PrimaryId: h.primary}
		}
	}
	return out
}

// confirm adopts the recorded confirmations. A sandbox that is no longer held was observed or judged during the write, and its confirmation
// is stale, unless another caller adopted the same one.
func (a *memory) confirm(recorded map[string]*storev1.GivenUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, g := range recorded {
		if proto.Equal(a.confirmed[id], g) && !a.stale[id] {
			continue
		}
		if h, held := a.held[id]; !held || h.primary != g.GetPrimaryId() || !proto.Equal(h.run, g.GetEngineRun()) {
			a.stale[id] = true
			continue
		}
		a.confirmed[id] = g
		delete(a.held, id)
		delete(a.stale, id)
	}
}

// HasConfirmation reports whether a confirmation of a sandbox may be recorded.
func (a *memory) HasConfirmation(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.confirmed[id] != nil || a.stale[id]
}

func (a *memory) isStale(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stale[id]
}

func (a *memory) forgotten(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stale, id)
}
