package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// Time between the two looks that prove an absence.
const (
	// looksApart is longer than an engine has been seen to answer wrongly while it restarts (8 s).
	looksApart = 10 * time.Second
	// looksApartDestroyed is the same where the engine sent an event of the removal.
	looksApartDestroyed = time.Second
	// maxDestroyed bounds the removals that are remembered. An older one proves nothing; the looks do.
	maxDestroyed = 10_000
)

// absences are the parts that the engine does not show, since when, and the removals that the engine's events report. They are kept in
// memory: after a restart the proof of an absence starts over.
type absences struct {
	mu    sync.Mutex
	first map[string]firstLook // by sandbox ID
	// destroyed are the IDs of objects whose removal the present stream of events has reported.
	destroyed map[string]bool
	// held are the sandboxes that vanished together and wait for an operator; confirmed are those that an operator gave up, as on
	// record; stale are those whose confirmation must go from the record before anything is judged by an absence.
	held      map[string]heldSandbox
	confirmed map[string]*storev1.GivenUp
	stale     map[string]bool
}

// heldSandbox is one that waits for an operator.
type heldSandbox struct {
	name, primary string
	run           *storev1.EngineRun // in which the engine does not show it
}

// firstLook is the first of the two looks at a part that is not there.
type firstLook struct {
	what string
	run  *storev1.EngineRun
	at   time.Time // by the monotonic clock
}

func newAbsences() *absences {
	return &absences{
		first: map[string]firstLook{}, destroyed: map[string]bool{}, held: map[string]heldSandbox{},
		confirmed: map[string]*storev1.GivenUp{}, stale: map[string]bool{},
	}
}

// told records a removal that an event of the engine reports.
func (a *absences) told(e dockerx.Event) {
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

// streamBroke drops the removals that the stream reported until now: what comes next may be from another engine. The next stream replays
// those of the last seconds that its engine remembers, which prove as much: an engine keeps its events in the memory of one process, so
// they are of its present life; each names an ID, and no ID is given out twice. A gap in front of a replay hides removals and invents
// none, and a removal that no event reports is proven by the looks and an operator.
func (a *absences) streamBroke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.destroyed)
}

// seen ends the doubt about a sandbox whose parts are all there, or that is not judged by them any more. It reports whether there
// was one.
func (a *absences) seen(id string, o *storev1.Objects) bool {
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

// doubts reports whether a part of a sandbox was not found and its absence is not proven yet.
func (a *absences) doubts(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.first[id]
	return ok
}

// look notes one look at an absence and returns how long to wait for the one that proves it; 0: this one does.
func (a *absences) look(id, what string, run *storev1.EngineRun, destroyed bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok := a.first[id]
	if !ok || f.what != what || !proto.Equal(f.run, run) {
		f = firstLook{what: what, run: run, at: time.Now()}
		a.first[id] = f
	}
	apart := looksApart
	if destroyed {
		apart = looksApartDestroyed
	}
	return max(0, apart-time.Since(f.at))
}

// isDestroyed reports whether an event reported the removal of one of the objects.
func (a *absences) isDestroyed(objects ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(objects, func(id string) bool { return id != "" && a.destroyed[id] })
}

// hold has a sandbox wait for an operator.
func (a *absences) hold(id string, h heldSandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[id] = h
}

// holding are the names of those that wait for an operator.
func (a *absences) holding() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for _, h := range a.held {
		names = append(names, h.name)
	}
	return names
}

// copied returns an independent copy.
func (a *absences) copied() *absences {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &absences{
		first: maps.Clone(a.first), destroyed: maps.Clone(a.destroyed), held: maps.Clone(a.held), confirmed: maps.Clone(a.confirmed),
		stale: maps.Clone(a.stale),
	}
}

func objectIDs(o *storev1.Objects) []string {
	ids := []string{o.GetPrimaryId(), o.GetNetworkId()}
	for _, id := range o.GetServiceIds() {
		ids = append(ids, id)
	}
	return ids
}

