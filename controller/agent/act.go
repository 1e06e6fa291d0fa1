package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/controller/queue"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/store"
)

// pass is one pass over one agent: its observation, and the Reconciler that acts on it.
type pass struct {
	*Observation
	r *Reconciler
}

// observe observes an agent for a pass. It adds a watch on the output of a live process before it reads that output, and settles helper
// commands whose outcome is known.
func (r *Reconciler) observe(ctx context.Context, a store.Agent, at clock.Reading) (*pass, error) {
	v, err := r.observer.observe(ctx, a, at, func(ex store.Exec) { r.follow(a.ID, ex) })
	if err != nil {
		return nil, err
	}
	for _, d := range v.damaged {
		r.cfg.Logger.Warn("the output of an agent is damaged", "agent_id", a.ID, "source", d.src.String(), "err", d.err)
	}
	for _, s := range v.settled {
		if err := r.settle(s); err != nil {
			return nil, fmt.Errorf("settle a command that has ended: %w", err)
		}
	}
	return &pass{v, r}, nil
}

// follow records that a process runs, and watches its output.
func (r *Reconciler) follow(id string, ex store.Exec) {
	r.scratch.Change(id, func(s *memory) { s.alive = ex.ID })
	if err := r.cfg.Files.AddAgentWatch(ex.SandboxID, ex.ID); err != nil && !errdefs.IsNotFound(err) {
		r.cfg.Logger.Debug("the output of an agent has no inotify watch; polling it", "agent_id", id, "err", err)
		r.cfg.Queue.AddAfter(id, pollInterval)
	}
}

// act runs the step of a plan. Each step may be repeated, also after a crash. The commit of a change in the store adds the key again.
func (p *pass) act(ctx context.Context, decision agentplan.Plan) error {
	db, id := p.r.cfg.Store, p.a.ID
	step := map[agentplan.Kind]func() error{
		agentplan.Wait:       func() error { return nil },
		agentplan.Read:       func() error { return p.read(ctx) },
		agentplan.Spawn:      func() error { return p.spawn(ctx, decision) },
		agentplan.Claim:      func() error { return p.claim(ctx) },
		agentplan.Deliver:    p.deliver,
		agentplan.Transition: func() error { return p.transition(ctx, decision) },
		agentplan.End: func() error { // it may have ended meanwhile
			return queue.Ignore(second(db.RequestCancel(ctx, p.ExecID)), errdefs.IsFailedPrecondition, errdefs.IsNotFound)
		},
		agentplan.Nudge: func() error { return second(db.RequestNudge(ctx, id)) },
		agentplan.Interrupt: func() error { // its turn may have ended meanwhile
			return queue.Ignore(second(db.RequestInterruptToSave(ctx, id)), errdefs.IsFailedPrecondition)
		},
		agentplan.Keep: func() error {
			var err error
			if p.World.Unsaved { // beside the command: its sandbox waits for both, and not for long
				err = p.saveSession(ctx)
			}
			return errors.Join(err, p.r.startHelper(p.saveHelper()))
		},
		agentplan.Summarize:      p.summarize,
		agentplan.SaveSession:    func() error { return p.saveSession(ctx) },
		agentplan.RestoreSession: func() error { return p.restoreSession(ctx) },
		agentplan.Move:           func() error { return p.move(ctx) },
		agentplan.Adopt:          func() error { return db.AdoptAgent(ctx, id, p.a.Status.GetIncarnation()) },
		agentplan.Remove:         func() error { return p.remove(ctx) },
	}[decision.Kind]
	if step == nil {
		return fmt.Errorf("unknown step %s", decision.Kind)
	}
	return step()
}

func second[T any](_ T, err error) error { return err }

func (p *pass) remove(ctx context.Context) error {
	p.r.cfg.Files.DropAgentWatch(p.a.SandboxID, p.ExecID)
	if wait, err := p.removeSession(); wait || err != nil {
		return err
	}
	return p.r.cfg.Store.RemoveAgent(ctx, p.a.ID)
}

// read ingests the observed output.
func (p *pass) read(ctx context.Context) error {
	var out []dialect.Output
	decoder := dialect.Open(format(p.a.Spec), p.Position.GetDecoder())
	for _, l := range p.unread {
		out = append(out, decoder.Line(l.src, l.data)...)
	}
	if p.end {
		out = append(out, decoder.End()...)
	}
	p.next.Decoder, p.next.Ended = decoder.State(), p.end
	err := p.ingest(ctx, p.next, out)
	if err == nil && p.end {
		p.wakeStop()
	}
	return err
}

// ingest records decoded output and the position after it, in one transaction.
func (p *pass) ingest(ctx context.Context, next *storev1.AgentPosition, list []dialect.Output) error {
	var out []store.AgentOutput
	for _, o := range list {
		out = append(out, store.AgentOutput(o))
	}
	return p.r.cfg.Store.Ingest(ctx, p.a.ID, p.a.Status.GetIncarnation(), p.Position, next, out)
}

