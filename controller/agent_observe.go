package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// agentView is what one pass sees of one agent.
type agentView struct {
	*Controller
	a      store.Agent
	rec    plan.Record // of its sandbox
	execID string
	world  agentplan.World
	// position is how far the output has been taken in, and unread what follows; end says that nothing comes after it.
	position *storev1.AgentPosition
	unread   []agentLine
	next     *storev1.AgentPosition
	end      bool
	// prompt is the one that the agent works on; nil: none.
	prompt *storev1.AgentPrompt
	// older are the turns to summarize, and summary what came of them.
	older   []byte
	summary string
}

// agentLine is a line of output and where it was read.
type agentLine struct {
	src  dialect.Source
	data []byte
}

// readBytes bounds what one pass takes in, and so does execjournal.MaxLines.
const readBytes = 1 << 20

func (c *Controller) observeAgent(ctx context.Context, a store.Agent, at clock.Look) (*agentView, error) {
	v := &agentView{Controller: c, a: a, execID: agentExec(a)}
	rec, sb, err := c.record(ctx, a.SandboxID)
	if v.rec = rec; err != nil {
		return nil, err
	}
	v.observeSandbox(at)
	v.observePark(ctx, v.rec, at)
	if !c.agentBoard.saves(a.ID) { // what a drain saves is where it is
		v.world.Destination = c.cfg.Store.Destination(a.ID)
	}
	v.world.Found = !c.agentBoard.started(a.ID, v.execID) && a.Status.GetAdoptedIncarnation() != a.Status.GetIncarnation() &&
		a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_STARTING
	if a.Status.GetIncarnation() == 0 {
		return v, nil
	}
	if err := v.observeProcess(ctx); err != nil {
		return nil, err
	}
	if wantRun(a) == storev1.AgentRun_AGENT_RUN_DELETE && !v.world.InTurn {
		return v, nil // nobody will ask for what it still says
	}
	for _, look := range []func(context.Context) error{v.observeOutput, v.observeInbox, v.observeSummary} {
		if err := look(ctx); err != nil {
			return nil, err
		}
	}
	if v.world.Unread {
		return v, nil
	}
	v.observeWords(sb.Spec.GetEnvs())
	return v, v.observeSave(ctx, v.rec, at)
}

func (v *agentView) observeSandbox(at clock.Look) {
	rec := v.rec
	word := enum.Word(rec.State)
	if v.world.SandboxUp = rec.Standing == plan.Live && runs(rec) && !v.absences.doubts(rec.ID); v.world.SandboxUp {
		v.world.UpSince = rec.StateChangedAt
		if at.Hold > 0 {
			v.world.UpSince = at.Now // a clock in doubt makes no turn late
		}
	}
	v.world.SandboxGone = rec.Standing == plan.Gone || rec.Standing == plan.Unswept || rec.Standing == plan.NeverReserved || rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED ||
		rec.Desired == storev1.RunState_RUN_STATE_DELETE
	v.world.Frozen = rec.Standing == plan.Live && isAsleep(rec.Desired, rec.State)
	v.world.SandboxWaits = sandboxWaits(rec)
	if v.world.SandboxGone {
		v.world.SandboxWaits = v.homeless(word)
	}
}

// homeless says what an agent whose sandbox is gone waits for. The end of a delete brings no pass of its agents, so it is told from
// its beginning on.
func (v *agentView) homeless(word string) string {
	switch {
	case v.rec.Standing == plan.NeverReserved: // it was lost with the database, and the agent was not
		word = "not on record"
	case v.rec.Standing != plan.Live || v.rec.Desired == storev1.RunState_RUN_STATE_DELETE:
		word = "deleted"
	}
	if home := v.a.Desired.GetHome(); home != "" {
		return fmt.Sprintf("its sandbox is %s; it waits for the next one named %s", word, home)
	}
	return fmt.Sprintf("its sandbox is %s; `agbox agent move` gives it another", word)
}

