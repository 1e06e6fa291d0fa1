package controller

import (
	"context"
	"maps"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/store"
)

// An operator's confirmation that sandboxes are gone is on record, so that a daemon which dies right after the call judges by it. It
// is bound to one vanishing: to the container that was not shown, and to the engine and its life that did not show it. A sandbox
// that is seen again loses it, on record too, before anything else is decided of it. So what vanishes later waits for the operator
// again.

// isConfirmed reports whether an operator gave up a sandbox that an engine does not show in the given life.
func (a *absences) isConfirmed(id string, o *storev1.Objects, run *storev1.EngineRun, engine *storev1.EngineIdentity) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.confirmed[id]
	return g != nil && !a.stale[id] && g.GetPrimaryId() == o.GetPrimaryId() &&
		proto.Equal(g.GetEngineRun(), run) && proto.Equal(g.GetEngine(), engine)
}

// confirmable returns the confirmations of those of the vanished sandboxes that are held in a life of the engine.
func (a *absences) confirmable(vanished map[string]store.Sandbox, run *storev1.EngineRun, engine *storev1.EngineIdentity) map[string]*storev1.GivenUp {
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

// confirm takes up what is on record now. What is not held any more was seen, or judged, while it was written, unless another caller
// took up the same.
func (a *absences) confirm(recorded map[string]*storev1.GivenUp) {
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

// hasConfirmation reports whether there may be a confirmation of a sandbox on record.
func (a *absences) hasConfirmation(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.confirmed[id] != nil || a.stale[id]
}

func (a *absences) isStale(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stale[id]
}

func (a *absences) forgotten(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stale, id)
}

// giveUp records that sandboxes that wait for an operator are given up, and has them judged. Errors: ErrUnavailable; then nothing is
// given up.
func (c *Controller) giveUp(ctx context.Context, confirmed map[string]*storev1.GivenUp) error {
	if len(confirmed) == 0 {
		return nil
	}
	lasting := maps.Clone(confirmed)
	maps.DeleteFunc(lasting, func(_ string, g *storev1.GivenUp) bool {
		return g.GetEngineRun().GetEngineStart() == "" // the next life of this engine could not be told from this one
	})
	if err := c.cfg.Store.GiveUp(ctx, lasting); err != nil {
		return err
	}
	c.absences.confirm(confirmed)
	for id := range confirmed {
		c.log.Warn("an operator gave up a sandbox that vanished", "sandbox_id", id)
		c.sandboxes.Add(id)
	}
	return nil
}

// forgetStale takes a confirmation off the record that must judge nothing any more. Errors: ErrUnavailable; then nothing may be
// decided of the sandbox.
func (c *Controller) forgetStale(ctx context.Context, id string) error {
	if !c.absences.isStale(id) {
		return nil
	}
	if err := c.cfg.Store.ForgetGivenUp(ctx, id); err != nil {
		return err
	}
	c.absences.forgotten(id)
	return nil
}

// recallGivenUp takes up the confirmations that an earlier daemon recorded.
func (c *Controller) recallGivenUp() {
	confirmed, err := c.cfg.Store.GivenUp(context.Background())
	if err != nil {
		c.log.Error("what an operator confirmed of vanished sandboxes can't be read; `agbox engine confirm` must say it again", "err", err)
		return
	}
	maps.Copy(c.absences.confirmed, confirmed)
}
