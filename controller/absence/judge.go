// Package absence decides whether a part of a sandbox that the engine does not show is really gone. A part is gone when two observations by ID and
// by name, some seconds apart in one life of the engine, do not find it. Several sandboxes whose primaries vanish together without events
// of their removal wait for an operator's confirmation (decision 0018).
//
// Reader judges without changing any record. Keeper also records what an operator confirmed.
package absence

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/owned"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Records is the part of the store that a Reader reads.
type Records interface {
	LiveIDs() []string
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	ActiveExecs(sandboxID string) []string
	Exec(ctx context.Context, execID string) (store.Exec, error)
	EngineIdentity(ctx context.Context) (*storev1.EngineIdentity, error)
}

// Engine inspects single objects, by ID or by name.
type Engine interface {
	InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error)
	InspectNetwork(ctx context.Context, id string) (dockerx.Network, error)
}

// Sandbox is a sandbox whose parts are judged.
type Sandbox struct {
	Record plan.Record
	// Name is the name that the user gave it.
	Name string
	// InDoubt reports whether the decision about it depends on the absence of parts that w does not contain.
	InDoubt func(w plan.World) bool
}

// Ports are what a Reader judges by. They only read, and all are required.
type Ports struct {
	Store   Records
	Engine  Engine
	Objects owned.Objects
	// Exec reads the journal of an exec.
	Exec func(sandboxID, execID, nonce string) (execjournal.Status, error)
	// CheckSame checks that the engine is ours and has not restarted since run.
	CheckSame func(ctx context.Context, run *storev1.EngineRun) error
	// Begun reports whether a primary of a sandbox was started, or was about to be.
	Begun func(sandboxID string) (bool, error)
	// Record returns the part of a live sandbox's record that decisions depend on.
	Record func(store.Sandbox) plan.Record
	Logger *slog.Logger
}

// Reader judges absences by ports that only read.
type Reader struct {
	*memory
	p Ports
}

// Judge decides whether the absence of the parts of s that w does not contain is proven. If so it clears w.Doubt; otherwise w.Doubt is the
// reason, and w.ObserveAgain the time until the next observation. It changes only w and the reader's memory. Errors: ErrUnavailable if the engine is
// not the same as before, which proves nothing.
func (r *Reader) Judge(ctx context.Context, s Sandbox, w *plan.World) error {
	if !s.InDoubt(*w) {
		w.Doubt = ""
		return nil
	}
	r.forgotten(s.Record.ID)
	return r.prove(ctx, s, w)
}

func objectIDs(o *storev1.Objects) []string {
	return slices.AppendSeq([]string{o.GetPrimaryId(), o.GetNetworkId()}, maps.Values(o.GetServiceIds()))
}

