package absence

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// Time between the two observations that prove an absence.
const (
	// observationsApart is longer than the 8 s for which a restarting engine was observed to answer wrongly.
	observationsApart = 10 * time.Second
	// observationsApartDestroyed is the same if the engine sent an event of the removal.
	observationsApartDestroyed = time.Second
	// maxDestroyed bounds the remembered removals. Without one the two observations still prove the absence.
	maxDestroyed = 10_000
)

// memory holds what is known of the parts that the engine does not show, and the removals that the engine's events reported. After a
// restart of the daemon the proof of an absence starts over.
type memory struct {
	mu sync.Mutex
	of map[string]record // by sandbox ID
	// destroyed are the IDs of objects whose removal the present stream of events has reported.
	destroyed map[string]bool
}

// record is what is known of one sandbox. What its pointers lead to never changes, so a copy of it is independent.
type record struct {
	// shown is a time at which the engine still had the primary, by the monotonic clock; zero: there is none in this life of the daemon.
	shown time.Time
	first *firstObservation // nil: no part is missed
	held  *heldSandbox      // nil: its verdict does not wait for an operator
	// confirmed is the recorded confirmation that an operator gave it up; stale: a confirmation must be removed from the record before anything
	// is judged by an absence.
	confirmed *storev1.GivenUp
	stale     bool
}

// heldSandbox is a sandbox that vanished together with others, and whose verdict waits for an operator.
type heldSandbox struct {
	name, primary string
	run           *storev1.EngineRun // in which the engine does not show it
}

// firstObservation is the first of the two observations of a missing part.
type firstObservation struct {
	what string
	run  *storev1.EngineRun
	at   time.Time // by the monotonic clock
}

func newMemory() *memory { return &memory{of: map[string]record{}, destroyed: map[string]bool{}} }

// get returns what is known of a sandbox.
func (a *memory) get(id string) record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[id]
}

// change calls fn with what is known of a sandbox. The caller holds mu.
func (a *memory) change(id string, fn func(*record)) {
	r := a.of[id]
	if fn(&r); r == (record{}) {
		delete(a.of, id)
		return
	}
	a.of[id] = r
}

// Listed records which of the live sandboxes had their primaries in a list of all containers that was read after since. What is known of
// when others were shown is dropped.
func (a *memory) Listed(since time.Time, live []string, shown func(id string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range live {
		if shown(id) {
			a.change(id, func(r *record) { r.shown = since })
		}
	}
	known := make(map[string]bool, len(live))
	for _, id := range live {
		known[id] = true
	}
	for id := range a.of {
		if !known[id] {
			a.change(id, func(r *record) { r.shown = time.Time{} })
		}
	}
}

// Note records the removal that an event of the engine reports.
func (a *memory) Note(e dockerx.Event) {
	if e.Action != dockerx.ActionDestroy {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.destroyed) >= maxDestroyed {
		clear(a.destroyed) // most are of containers that agboxd removed
	}
	a.destroyed[e.ID] = true
}

// StreamEnded drops the removals reported so far: the next stream may be from another engine. The next stream replays the last seconds of
// events that its engine remembers, and these prove as much: an engine keeps its events in the memory of one process, so they are of its
// present life; each names an ID, and no ID is used twice. A gap before a replay hides removals and invents none; a removal without an
// event is proven by the observations and an operator.
func (a *memory) StreamEnded() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.destroyed)
}

// seen ends the doubt about a sandbox whose parts were all observed, or that is no longer judged by them. It reports whether there was a
// doubt.
func (a *memory) seen(id string, o *storev1.Objects) (doubted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(id, func(r *record) {
		doubted = r.first != nil
		r.stale = r.stale || r.confirmed != nil
		r.first, r.held, r.confirmed = nil, nil, nil
	})
	for _, object := range objectIDs(o) {
		delete(a.destroyed, object)
	}
	return doubted
}

// Doubts reports whether a part of a sandbox was not found and its absence is not proven yet.
func (a *memory) Doubts(id string) bool { return a.get(id).first != nil }