func (p *pass) move(ctx context.Context) error {
	p.r.cfg.Files.DropAgentWatch(p.a.SandboxID, p.ExecID)
	err := p.r.cfg.Store.MoveAgent(ctx, p.a.ID, p.a.Status.GetVersion())
	if err == nil {
		p.r.cfg.Logger.Info("agent is moved", "agent_id", p.a.ID, "from_sandbox_id", p.a.SandboxID, "to_sandbox_id", p.World.Destination)
	}
	return err
}

func format(spec *agboxv1.AgentSpec) string { return cmp.Or(spec.GetFormat(), dialect.Native) }

func (p *pass) transition(ctx context.Context, decision agentplan.Plan) error {
	_, err := p.r.cfg.Store.TransitionAgent(ctx, p.a.ID, store.Transition{
		Incarnation: p.a.Status.GetIncarnation(), Version: p.a.Status.GetVersion(), Trigger: decision.Trigger, Reason: decision.Reason,
		Parked: decision.Parked, Saved: string(decision.Saved), NeedsAttention: decision.NeedsAttention, SessionLost: decision.SessionLost,
		Strike: decision.Strike,
	})
	if err == nil {
		p.wakeStop()
		p.r.cfg.Logger.Info("agent changed", "agent_id", p.a.ID, "trigger", decision.Trigger.String(), "reason", decision.Reason,
			"incarnation", p.a.Status.GetIncarnation())
	}
	return err
}

// spawn records the next incarnation together with its exec; the passes over that exec start it.
func (p *pass) spawn(ctx context.Context, decision agentplan.Plan) error {
	n := p.a.Status.GetIncarnation() + 1
	rung := p.rung()
	command, _ := dialect.Launch(format(p.a.Spec), p.launch(n, rung))
	_, err := p.r.cfg.Store.TransitionAgent(ctx, p.a.ID, store.Transition{
		Incarnation: n, Version: p.a.Status.GetVersion(), Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN,
		Reason: "started", Rung: rung, Attempts: decision.Attempts,
		Spawn: &agboxv1.CreateExecRequest{
			SandboxId: p.a.SandboxID, Command: command, Cwd: p.a.Spec.GetWorkingDir(), EnvOverrides: environment(p.a, n),
		},
	})
	if err == nil {
		p.r.scratch.Change(p.a.ID, func(s *memory) { s.started = execid.ForAgent(p.a.ID, n) })
		p.r.cfg.Logger.Info("agent is started", "agent_id", p.a.ID, "incarnation", n, "rung", rung.String())
	}
	return queue.Ignore(err, errdefs.IsFailedPrecondition) // its sandbox is no longer up; the sandbox's next state adds the key
}

// environment returns the environment of the programs of an incarnation.
func environment(a store.Agent, n uint64) map[string]string {
	env := map[string]string{
		"AGBOX_AGENT_ID": a.ID, "AGBOX_AGENT_NAME": a.Name, "AGBOX_EXEC_ID": execid.ForAgent(a.ID, n),
		"AGBOX_INCARNATION": fmt.Sprint(n),
	}
	maps.Copy(env, a.Spec.GetEnvs())
	return env
}

// rung returns how the next incarnation receives its past. It is the same in every pass, and recorded.
func (p *pass) rung() agboxv1.AgentRung {
	mode := p.a.Spec.GetContext().GetMode()
	switch {
	case p.a.Status.GetIncarnation() == 0, mode == "none":
		return agboxv1.AgentRung_AGENT_RUNG_COLD
	case mode != "inject" && dialect.CanResume(format(p.a.Spec)) && p.a.Status.GetSessionId() != "" && !p.a.Status.GetSessionLost():
		return agboxv1.AgentRung_AGENT_RUNG_NATIVE
	}
	return agboxv1.AgentRung_AGENT_RUNG_CONTEXT
}

// launch returns how an incarnation is started. A later daemon computes the same result until the incarnation is ready.
func (v *Observation) launch(n uint64, rung agboxv1.AgentRung) dialect.LaunchParams {
	l := dialect.LaunchParams{Command: v.a.Spec.GetCommand(), Cwd: cmp.Or(v.a.Spec.GetWorkingDir(), plan.WorkingDir)}
	if rung == agboxv1.AgentRung_AGENT_RUNG_NATIVE {
		l.SessionID, l.Resume = v.a.Status.GetSessionId(), true
		return l
	}
	l.SessionID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(execid.ForAgent(v.a.ID, n))).String()
	return l
}

// wakeStop enqueues a sandbox whose stop may have waited for this step.
func (p *pass) wakeStop() {
	if p.World.Ending {
		p.r.cfg.EnqueueSandbox(p.a.SandboxID)
	}
}