// observeProcess reads the exec of the present incarnation.
func (v *agentView) observeProcess(ctx context.Context) error {
	ex, err := v.cfg.Store.Exec(ctx, v.execID)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load its exec: %w", err)
	}
	if end := ex.End; end != nil {
		v.world.Process, v.world.ExitCode = agentplan.Ended, int(end.GetExitCode())
		v.world.Seen = v.agentBoard.saw(v.a.ID, v.execID)
		v.world.Cancelled = end.GetState() == int32(agboxv1.ExecState_EXEC_STATE_CANCELLED)
		v.world.Lost = end.GetErrorCode() == plan.CodeExecLost
		if end.GetErrorCode() == plan.CodeExecStartFailed {
			v.world.Error = end.GetErrorMessage()
		}
		return nil
	}
	status, err := v.cfg.Execs.Look(ex.SandboxID, ex.ID, ex.Desired.GetNonce())
	if err != nil {
		return fmt.Errorf("look at its journal: %w", err)
	}
	v.world.Process = agentplan.Waiting // also when it has ended and the end is not on record yet
	if phaseOf(status) == plan.Running {
		v.world.Process = agentplan.Alive
		v.agentBoard.see(v.a.ID, v.execID)
		if err := v.cfg.Execs.AddAgentWatch(ex.SandboxID, ex.ID); err != nil && !errdefs.IsNotFound(err) {
			v.log.Debug("the output of an agent has no inotify watch; polling it", "agent_id", v.a.ID, "err", err)
			v.agents.AddAfter(v.a.ID, agentPoll)
		}
	}
	return nil
}

// observeOutput reads what follows the position.
func (v *agentView) observeOutput(ctx context.Context) error {
	pos, err := v.cfg.Store.AgentPosition(ctx, v.a.ID)
	if err != nil {
		return fmt.Errorf("load its position: %w", err)
	}
	if pos.GetIncarnation() != v.a.Status.GetIncarnation() {
		pos = &storev1.AgentPosition{Incarnation: v.a.Status.GetIncarnation()}
	}
	v.position = pos
	if pos.GetEnded() {
		return nil
	}
	next := &storev1.AgentPosition{
		Incarnation: pos.GetIncarnation(), StdoutOffset: pos.GetStdoutOffset(), OutboxOffset: pos.GetOutboxOffset(), Decoder: pos.GetDecoder(),
	}
	for _, src := range []struct {
		file   execjournal.Source
		kind   dialect.Source
		offset *int64
	}{{execjournal.Stdout, dialect.Stdout, &next.StdoutOffset}, {execjournal.Outbox, dialect.Outbox, &next.OutboxOffset}} {
		lines, to, err := v.lines(src.file, *src.offset)
		if err != nil {
			return err
		}
		for _, l := range lines {
			v.unread = append(v.unread, agentLine{src.kind, l.Data})
		}
		*src.offset = max(*src.offset, to)
	}
	moved := next.GetStdoutOffset() > pos.GetStdoutOffset() || next.GetOutboxOffset() > pos.GetOutboxOffset()
	v.end = v.world.Process == agentplan.Ended && !moved
	v.next, v.world.Unread = next, moved || v.end
	return nil
}

// lines reads from one file. What a container has damaged is told and passed over: it is its own agent's.
func (v *agentView) lines(src execjournal.Source, from int64) ([]execjournal.Line, int64, error) {
	lines, next, err := v.cfg.Execs.ReadLines(v.a.SandboxID, v.execID, src, from, readBytes)
	if err == nil && next == from && v.world.Process == agentplan.Ended {
		var line execjournal.Line
		var ok bool
		if line, ok, next, err = v.cfg.Execs.ReadRest(v.a.SandboxID, v.execID, src, from); ok {
			lines = append(lines, line)
		}
	}
	switch {
	case errors.Is(err, execjournal.ErrMalformed):
		v.log.Warn("the output of an agent is damaged", "agent_id", v.a.ID, "source", src.String(), "err", err)
	case err != nil:
		return nil, from, fmt.Errorf("read its output: %w", err)
	}
	return lines, next, nil
}

// observeInbox finds out whether the agent has been told all that it is to know. Whoever has told it remembers so for as long as
// the daemon lives; afterwards it is told again, which changes nothing of an inbox that has it.
func (v *agentView) observeInbox(ctx context.Context) (err error) {
	if v.world.Process != agentplan.Alive && v.world.Process != agentplan.Waiting {
		return nil
	}
	if v.a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY {
		if v.prompt, err = v.cfg.Store.ClaimedPrompt(ctx, v.a.ID); err != nil {
			return fmt.Errorf("load its prompt: %w", err)
		}
	}
	v.world.Undelivered = !v.agentBoard.told(v.a.ID, v.message())
	return nil
}

// message names all that the agent is to be told by now.
func (v *agentView) message() string {
	if v.prompt == nil {
		return fmt.Sprintf("%d", v.a.Status.GetIncarnation())
	}
	return fmt.Sprintf("%d %s %d %t %t", v.a.Status.GetIncarnation(), v.prompt.GetPromptId(), v.prompt.GetClaims(), interrupted(v.a), nudged(v.a))
}
