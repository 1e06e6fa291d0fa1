package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
	"github.com/agbox/agbox/controller/agentplan"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/agent/dialect"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/store"
)

// Observer observes agents. It changes nothing: its ports only read.
type Observer struct {
	sessions bool // of programs are copied
	store    Reader
	files    FileReader
	clock    *clock.Clock
	sandbox  func(ctx context.Context, id string) (plan.Record, store.Sandbox, error)
	inDoubt  func(sandboxID string) bool
	memory   func(agentID string) memory
}

// Observation is the result of one pass's observation of one agent.
type Observation struct {
	// Sandbox is the record of its sandbox.
	Sandbox plan.Record
	// ExecID is the exec of its newest incarnation.
	ExecID string
	World  agentplan.World
	// Position is the position up to which the output is recorded; nil: it was not read.
	Position *storev1.AgentPosition

	o  *Observer
	a  store.Agent
	at clock.Reading
	// unread is the output that follows the position, and next the position after it; end: that is the end of the output.
	unread []outputLine
	next   *storev1.AgentPosition
	end    bool
	// prompt is the one that the agent works on; nil: none.
	prompt *storev1.AgentPrompt
	// older are the turns to summarize, and summary is the result.
	older   []byte
	summary string
	// cutOff: its turn is, or was, cut off for the end of its sandbox or for a drain, so its work is saved.
	cutOff bool
	// termAt is when PID 1 got TERM, if others stop the container; zero: they don't.
	termAt time.Time
	// settled are helper commands whose outcome is known, damaged the reasons why output was skipped; the pass settles the former and logs
	// the latter.
	settled []settledHelper
	damaged []damage
}

// outputLine is a line of output and its source.
type outputLine struct {
	src  dialect.Source
	data []byte
}

// damage says that a container has damaged its output.
type damage struct {
	src execjournal.Source
	err error
}

// readBytes bounds the output that one pass reads, as does execjournal.MaxLines.
const readBytes = 1 << 20

// Observe observes an agent, by the clock reading at.
func (o *Observer) Observe(ctx context.Context, a store.Agent, at clock.Reading) (*Observation, error) {
	return o.observe(ctx, a, at, func(store.Exec) {})
}

// Plan returns what a pass would do about the observation.
func (v *Observation) Plan() agentplan.Plan {
	return agentplan.Decide(recordOf(v.a, v.at), v.World, v.at.Now)
}

// observe calls alive with the exec of a live process before it reads the output, so a watch that alive adds misses nothing.
func (o *Observer) observe(ctx context.Context, a store.Agent, at clock.Reading, alive func(store.Exec)) (*Observation, error) {
	v := &Observation{o: o, a: a, at: at, ExecID: execid.ForAgent(a.ID, a.Status.GetIncarnation())}
	rec, sb, err := o.sandbox(ctx, a.SandboxID)
	if v.Sandbox = rec; err != nil {
		return nil, err
	}
	v.observeSandbox()
	if err := v.observeTerm(); err != nil {
		return nil, err
	}
	v.observePark(ctx)
	v.observeCopy()
	v.World.Destination = o.store.Destination(a.ID)
	v.World.Found = v.memory().started != v.ExecID && a.Status.GetAdoptedIncarnation() != a.Status.GetIncarnation() &&
		a.Status.GetState() != agboxv1.AgentState_AGENT_STATE_STARTING
	if a.Status.GetIncarnation() == 0 {
		return v, nil
	}
	if err := v.observeProcess(ctx, alive); err != nil {
		return nil, err
	}
	if a.Desired.GetRun() == storev1.AgentRun_AGENT_RUN_DELETE && !v.World.InTurn {
		return v, v.observeSave() // its output is no longer needed
	}
	for _, observe := range []func(context.Context) error{v.observeOutput, v.observeInbox, v.observeSummary} {
		if err := observe(ctx); err != nil {
			return nil, err
		}
	}
	if v.World.Unread {
		return v, nil
	}
	v.observeWords(sb.Spec.GetEnvs())
	v.observeSession()
	return v, v.observeSave()
}

func (v *Observation) memory() memory { return v.o.memory(v.a.ID) }

func (v *Observation) observeSandbox() {
	rec := v.Sandbox
	if v.World.SandboxUp = rec.Standing == plan.Live && rec.Runs() && !v.o.inDoubt(rec.ID); v.World.SandboxUp {
		v.World.UpSince = v.at.Began(rec.StateChangedAt)
	}
	v.World.SandboxGone = rec.Standing == plan.Gone || rec.Standing == plan.Unswept || rec.Standing == plan.NeverReserved || rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED ||
		rec.Desired == storev1.RunState_RUN_STATE_DELETE
	v.World.Frozen = rec.Standing == plan.Live && isAsleep(rec.Desired, rec.State)
	v.World.SandboxWaits = sandboxWaits(rec)
	if v.World.SandboxGone {
		v.World.SandboxWaits = v.homeless()
	}
}

