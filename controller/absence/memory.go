package absence

import (
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
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

// memory holds the parts that the engine does not show, since when, and the removals that the engine's events reported. After a restart of
// the daemon the proof of an absence starts over.
type memory struct {
	mu    sync.Mutex
	first map[string]firstObservation // by sandbox ID
	// destroyed are the IDs of objects whose removal the present stream of events has reported.
	destroyed map[string]bool
	// held are the sandboxes that vanished together and wait for an operator; confirmed are the recorded confirmations of those that an
	// operator gave up; stale are those whose confirmation must be removed from the record before anything is judged by an absence.
	held      map[string]heldSandbox
	confirmed map[string]*storev1.GivenUp
	stale     map[string]bool
}

// heldSandbox is a sandbox whose verdict waits for an operator.
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

func newMemory() *memory {
	return &memory{
		first: map[string]firstObservation{}, destroyed: map[string]bool{}, held: map[string]heldSandbox{},
		confirmed: map[string]*storev1.GivenUp{}, stale: map[string]bool{},
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
func (a *memory) seen(id string, o *storev1.Objects) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, doubted := a.first[id]
	delete(a.first, id)
	delete(a.held, id)
	if a.confirmed[id] != nil {
		delete(a.confirmed, id)
		a.stale[id] = true
	}
	for _, object := range objectIDs(o) {
		delete(a.destroyed, object)
	}
	return doubted
}

// Doubts reports whether a part of a sandbox was not found and its absence is not proven yet.
func (a *memory) Doubts(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.first[id]
	return ok
}

// observe records that something is absent and returns the time until the observation that proves it; 0: this one proves it.
func (a *memory) observe(id, what string, run *storev1.EngineRun, destroyed bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok := a.first[id]
	if !ok || f.what != what || !proto.Equal(f.run, run) {
		f = firstObservation{what: what, run: run, at: time.Now()}
		a.first[id] = f
	}
	apart := observationsApart
	if destroyed {
		apart = observationsApartDestroyed
	}
	return max(0, apart-time.Since(f.at))
}

// missedApart reports that two sandboxes were missed so far apart that they have not vanished together. A STOPPED sandbox whose container
// is gone without an event stays missed until a resume.
func (a *memory) missedApart(one, other string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first, ok := a.first[one]
	return ok && first.at.Sub(a.first[other].at).Abs() > observationsApart
}

// isDestroyed reports whether an event reported the removal of one of the objects.
func (a *memory) isDestroyed(objects ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(objects, func(id string) bool { return id != "" && a.destroyed[id] })
}

// hold records that the verdict on a sandbox waits for an operator.
func (a *memory) hold(id string, h heldSandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[id] = h
}

// release ends the wait of a sandbox for an operator.
func (a *memory) release(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, id)
}

// holding returns the names of the sandboxes that wait for an operator.
func (a *memory) holding() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, h := range a.held {
		names = append(names, h.name)
	}
	return names
}

// copied returns an independent copy.
func (a *memory) copied() *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &memory{
		first: maps.Clone(a.first), destroyed: maps.Clone(a.destroyed), held: maps.Clone(a.held), confirmed: maps.Clone(a.confirmed),
		stale: maps.Clone(a.stale),
	}
}

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

// confirm stores the recorded confirmations. A sandbox that is no longer held was observed or judged during the write, and its confirmation
// is stale, unless another caller stored the same one.
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
