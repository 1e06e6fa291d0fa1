package store

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
	"github.com/agbox/agbox/internal/execid"
)

// Transition is a state change requested for an agent.
type Transition struct {
	// Incarnation must be the current one; for SPAWN, the next one.
	Incarnation uint64
	// Version must be the current one; 0: any.
	Version uint64
	Trigger agboxv1.AgentTrigger
	Reason  string
	// Rung is recorded unless it is unspecified.
	Rung agboxv1.AgentRung
	// Spawn is the exec that a SPAWN starts; the store sets exec_id and sandbox_id. Attempts is the new count.
	Spawn    *agboxv1.CreateExecRequest
	Attempts uint32
	// Parked, Saved and NeedsAttention are recorded if set, even if the trigger changes no state. A SPAWN clears them.
	Parked         bool
	Saved          string
	NeedsAttention bool
	// SessionLost is recorded if set: no later process resumes the program's own session.
	SessionLost bool
	// Strike: the process ended by itself, so the prompt of the turn that is cut off may be the cause.
	Strike bool

	outcome string // of a RESULT_RECEIVED
}

// TransitionAgent applies a trigger by the table of package agentstate, in one transaction with all its effects: state, version, the
// transition record, AGENT_STATE_CHANGED; with SPAWN the exec, recorded as CreateExec does; and when a turn is cut off,
// AGENT_ASSISTANT_COMPLETED with outcome interrupted. The prompt of that turn returns to the head of the queue, unless its interrupt was
// requested, or it is held: by the spec, or after maxStrikes. TransitionAgent returns the changed agent. A trigger that changes nothing is not an
// error. Errors: *agentstate.IllegalError; ErrAborted when incarnation or version is not the current one, a SPAWN is no longer wanted, or
// during a drain; SANDBOX_NOT_READY; AGENT_NOT_FOUND; ErrInvalidArgument; ErrDataLoss; ErrUnavailable.
func (s *Store) TransitionAgent(ctx context.Context, id string, tr Transition) (Agent, error) {
	if tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED ||
		(tr.Spawn != nil) != (tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN) {
		return Agent{}, fmt.Errorf("agent %s: %s with exec %v: %w", id, tr.Trigger, tr.Spawn != nil, errdefs.ErrInvalidArgument)
	}
	tr.Reason = valid(tr.Reason)
	return changedAgent(onAgent(ctx, s, id, func(d *agentDraft) (*agentDraft, error) {
		if err := d.fence(tr); err != nil {
			return nil, err
		}
		was := proto.CloneOf(d.Status)
		d.transition(tr)
		if !proto.Equal(was, d.Status) {
			d.save()
		}
		return d, nil
	}))
}

// fence refuses a report about another incarnation or based on an older version.
func (d *agentDraft) fence(tr Transition) error {
	st := d.Status
	want := st.GetIncarnation()
	if tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN {
		want++
	}
	switch {
	case tr.Incarnation != want:
		return agentMoved(d.ID, "%s of incarnation %d, and the present one is %d", tr.Trigger, tr.Incarnation, st.GetIncarnation())
	case tr.Version != 0 && tr.Version != st.GetVersion():
		return agentMoved(d.ID, "%s on version %d, and the present one is %d", tr.Trigger, tr.Version, st.GetVersion())
	}
	return nil
}

// transition applies a trigger to the draft; the request fails if that is not allowed. No other function changes the state of an existing
// agent.
func (d *agentDraft) transition(tr Transition) {
	st := d.Status
	to, changed, err := agentstate.Next(st.GetState(), tr.Trigger, d.tableOptions())
	switch {
	case err != nil:
		d.fail(fmt.Errorf("agent %s: %w", d.ID, err))
		return
	case !changed && tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN:
		return
	case !changed:
		d.remark(tr)
		return
	}
	record := &agboxv1.AgentTransition{Trigger: tr.Trigger, Reason: tr.Reason, Rung: tr.Rung, PromptId: st.GetPromptId()}
	switch {
	case tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN:
		d.fail(d.spawn(tr))
	case tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_CONNECTED:
		st.ReadyAt = d.now.UnixNano()
	case tr.Trigger == agboxv1.AgentTrigger_AGENT_TRIGGER_RESULT_RECEIVED:
		record.Outcome = tr.outcome
		record.Again = d.endTurn(tr.outcome)
	case st.GetState() == agboxv1.AgentState_AGENT_STATE_BUSY:
		record.Outcome = outcomeInterrupted
		record.Again = d.cutTurn(tr)
	}
	d.remark(tr)
	d.enter(to, record)
}