// observe records that something is absent and returns the time until the observation that proves it; 0: this one proves it. A list that
// showed the primary after the first observation contradicts it.
func (a *memory) observe(id, what string, run *storev1.EngineRun, destroyed bool) (left time.Duration) {
	apart := observationsApart
	if destroyed {
		apart = observationsApartDestroyed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(id, func(r *record) {
		if !r.misses(what, run) {
			r.first = &firstObservation{what: what, run: run, at: time.Now()}
		}
		left = max(0, apart-time.Since(r.first.at))
	})
	return left
}

// misses reports whether a part was observed to be absent in a life of the engine, and was not listed since.
func (r record) misses(what string, run *storev1.EngineRun) bool {
	return r.first != nil && r.first.what == what && proto.Equal(r.first.run, run) && (what != plan.ThePrimary || !r.shown.After(r.first.at))
}

// missedApart reports that one of two sandboxes was still shown when the other had been missed for so long that they have not vanished
// together. A STOPPED sandbox whose container is gone without an event stays missed until a resume.
func (a *memory) missedApart(one, other string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[one].outlived(a.of[other]) || a.of[other].outlived(a.of[one])
}

// outlived reports that the primary of r was shown long after that of o was last missed for the first time.
func (r record) outlived(o record) bool {
	missed := o.first != nil && o.first.what == plan.ThePrimary && !o.shown.After(o.first.at)
	return missed && r.shown.Sub(o.first.at) > observationsApart
}

// isDestroyed reports whether an event reported the removal of one of the objects.
func (a *memory) isDestroyed(objects ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(objects, func(id string) bool { return id != "" && a.destroyed[id] })
}

// hold records that the verdict on a sandbox waits for an operator; nil ends the wait.
func (a *memory) hold(id string, h *heldSandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(id, func(r *record) { r.held = h })
}

// holding returns the names of the sandboxes that wait for an operator.
func (a *memory) holding() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, r := range a.of {
		if r.held != nil {
			names = append(names, r.held.name)
		}
	}
	return names
}

// copied returns an independent copy.
func (a *memory) copied() *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &memory{of: maps.Clone(a.of), destroyed: maps.Clone(a.destroyed)}
}

// An operator's confirmation that sandboxes are gone is recorded, so a daemon that starts after a crash right after the call uses it. It is
// bound to one vanishing: to the container that was not shown, and to the engine and its life that did not show it. When a sandbox is
// observed again, its confirmation is removed, from the record too, before anything else is decided about it. A later vanishing waits for
// the operator again.

// isConfirmed reports whether an operator gave up a sandbox that an engine does not show in the given life.
func (a *memory) isConfirmed(id string, o *storev1.Objects, run *storev1.EngineRun, engine *storev1.EngineIdentity) bool {
	r := a.get(id)
	g := r.confirmed
	return g != nil && !r.stale && g.GetPrimaryId() == o.GetPrimaryId() && proto.Equal(g.GetEngineRun(), run) && proto.Equal(g.GetEngine(), engine)
}

// confirmable returns the confirmations of those of the vanished sandboxes that are held in a life of the engine.
func (a *memory) confirmable(vanished map[string]store.Sandbox, run *storev1.EngineRun, engine *storev1.EngineIdentity) map[string]*storev1.GivenUp {
	out := map[string]*storev1.GivenUp{}
	for id, sb := range vanished {
		g := &storev1.GivenUp{EngineRun: run, Engine: engine, PrimaryId: sb.Desired.GetObjects().GetPrimaryId()}
		if a.get(id).held.vanishedAs(g) {
			out[id] = g
		}
	}
	return out
}

// vanishedAs reports whether a sandbox is held for the vanishing that a confirmation names.
func (h *heldSandbox) vanishedAs(g *storev1.GivenUp) bool {
	return h != nil && h.primary == g.GetPrimaryId() && proto.Equal(h.run, g.GetEngineRun())
}

// confirm stores the recorded confirmations. A sandbox that is no longer held was observed or judged during the write, and its confirmation
// is stale, unless another caller stored the same one.
func (a *memory) confirm(recorded map[string]*storev1.GivenUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, g := range recorded {
		a.change(id, func(r *record) {
			switch {
			case proto.Equal(r.confirmed, g) && !r.stale:
			case r.held.vanishedAs(g):
				r.confirmed, r.held, r.stale = g, nil, false
			default:
				r.stale = true
			}
		})
	}
}

// HasConfirmation reports whether a confirmation of a sandbox may be recorded.
func (a *memory) HasConfirmation(id string) bool {
	r := a.get(id)
	return r.confirmed != nil || r.stale
}

func (a *memory) forgotten(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(id, func(r *record) { r.stale = false })
}