// Find inspects by ID and by name the parts of a sandbox that the lists do not show, and adds the existing ones to w.
func (r *Reader) Find(ctx context.Context, rec plan.Record, w *plan.World) error {
	containers, _ := plan.Unseen(rec, *w)
	for _, key := range containers {
		d, err := r.p.Engine.InspectContainer(ctx, key)
		if errdefs.IsNotFound(err) || err == nil && !r.p.Objects.HasOf(d.Labels, d.ID, rec.ID) {
			continue
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(w.Containers, func(have plan.Container) bool { return have.ID == d.ID }) {
			r.p.Logger.Warn("the engine's list leaves out a container that exists", "sandbox_id", rec.ID, "container_id", d.ID)
			w.Containers = append(w.Containers, owned.Container(d.Container))
		}
	}
	_, networks := plan.Unseen(rec, *w) // also those of the containers that were just found
	for _, key := range networks {
		n, err := r.p.Engine.InspectNetwork(ctx, key)
		if errdefs.IsNotFound(err) || err == nil && !r.p.Objects.HasOf(n.Labels, n.ID, rec.ID) {
			continue
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(w.Networks, func(have plan.Network) bool { return have.ID == n.ID }) {
			r.p.Logger.Warn("the engine's list leaves out a network that exists", "sandbox_id", rec.ID, "network_id", n.ID)
			w.Networks = append(w.Networks, owned.Network(n))
		}
	}
	return nil
}

// prove makes one observation of an absence that the decision depends on.
func (r *Reader) prove(ctx context.Context, s Sandbox, w *plan.World) error {
	rec := s.Record
	what := plan.Lacks(rec, *w)
	if what == "" { // its cleanup is due
		what = plan.ThePrimary
	}
	if err := r.p.CheckSame(ctx, w.Run); err != nil {
		return fmt.Errorf("make sure of the engine: %w", err)
	}
	if contradiction := r.contradiction(ctx, rec, *w); contradiction != "" {
		w.Doubt, w.ObserveAgain = "the engine does not show "+what+", but "+contradiction+"; observing again", observationsApart
		return nil
	}
	proof := r.isDestroyed(removedIDs(rec.Objects, *w)...)
	if left := r.observe(rec.ID, what, w.Run, proof); left > 0 {
		w.Doubt, w.ObserveAgain = "the engine does not show "+what+"; observing again", left
		return nil
	}
	w.Removed = proof
	if !proof && what == plan.ThePrimary && !w.HasPrimary() { // a create that has no primary yet makes its other parts again
		others, confirmed, err := r.vanishedWith(ctx, rec, w.Run)
		if err != nil {
			return err
		}
		w.Removed = confirmed
		if len(others) > 0 {
			r.hold(rec.ID, &heldSandbox{s.Name, rec.Objects.GetPrimaryId(), w.Run})
			w.Doubt = vanishedTogether(append(others, s.Name)) // each resync compares it with its list: see Listing
			return nil
		}
		r.hold(rec.ID, nil)
	}
	w.Doubt = ""
	return nil
}

// removedIDs returns the recorded IDs of the parts missing in w: the primary's, or if the primary exists those of the other parts.
func removedIDs(o *storev1.Objects, w plan.World) []string {
	if !w.HasPrimary() {
		return []string{o.GetPrimaryId()}
	}
	return objectIDs(o)[1:]
}

// NameOf returns the user's name of a sandbox, else its ID.
func NameOf(sb store.Sandbox) string { return cmp.Or(sb.Name, sb.ID) }

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

// contradiction returns the proof that a part is alive although the engine does not show it; empty: there is none.
func (r *Reader) contradiction(ctx context.Context, rec plan.Record, w plan.World) string {
	if w.HasPrimary() {
		attached := func(ct plan.Container) bool { return ct.Inspected && ct.Alive() && len(ct.NetworkIDs) > 0 }
		if len(w.Networks) == 0 && slices.ContainsFunc(w.Containers, attached) {
			return "a running container is attached to it"
		}
		return ""
	}
	for _, execID := range r.p.Store.ActiveExecs(rec.ID) {
		ex, err := r.p.Store.Exec(ctx, execID)
		if err != nil {
			continue // no evidence either way
		}
		status, err := r.p.Exec(rec.ID, execID, ex.Desired.GetNonce())
		if err == nil && status.Phase == execphase.Running {
			return "exec " + execID + " runs in it"
		}
	}
	return ""
}

// vanishedWith names the other sandboxes that vanished, or none if an operator gave up that of rec: confirmed. Errors: ErrUnavailable if the
// engine lists the primary of rec, which contradicts its absence.
func (r *Reader) vanishedWith(ctx context.Context, rec plan.Record, run *storev1.EngineRun) (names []string, confirmed bool, err error) {
	engine, err := r.p.Store.EngineIdentity(ctx)
	if err != nil {
		return nil, false, err
	}
	if r.isConfirmed(rec.ID, rec.Objects, run, engine) {
		return nil, true, nil
	}
	all, shown, err := r.unlisted(ctx, run, engine)
	if err != nil {
		return nil, false, err
	}
	if shown[rec.ID] {
		return nil, false, fmt.Errorf("the engine lists the primary container again: %w", errdefs.ErrUnavailable)
	}
	return r.beside(rec, all), false, nil
}

// beside names the sandboxes of gone that vanished together with that of rec.
func (r *Reader) beside(rec plan.Record, gone map[string]store.Sandbox) (names []string) {
	for id, sb := range gone {
		stopped := rec.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED || sb.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED
		if id != rec.ID && (!stopped || !r.missedApart(id, rec.ID)) {
			names = append(names, NameOf(sb))
		}
	}
	return names
}

// unlisted returns the live sandboxes, by ID, whose primary is not in shown and has no event of its removal; shown are those whose primary the
// engine lists. It leaves out those that an operator gave up.
func (r *Reader) unlisted(ctx context.Context, run *storev1.EngineRun, engine *storev1.EngineIdentity) (gone map[string]store.Sandbox, shown map[string]bool, err error) {
	if shown, err = r.p.Objects.Primaries(ctx); err != nil {
		return nil, nil, err
	}
	gone, err = r.unshown(ctx, shown, run, engine)
	return gone, shown, err
}

// unshown is unlisted for a list that was read before.
func (r *Reader) unshown(ctx context.Context, shown map[string]bool, run *storev1.EngineRun, engine *storev1.EngineIdentity) (map[string]store.Sandbox, error) {
	gone := map[string]store.Sandbox{}
	for _, id := range r.p.Store.LiveIDs() {
		if shown[id] {
			continue
		}
		sb, err := r.p.Store.Sandbox(ctx, id)
		if errdefs.IsNotFound(err) || errdefs.IsDataLoss(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		objects := sb.Desired.GetObjects()
		if r.lacksPrimary(sb) && !r.isDestroyed(objects.GetPrimaryId()) && !r.isConfirmed(id, objects, run, engine) {
			gone[id] = sb
		}
	}
	return gone, nil
}

// lacksPrimary reports whether a sandbox without its primary should have one.
func (r *Reader) lacksPrimary(sb store.Sandbox) bool {
	begun, _ := r.p.Begun(sb.ID) // an unreadable mark proves nothing, and the record says most of it
	return plan.Lacks(r.p.Record(sb), plan.World{Begun: begun}) == plan.ThePrimary
}
