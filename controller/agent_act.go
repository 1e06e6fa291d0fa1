package controller

import (
	"context"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/internal/agent/agentstate"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/store"
)

// take takes the step of a plan. Each may be repeated, after a crash too. What it changes in the store brings about the next
// pass.
func (v *agentView) take(ctx context.Context, p agentplan.Plan) error {
	switch p.Kind {
	case agentplan.Wait:
		return nil
	case agentplan.Read:
		return v.read(ctx)
	case agentplan.Spawn:
		return v.spawn(ctx, p)
	case agentplan.Claim:
		return v.claim(ctx)
	case agentplan.Deliver:
		return v.deliver(ctx)
	case agentplan.Transition:
		return v.transition(ctx, p)
	case agentplan.End:
		_, err := v.cfg.Store.RequestCancel(ctx, v.execID)
		if errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) {
			return nil // it has ended meanwhile
		}
		return err
	case agentplan.Nudge:
		_, err := v.cfg.Store.RequestNudge(ctx, v.a.ID)
		return err
	case agentplan.Freeze:
		_, err := v.cfg.Store.RequestFreeze(ctx, v.a.ID)
		if errdefs.IsFailedPrecondition(err) {
			return nil // its turn has ended meanwhile
		}
		return err
	case agentplan.Keep:
		return v.keep()
	case agentplan.Summarize:
		return v.summarize()
	case agentplan.Move:
		return v.move(ctx)
	case agentplan.Adopt:
		return v.cfg.Store.AdoptAgent(ctx, v.a.ID, v.a.Status.GetIncarnation())
	case agentplan.Remove:
		v.cfg.Execs.DropAgentWatch(v.a.SandboxID, v.execID)
		return v.cfg.Store.RemoveAgent(ctx, v.a.ID)
	}
	return fmt.Errorf("unknown step %s", p.Kind)
}

// read takes in what was observed: the events and the position, in one transaction.
func (v *agentView) read(ctx context.Context) error {
	var out []store.AgentOutput
	decoder := dialect.Open(format(v.a.Spec), v.position.GetDecoder())
	add := func(list []dialect.Output) {
		for _, o := range list {
			out = append(out, store.AgentOutput(o))
		}
	}
	for _, l := range v.unread {
		add(decoder.Line(l.src, l.data))
	}
	if v.end {
		add(decoder.End())
	}
	v.next.Decoder, v.next.Ended = decoder.State(), v.end
	err := v.cfg.Store.Ingest(ctx, v.a.ID, v.a.Status.GetIncarnation(), v.position, v.next, out)
	if err == nil && v.end {
		v.stopGoesOn()
	}
	return err
}

func (v *agentView) move(ctx context.Context) error {
	v.cfg.Execs.DropAgentWatch(v.a.SandboxID, v.execID)
	err := v.cfg.Store.MoveAgent(ctx, v.a.ID, v.a.Status.GetVersion())
	if err == nil {
		v.log.Info("agent is moved", "agent_id", v.a.ID, "from_sandbox_id", v.a.SandboxID, "to_sandbox_id", v.world.Destination)
	}
	return err
}

func format(spec *agboxv1.AgentSpec) string { return orElse(spec.GetFormat(), dialect.Native) }

func (v *agentView) transition(ctx context.Context, p agentplan.Plan) error {
	_, err := v.cfg.Store.TransitionAgent(ctx, v.a.ID, store.Transition{
		Incarnation: v.a.Status.GetIncarnation(), Version: v.a.Status.GetVersion(), Trigger: p.Trigger, Reason: p.Reason,
		Parked: p.Parked, Saved: string(p.Saved), NeedsAttention: p.NeedsAttention, SessionLost: p.SessionLost,
	})
	if err == nil {
		v.stopGoesOn()
		v.log.Info("agent changed", "agent_id", v.a.ID, "trigger", p.Trigger.String(), "reason", p.Reason,
			"incarnation", v.a.Status.GetIncarnation())
	}
	return err
}

// spawn records the next incarnation together with its exec, which the exec's own passes start.
func (v *agentView) spawn(ctx context.Context, p agentplan.Plan) error {
	n := v.a.Status.GetIncarnation() + 1
	rung := v.rung()
	command, _ := dialect.Launch(format(v.a.Spec), v.launch(n, rung))
	_, err := v.cfg.Store.TransitionAgent(ctx, v.a.ID, store.Transition{
		Incarnation: n, Version: v.a.Status.GetVersion(), Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN,
		Reason: "started", Rung: rung, Attempts: p.Attempts,
		Spawn: &agboxv1.CreateExecRequest{
			SandboxId: v.a.SandboxID, Command: command, Cwd: v.a.Spec.GetWorkingDir(), EnvOverrides: agentEnv(v.a, n),
		},
	})
	if errdefs.IsFailedPrecondition(err) {
		return nil // its sandbox is not up any more; its next state adds the key
	}
	if err == nil {
		v.agentBoard.start(v.a.ID, agentstate.ExecID(v.a.ID, n))
		v.log.Info("agent is started", "agent_id", v.a.ID, "incarnation", n, "rung", rung.String())
	}
	return err
}

// agentEnv is what the programs of an incarnation find in their environment.
func agentEnv(a store.Agent, n uint64) map[string]string {
	env := map[string]string{
		"AGBOX_AGENT_ID": a.ID, "AGBOX_AGENT_NAME": a.Name, "AGBOX_EXEC_ID": agentstate.ExecID(a.ID, n),
		"AGBOX_INCARNATION": fmt.Sprint(n),
	}
	maps.Copy(env, a.Spec.GetEnvs())
	return env
}

// rung is how the next incarnation gets its past: one way, and it is recorded.
func (v *agentView) rung() agboxv1.AgentRung {
	mode := v.a.Spec.GetContext().GetMode()
	switch {
	case v.a.Status.GetIncarnation() == 0, mode == "none":
		return agboxv1.AgentRung_AGENT_RUNG_COLD
	case mode != "inject" && dialect.CanResume(format(v.a.Spec)) && v.a.Status.GetSessionId() != "" && !v.a.Status.GetSessionLost():
		return agboxv1.AgentRung_AGENT_RUNG_NATIVE
	}
	return agboxv1.AgentRung_AGENT_RUNG_CONTEXT
}

// launch says how an incarnation is started. Until it is ready it says the same after a crash.
func (v *agentView) launch(n uint64, rung agboxv1.AgentRung) dialect.LaunchParams {
	p := dialect.LaunchParams{Command: v.a.Spec.GetCommand(), Cwd: orElse(v.a.Spec.GetWorkingDir(), workingDir)}
	if rung == agboxv1.AgentRung_AGENT_RUNG_NATIVE {
		p.SessionID, p.Resume = v.a.Status.GetSessionId(), true
		return p
	}
	p.SessionID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(agentstate.ExecID(v.a.ID, n))).String()
	return p
}
