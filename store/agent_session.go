package store

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// RecordSession records the outcome of an attempt to save the session of an agent's program. rec describes the saved session, or has only
// tried and problem; then the record of the last saved one stays, and AGENT_SESSION_NOT_SAVED is appended if the problem is a new one.
// Errors: ErrAborted when incarnation is not the current one or the agent has no process; AGENT_NOT_FOUND; ErrDataLoss; ErrUnavailable.
func (s *Store) RecordSession(ctx context.Context, id string, incarnation uint64, rec *storev1.AgentSessionRecord) error {
	return s.update(ctx, func(t *txn) error {
		d, err := t.agent(id)
		if err != nil {
			return err
		}
		if d.Status.GetIncarnation() != incarnation || !d.lives() {
			return agentMoved(id, "incarnation %d is not the present one", incarnation)
		}
		d.recordSession(rec)
		d.save()
		return nil
	})
}

func (d *agentDraft) recordSession(rec *storev1.AgentSessionRecord) {
	d.wake = true
	problem := valid(rec.GetProblem())
	if problem == "" {
		saved := proto.CloneOf(rec)
		saved.SandboxId = d.SandboxID
		if saved.GetFiles() > 0 {
			saved.SavedAt = d.now.UnixNano()
		}
		d.Status.Session = saved
		return
	}
	last := cmp.Or(proto.CloneOf(d.Status.GetSession()), &storev1.AgentSessionRecord{})
	if problem != last.GetProblem() {
		d.appendSession(agboxv1.AgentEventType_AGENT_SESSION_NOT_SAVED, problem)
	}
	last.Problem, last.Tried = problem, max(rec.GetTried(), d.Status.GetLastSequence()) // its own event is no reason to try again
	d.Status.Session = last
}

func (d *agentDraft) appendSession(typ agboxv1.AgentEventType, problem string) {
	had := d.Status.GetSession()
	d.append(&agboxv1.AgentEvent{EventType: typ, Details: &agboxv1.AgentEvent_Session{Session: &agboxv1.AgentSession{
		Files: had.GetFiles(), Bytes: had.GetBytes(), Problem: problem,
	}}})
}

// RecordSessionRestored records that the saved session was put into the files of an agent's sandbox, or, with a problem, that it can't be: then
// the next process gets the conversation instead. Errors: ErrAborted when the agent is in another sandbox or has a process; AGENT_NOT_FOUND;
// ErrDataLoss; ErrUnavailable.
func (s *Store) RecordSessionRestored(ctx context.Context, id, sandboxID, problem string) error {
	return s.update(ctx, func(t *txn) error {
		d, err := t.agent(id)
		switch {
		case err != nil:
			return err
		case d.SandboxID != sandboxID || d.lives():
			return agentMoved(id, "it is not in sandbox %s, or has a process", sandboxID)
		case d.Status.GetSession().GetSandboxId() == sandboxID, d.Status.GetSession() == nil:
			return nil // recorded before
		}
		d.wake = true
		if problem == "" {
			d.Status.Session.SandboxId = sandboxID
			d.appendSession(agboxv1.AgentEventType_AGENT_SESSION_RESTORED, "")
		} else {
			d.appendSession(agboxv1.AgentEventType_AGENT_SESSION_NOT_RESTORED, valid(problem))
			d.forgetSession()
		}
		d.save()
		return nil
	})
}

// forgetSession lets the next process get the conversation from the daemon.
func (d *agentDraft) forgetSession() {
	d.Status.SessionId, d.Status.SessionLost, d.Status.Session = "", false, nil
}

// IsSessionCurrent reports whether the saved session of an agent is the one that its program would resume, with every turn that has a result.
// A turn that was cut off may be missing: its prompt is given again.
func (a *Agent) IsSessionCurrent() bool {
	st := a.Status
	saved := st.GetSession()
	return saved.GetSavedAt() != 0 && saved.GetSessionId() == st.GetSessionId() && saved.GetThrough() >= st.GetResultSequence() && !st.GetSessionLost()
}