// observeTerm checks whether others stop the container of a sandbox that should run: PID 1 got TERM.
func (v *Observation) observeTerm() (err error) {
	rec := v.Sandbox
	if rec.Standing != plan.Live || !rec.Runs() {
		return nil
	}
	if v.termAt, err = v.o.files.Terminated(rec.ID); err != nil {
		return fmt.Errorf("read whether PID 1 got TERM: %w", err)
	}
	if !v.termAt.IsZero() {
		v.World.Terminated, v.World.SandboxUp, v.World.SandboxWaits = true, false, "the container of its sandbox is being stopped by others"
	}
	return nil
}

// homeless says what an agent whose sandbox is gone waits for. The end of a delete adds no keys of agents, so a sandbox counts as deleted
// from the request on.
func (v *Observation) homeless() string {
	word := enum.Word(v.Sandbox.State)
	switch {
	case v.Sandbox.Standing == plan.NeverReserved: // the sandbox was lost with the database, the agent was not
		word = "not on record"
	case v.Sandbox.Standing != plan.Live || v.Sandbox.Desired == storev1.RunState_RUN_STATE_DELETE:
		word = "deleted"
	}
	if home := v.a.Desired.GetHome(); home != "" {
		return fmt.Sprintf("its sandbox is %s; it waits for the next one named %s", word, home)
	}
	return fmt.Sprintf("its sandbox is %s; `agbox agent move` gives it another", word)
}

// observeProcess reads the exec of the present incarnation.
func (v *Observation) observeProcess(ctx context.Context, alive func(store.Exec)) error {
	ex, err := v.o.store.Exec(ctx, v.ExecID)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load its exec: %w", err)
	}
	if end := ex.End; end != nil {
		v.World.Process, v.World.ExitCode = agentplan.Ended, int(end.GetExitCode())
		v.World.Seen = v.memory().alive == v.ExecID
		v.World.Cancelled = end.GetState() == int32(agboxv1.ExecState_EXEC_STATE_CANCELLED)
		v.World.Lost = end.GetErrorCode() == plan.CodeExecLost
		v.World.WithContainer = v.World.Lost || end.GetWithContainer()
		v.World.Stopped = (v.World.WithContainer || v.World.Cancelled) && v.Sandbox.Ending() && plan.IsOutside(v.Sandbox.Reason)
		if end.GetErrorCode() == plan.CodeExecStartFailed {
			v.World.Error = end.GetErrorMessage()
		}
		if end.GetOomKilled() {
			v.World.Killed = end.GetErrorMessage()
		}
		return nil
	}
	status, err := v.o.files.Status(ex.SandboxID, ex.ID, ex.Desired.GetNonce())
	if err != nil {
		return fmt.Errorf("read its journal: %w", err)
	}
	v.World.Process = agentplan.Waiting // also if it has ended and its end is not recorded yet
	if status.Phase == execphase.Running {
		v.World.Process = agentplan.Alive
		alive(ex)
	}
	return nil
}

// observeOutput reads the output after the position.
func (v *Observation) observeOutput(ctx context.Context) error {
	pos, err := v.o.store.AgentPosition(ctx, v.a.ID)
	if err != nil {
		return fmt.Errorf("load its position: %w", err)
	}
	if pos.GetIncarnation() != v.a.Status.GetIncarnation() {
		pos = &storev1.AgentPosition{Incarnation: v.a.Status.GetIncarnation()}
	}
	v.Position = pos
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
			v.unread = append(v.unread, outputLine{src.kind, l.Data})
		}
		*src.offset = max(*src.offset, to)
	}
	moved := next.GetStdoutOffset() > pos.GetStdoutOffset() || next.GetOutboxOffset() > pos.GetOutboxOffset()
	v.end = v.World.Process == agentplan.Ended && !moved
	v.next, v.World.Unread = next, moved || v.end
	return nil
}

// lines reads from one file. It skips output that the container has damaged: that concerns only its own agent.
func (v *Observation) lines(src execjournal.Source, from int64) ([]execjournal.Line, int64, error) {
	lines, next, err := v.o.files.ReadLines(v.a.SandboxID, v.ExecID, src, from, readBytes, v.World.Process == agentplan.Ended)
	switch {
	case errors.Is(err, execjournal.ErrMalformed):
		v.damaged = append(v.damaged, damage{src, err})
	case err != nil:
		return nil, from, fmt.Errorf("read its output: %w", err)
	}
	return lines, next, nil
}

// observeInbox checks whether the inbox holds everything that the agent must receive. A daemon remembers until it ends what it delivered;
// the next daemon delivers again, which does not change an inbox that has it.
func (v *Observation) observeInbox(ctx context.Context) (err error) {
	if v.World.Process != agentplan.Alive && v.World.Process != agentplan.Waiting {
		return nil
	}
	if v.a.Status.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY {
		if v.prompt, err = v.o.store.ClaimedPrompt(ctx, v.a.ID); err != nil {
			return fmt.Errorf("load its prompt: %w", err)
		}
	}
	v.World.Undelivered = v.memory().delivered != v.message()
	return nil
}

// message returns a key that identifies everything the agent must have received by now.
func (v *Observation) message() string {
	if v.prompt == nil {
		return fmt.Sprintf("%d", v.a.Status.GetIncarnation())
	}
	return fmt.Sprintf("%d %s %d %t %t", v.a.Status.GetIncarnation(), v.prompt.GetPromptId(), v.prompt.GetClaims(), interrupted(v.a), nudged(v.a))
}
