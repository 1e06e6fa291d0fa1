package store

import (
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

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
	d.Desired.InterruptPromptId, d.Desired.InterruptToSave, d.Desired.NudgePromptId = "", false, ""
	req := proto.CloneOf(tr.Spawn)
	req.SandboxId, req.ExecId = d.SandboxID, execid.ForAgent(d.ID, st.GetIncarnation())
	e, err := newExec(req)
	if err != nil {
		return err
	}
	if get(d.tx, bucketExecID, []byte(e.ID)) != nil {
		return execExists(e.ID)
	}
	sb := d.sandboxNow(d.SandboxID) // gate has checked that it exists
	if err := d.startExec(sb, e); err != nil {
		return err
	}
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
