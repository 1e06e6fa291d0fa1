package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/message"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/internal/session"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Bounds of copying sessions; part of the contract.
const (
	// saveSessionTime bounds a save: prompts wait for it, and the stop of a sandbox.
	saveSessionTime    = 10 * time.Second
	restoreSessionTime = 60 * time.Second
	// sessionTries is how often a copy is tried, copyRetry apart, before its failure is recorded.
	sessionTries = 3
	copyRetry    = time.Second
)

// Sessions keeps copies of the sessions of agents' programs outside their sandboxes: *session.Keeper.
type Sessions interface {
	Save(ctx context.Context, r session.Request) (session.Saved, error)
	Restore(ctx context.Context, r session.Request) error
	Remove(agentID string) error
}

// unsaved reports whether a turn of an agent has ended since the session of its program was last saved.
func (o *Observer) unsaved(a store.Agent) bool {
	idle := a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_IDLE
	return o.sessions && idle && a.Status.GetSession().GetTried() < a.Status.GetResultSequence() && len(validate.SessionPaths(a.Spec)) > 0
}

// observeSession checks whether the session of its program is to be saved now: after each turn, and at the requested end of a process in a turn.
// While a turn runs it is not saved, and not through a container that does not run.
func (v *Observation) observeSession() {
	st, rec, w := v.a.Status, v.Sandbox, &v.World
	down := rec.Standing != plan.Live || rec.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED ||
		rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED || rec.State == agboxv1.SandboxState_SANDBOX_STATE_PENDING
	if !v.o.sessions || down || w.Frozen || w.WithContainer || v.o.inDoubt(rec.ID) || len(validate.SessionPaths(v.a.Spec)) == 0 {
		return
	}
	cut := st.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY && w.Process == agentplan.Ended && w.Cancelled
	w.Unsaved = v.o.unsaved(v.a) || cut && st.GetSession().GetTried() < st.GetLastSequence()
}

// observeCopy checks whether the saved session is elsewhere: its sandbox is another one than that of the last save.
func (v *Observation) observeCopy() {
	saved := v.a.Status.GetSession()
	v.World.Unrestored = v.o.sessions && saved.GetSavedAt() != 0 && saved.GetSandboxId() != v.a.SandboxID &&
		saved.GetSessionId() == v.a.Status.GetSessionId()
}

func (p *pass) sessionRequest(ctx context.Context) session.Request {
	r := session.Request{
		AgentID: p.a.ID, SandboxID: p.a.SandboxID, SessionID: p.a.Status.GetSessionId(), Paths: validate.SessionPaths(p.a.Spec),
		Named: validate.NamedSessions(p.a.Spec), Home: p.a.Spec.GetEnvs()["HOME"],
	}
	for _, id := range p.o.store.AgentsOf(p.a.SandboxID) {
		if other, err := p.o.store.Agent(ctx, id); err == nil && id != p.a.ID {
			r.Others = append(r.Others, other.Status.GetSessionId())
		}
	}
	return r
}

// saveSession starts to save the session, unless that is under way. The commit of the outcome adds the key; if there is none, the next pass
// starts again.
func (p *pass) saveSession(ctx context.Context) error {
	r, n := p.sessionRequest(ctx), p.a.Status.GetIncarnation()
	rec := &storev1.AgentSessionRecord{SessionId: r.SessionID, Through: p.a.Status.GetLastSequence(), Tried: p.a.Status.GetLastSequence()}
	return p.copySession(ctx, agentplan.SaveSession, saveSessionTime, func(ctx context.Context) error {
		saved, err := p.r.cfg.Sessions.Save(ctx, r)
		rec.Files, rec.Bytes = uint64(saved.Files), uint64(saved.Bytes)
		return err
	}, func(ctx context.Context, problem string) error {
		rec.Problem = problem
		return p.r.cfg.Store.RecordSession(ctx, r.AgentID, n, rec)
	})
}

// restoreSession starts to put the saved session into the files of the sandbox. A sandbox that stops meanwhile is no failure.
func (p *pass) restoreSession(ctx context.Context) error {
	r := p.sessionRequest(ctx)
	return p.copySession(ctx, agentplan.RestoreSession, restoreSessionTime, func(ctx context.Context) error {
		return p.r.cfg.Sessions.Restore(ctx, r)
	}, func(ctx context.Context, problem string) error {
		if problem != "" {
			rec, _, err := p.r.cfg.Sandbox(ctx, r.SandboxID)
			if err != nil || rec.Standing != plan.Live || !rec.Runs() {
				return err
			}
		}
		return p.r.cfg.Store.RecordSessionRestored(ctx, r.AgentID, r.SandboxID, problem)
	})
}

// copySession runs a copy beside the passes, and records its outcome: a problem in a sentence, or "".
func (p *pass) copySession(ctx context.Context, kind agentplan.Kind, limit time.Duration, do func(context.Context) error, record func(context.Context, string) error) error {
	id, log := p.a.ID, p.r.cfg.Logger
	_, err := p.r.copies.Start(ctx, queue.Operation[agentplan.Kind]{ID: id, Kind: kind}, 0, func(ctx context.Context) error {
		err := trying(ctx, limit, do)
		if ctx.Err() != nil {
			return nil // the daemon ends, or the agent is removed
		}
		problem := ""
		if err != nil {
			problem = message.Of(err)
			log.Warn("the session of an agent's program is not copied", "agent_id", id, "step", kind, "err", err)
		}
		if err := record(ctx, problem); err != nil && !errdefs.IsAborted(err) && !errdefs.IsNotFound(err) { // then it has another state, with passes of its own
			log.Error("the copy of a session is not recorded", "agent_id", id, "step", kind, "err", err)
			return errors.Join(err, wait.For(ctx, copyRetry))
		}
		return nil
	})
	return err
}

// trying calls do until it succeeds, it fails for good, it was called sessionTries times, or the time is over.
func trying(ctx context.Context, limit time.Duration, do func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took longer than %s", limit))
	defer cancel()
	for n := range sessionTries {
		if n > 0 && wait.For(ctx, copyRetry) != nil {
			return err
		}
		if err = do(ctx); err == nil || errdefs.IsResourceExhausted(err) || errdefs.IsNotFound(err) {
			return err
		}
	}
	return err
}

// removeSession removes the copies of an agent. wait: one is being made; its end adds the key.
func (p *pass) removeSession() (wait bool, err error) {
	if p.r.cfg.Sessions == nil {
		return false, nil
	}
	for _, kind := range []agentplan.Kind{agentplan.SaveSession, agentplan.RestoreSession} {
		p.r.copies.Drop(p.a.ID, kind)
		if len(p.r.copies.Subjects(p.a.ID, kind)) > 0 {
			return true, nil
		}
	}
	return false, p.r.cfg.Sessions.Remove(p.a.ID)
}