func (d *agentDraft) tableOptions() agentstate.Options {
	return agentstate.Options{ReadyIsProcess: d.Spec.GetReady() == "process"}
}

// begin sets the state of a new agent.
func (d *agentDraft) begin() {
	d.Status.State, d.Status.StateChangedAt = agboxv1.AgentState_AGENT_STATE_PENDING, d.now.UnixNano()
}

// enter stages the state given by the table, its transition record, which enter completes, and its event.
func (d *agentDraft) enter(to agboxv1.AgentState, record *agboxv1.AgentTransition) {
	st := d.Status
	st.Transitions++
	record.Number, record.From, record.To = st.GetTransitions(), st.GetState(), to
	record.Incarnation, record.OccurredAt = st.GetIncarnation(), timestamppb.New(d.now)
	st.State, st.StateChangedAt, st.Reason = to, d.now.UnixNano(), record.GetReason()
	d.wake = true
	d.append(&agboxv1.AgentEvent{
		EventType: agboxv1.AgentEventType_AGENT_STATE_CHANGED,
		Details:   &agboxv1.AgentEvent_Transition{Transition: record},
	})
	bucket := prefixAgentTransitions + d.ID
	if n := record.GetNumber(); n > maxTransitions {
		d.deleteNumbered(bucket, n-maxTransitions)
	}
	d.putNumbered(bucket, record.GetNumber(), record)
}

// remark stages the other fields of a transition, whether or not its trigger changes the state.
func (d *agentDraft) remark(tr Transition) {
	st := d.Status
	if tr.Rung != agboxv1.AgentRung_AGENT_RUNG_UNSPECIFIED {
		st.Rung = tr.Rung
	}
	parked, saved := tr.Parked && !st.GetParked(), tr.Saved != "" && tr.Saved != st.GetSaved()
	if parked {
		st.Parked = true
	}
	if saved {
		st.Saved = tr.Saved
	}
	if tr.NeedsAttention {
		st.NeedsAttention = true
	}
	if tr.SessionLost {
		st.SessionLost = true
	}
	d.wake = d.wake || parked || saved || tr.NeedsAttention
	d.countParked(tr, saved)
}

// spawn starts the next incarnation.
func (d *agentDraft) spawn(tr Transition) error {
	if err := d.gate(); err != nil {
		return err
	}
	st := d.Status
	st.Incarnation++
	st.Attempts, st.LastStartAt, st.ReadyAt = tr.Attempts, d.now.UnixNano(), 0
	st.Parked, st.Saved, st.NeedsAttention = false, "", false
	// An interrupt or nudge requested for the previous process does not apply to this one.
	d.forgetTurn()
	req := proto.CloneOf(tr.Spawn)
	req.SandboxId, req.ExecId = d.SandboxID, execid.ForAgent(d.ID, st.GetIncarnation())
	e := newExec(req)
	if get(d.tx, bucketExecID, []byte(e.ID)) != nil {
		return execExists(e.ID)
	}
	sb := d.sandboxNow(d.SandboxID) // gate has checked that it exists
	d.startExec(sb, e)
	d.put(bucketAgentPosition, d.ID, &storev1.AgentPosition{Incarnation: st.GetIncarnation()})
	return nil
}

// gate returns an error unless the agent is wanted to run, no drain is in progress, and its sandbox is READY.
func (d *agentDraft) gate() error {
	if run := d.Desired.GetRun(); run != storev1.AgentRun_AGENT_RUN_RUN {
		return agentMoved(d.ID, "wanted is %s", run)
	}
	if d.draining() != nil {
		return agentMoved(d.ID, "the daemon drains")
	}
	sb := d.sandboxNow(d.SandboxID)
	switch {
	case sb != nil && sb.Corrupt:
		return corruptSandbox(sb.ID)
	case sb == nil, sb.State != agboxv1.SandboxState_SANDBOX_STATE_READY, sb.Desired.GetRunState() != storev1.RunState_RUN_STATE_RUN:
		return notReadyToExec(d.SandboxID)
	}
	return nil
}
