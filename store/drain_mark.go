package store

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// mark says how a change of a drain changes the automatic-restart marks of agents that have a process and are wanted to run.
type mark int

const (
	leaveMarks mark = iota
	setMarks
	takeMarks
)

// recordDrain records a drain phase in the histories of the agents that it concerns, and changes their restart marks.
func (t *txn) recordDrain(rec *storev1.DrainRecord, phase agboxv1.DrainPhase, m mark) {
	for _, id := range latestKeys(t.group.agents, t.index.agents) {
		a := t.agentBefore(id)
		if a.Corrupt || a.Desired.GetRun() != storev1.AgentRun_AGENT_RUN_RUN || !a.lives() && !a.Status.GetParked() {
			continue
		}
		d := t.draft(a)
		d.wake = true // a pass that worked on the older version aborts; this enqueues the next one
		if m != leaveMarks && d.lives() {
			d.Status.Parked = m == setMarks
		}
		d.append(&agboxv1.AgentEvent{
			EventType: agboxv1.AgentEventType_AGENT_DRAIN_PHASE,
			Details:   &agboxv1.AgentEvent_Drain{Drain: &agboxv1.AgentDrain{Mode: rec.GetMode(), Phase: phase, Reason: rec.GetReason()}},
		})
		d.save()
	}
}

// countParked counts, during a drain, an agent parked by it and the result of saving its work.
func (d *agentDraft) countParked(tr Transition, saved bool) {
	if tr.Trigger != agboxv1.AgentTrigger_AGENT_TRIGGER_DRAIN_PARKED {
		return
	}
	rec := d.draining()
	if rec == nil {
		return
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
		return
	}
	d.setDrain(rec)
}
