package store

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// mark says of all agents that live and are wanted to, whether they come back by themselves.
func (t *txn) mark(parked bool) error {
	for _, id := range t.agentIDs() {
		a := t.agentBefore(id)
		if a.Corrupt || !a.lives() || a.Status.GetParked() == parked || a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_RUN {
			continue
		}
		d := t.draft(a)
		d.Status.Parked, d.wake = parked, true
		if err := d.save(); err != nil {
			return err
		}
	}
	return nil
}

// agentIDs are those of all agents in no order.
func (t *txn) agentIDs() []string {
	var ids []string
	for id := range t.index.agents {
		if _, changed := t.group.agents[id]; !changed {
			ids = append(ids, id)
		}
	}
	for id, a := range t.group.agents {
		if a != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// countParked counts, while something drains, an agent that a drain has parked, and what was made of its work.
func (d *agentDraft) countParked(tr Transition, saved bool) error {
	if tr.Trigger != agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED {
		return nil
	}
	rec := d.draining()
	if rec == nil {
		return nil
	}
	if d.lives() {
		rec.Parked++
	}
	switch {
	case saved && tr.Saved == Saved:
		rec.Saved++
	case saved && tr.Saved == NotSaved:
		rec.NotSaved++
	case !d.lives():
		return nil
	}
	return d.setDrain(rec)
}