// lookFor inspects by ID and by name the parts that the lists do not show, and adds those that exist to w.
func (c *Controller) lookFor(ctx context.Context, rec plan.Record, w *plan.World) error {
	containers, _ := plan.Unseen(rec, *w)
	for _, key := range containers {
		d, err := c.cfg.Engine.InspectContainer(ctx, key)
		if errdefs.IsNotFound(err) || err == nil && !c.cfg.isOf(d.Labels, rec.ID) {
			continue
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(w.Containers, func(have plan.Container) bool { return have.ID == d.ID }) {
			c.log.Warn("the engine's list leaves out a container that exists", "sandbox_id", rec.ID, "container_id", d.ID)
			w.Containers = append(w.Containers, containerOf(d.Container))
		}
	}
	_, networks := plan.Unseen(rec, *w) // also those of the containers that were just found
	for _, key := range networks {
		n, err := c.cfg.Engine.InspectNetwork(ctx, key)
		if errdefs.IsNotFound(err) || err == nil && !c.cfg.isOf(n.Labels, rec.ID) {
			continue
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(w.Networks, func(have plan.Network) bool { return have.ID == n.ID }) {
			c.log.Warn("the engine's list leaves out a network that exists", "sandbox_id", rec.ID, "network_id", n.ID)
			w.Networks = append(w.Networks, plan.Network{ID: n.ID, Created: n.Created})
		}
	}
	return nil
}

// isOf reports whether labels are those of an object of this store and sandbox.
func (c *Config) isOf(labels map[string]string, sandboxID string) bool {
	return c.isOurs(labels) && labels[naming.SandboxID] == sandboxID
}

// judgeAbsence decides whether the absence of the missing parts is proven. If so it clears w.Doubt; otherwise w.Doubt gives the reason.
// Errors: ErrUnavailable when the engine is not the one from before, which proves nothing.
func (c *Controller) judgeAbsence(ctx context.Context, v view, w *plan.World) error {
	rec := *v.rec
	if !c.inDoubt(v, *w) {
		if c.absences.seen(rec.ID, rec.Objects) {
			c.agents.EnqueueOf(rec.ID) // they waited
		}
		w.Doubt = ""
		return c.forgetStale(ctx, rec.ID)
	}
	if err := c.forgetStale(ctx, rec.ID); err != nil {
		return err
	}
	what := plan.Lacks(rec, *w)
	if what == "" { // its cleanup is due
		what = plan.ThePrimary
	}
	if err := c.sameEngine(ctx, w.Run); err != nil {
		return err
	}
	if contradiction := c.contradiction(ctx, rec, *w); contradiction != "" {
		w.Doubt, w.LookAgain = "the engine does not show "+what+", but "+contradiction+"; looking again", looksApart
		return nil
	}
	proof := c.absences.isDestroyed(removedIDs(rec.Objects, *w)...)
	if left := c.absences.look(rec.ID, what, w.Run, proof); left > 0 {
		w.Doubt, w.LookAgain = "the engine does not show "+what+"; looking again", left
		return nil
	}
	if !proof && !hasPrimary(*w) {
		others, err := c.vanishedWith(ctx, rec, w.Run)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			c.absences.hold(rec.ID, heldSandbox{displayName(v.sb), rec.Objects.GetPrimaryId(), w.Run})
			w.Doubt, w.LookAgain = vanishedTogether(append(others, displayName(v.sb))), looksApart
			return nil
		}
	}
	w.Doubt = ""
	return nil
}

// removedIDs are the IDs on record of what may be missing in w: the primary's, or where that is there, those of the rest.
func removedIDs(o *storev1.Objects, w plan.World) []string {
	if !hasPrimary(w) {
		return []string{o.GetPrimaryId()}
	}
	return objectIDs(o)[1:]
}

func hasPrimary(w plan.World) bool {
	return slices.ContainsFunc(w.Containers, func(ct plan.Container) bool { return ct.Component == naming.ComponentPrimary })
}

func displayName(sb store.Sandbox) string { return orElse(sb.Name, sb.ID) }

// vanishedTogether is the line of /readyz about sandboxes whose verdict waits for an operator.
func vanishedTogether(names []string) string {
	slices.Sort(names)
	shown := strings.Join(names[:min(len(names), 3)], ", ")
	if len(names) > 3 {
		shown += ", ..."
	}
	return fmt.Sprintf("%d sandboxes vanished from the engine together (%s) without removal events: agboxd neither fails nor deletes them; "+
		"run `agbox engine confirm` if they are gone for good", len(names), shown)
}

// contradiction is what proves that a part is alive although the engine does not show it; empty: nothing does.
func (c *Controller) contradiction(ctx context.Context, rec plan.Record, w plan.World) string {
	if hasPrimary(w) {
		attached := func(ct plan.Container) bool { return ct.Inspected && ct.Alive() && len(ct.NetworkIDs) > 0 }
		if len(w.Networks) == 0 && slices.ContainsFunc(w.Containers, attached) {
			return "a running container is attached to it"
		}
		return ""
	}
	for _, execID := range c.cfg.Store.ActiveExecs(rec.ID) {
		ex, err := c.cfg.Store.Exec(ctx, execID)
		if err != nil {
			continue // no evidence either way
		}
		status, err := c.cfg.Execs.Look(rec.ID, execID, ex.Desired.GetNonce())
		if err == nil && status.Phase == execjournal.Running {
			return "exec " + execID + " runs in it"
		}
	}
	return ""
}

// vanishedWith names the sandboxes other than that of rec that vanished, or none if an operator gave up that of rec. Errors:
// ErrUnavailable when the engine lists the primary of rec, which contradicts its absence.
func (c *Controller) vanishedWith(ctx context.Context, rec plan.Record, run *storev1.EngineRun) ([]string, error) {
	engine, err := c.cfg.Store.EngineIdentity(ctx)
	if err != nil {
		return nil, err
	}
	if c.absences.isConfirmed(rec.ID, rec.Objects, run, engine) {
		return nil, nil
	}
	shown, err := c.listedPrimaries(ctx)
	if err != nil {
		return nil, err
	}
	if shown[rec.ID] {
		return nil, fmt.Errorf("the engine lists the primary container again: %w", errdefs.ErrUnavailable)
	}
	all, err := c.unlisted(ctx, shown, run, engine)
	if err != nil {
		return nil, err
	}
	delete(all, rec.ID)
	var names []string
	for _, sb := range all {
		names = append(names, displayName(sb))
	}
	return names, nil
}

// vanished lists the containers and returns the unlisted sandboxes.
func (c *Controller) vanished(ctx context.Context, run *storev1.EngineRun, engine *storev1.EngineIdentity) (map[string]store.Sandbox, error) {
	shown, err := c.listedPrimaries(ctx)
	if err != nil {
		return nil, err
	}
	return c.unlisted(ctx, shown, run, engine)
}

// listedPrimaries are the sandboxes, by ID, whose primary the engine lists.
func (c *Controller) listedPrimaries(ctx context.Context) (map[string]bool, error) {
	listed, err := c.cfg.listContainers(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	shown := map[string]bool{}
	for _, ct := range listed {
		if ct.Labels[naming.Component] == naming.ComponentPrimary {
			shown[ct.Labels[naming.SandboxID]] = true
		}
	}
	return shown, nil
}

// unlisted are the live sandboxes, by ID, whose primary is not among shown, without an event of its removal. It leaves out those
// that an operator gave up.
func (c *Controller) unlisted(ctx context.Context, shown map[string]bool, run *storev1.EngineRun, engine *storev1.EngineIdentity) (map[string]store.Sandbox, error) {
	gone := map[string]store.Sandbox{}
	for _, id := range c.cfg.Store.LiveIDs() {
		if shown[id] {
			continue
		}
		sb, err := c.cfg.Store.Sandbox(ctx, id)
		if errdefs.IsNotFound(err) || errdefs.IsDataLoss(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		objects := sb.Desired.GetObjects()
		if c.lacksPrimary(sb) && !c.absences.isDestroyed(objects.GetPrimaryId()) && !c.absences.isConfirmed(id, objects, run, engine) {
			gone[id] = sb
		}
	}
	return gone, nil
}

// lacksPrimary reports whether a sandbox whose primary is not there lacks it.
func (c *Controller) lacksPrimary(sb store.Sandbox) bool {
	return plan.Lacks(c.recordOf(sb), plan.World{}) == plan.ThePrimary
}

// Held is the number of sandboxes that vanished together and wait for an operator.
func (c *Controller) Held() int { return len(c.absences.holding()) }

// Vanished says in one sentence that sandboxes vanished together and wait for an operator; empty when none do.
func (c *Controller) Vanished() string {
	if names := c.absences.holding(); len(names) > 0 {
		return vanishedTogether(names)
	}
	return ""
}
