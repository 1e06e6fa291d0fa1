package inspect

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
)

// afterResume returns the steps that a resume with recover would run for a STOPPED or FAILED sandbox, as a pass would decide them, or the
// reason of its refusal. For other states it returns nothing.
func (e *explanation) afterResume() (steps []string, refusal string) {
	failed := e.rec.State == agboxv1.SandboxState_SANDBOX_STATE_FAILED
	stopped := e.rec.State == agboxv1.SandboxState_SANDBOX_STATE_STOPPED && e.rec.Desired == storev1.RunState_RUN_STATE_STOP
	switch {
	case e.rec.Standing != plan.Live || e.rec.Desired == storev1.RunState_RUN_STATE_DELETE || !failed && !stopped:
		return nil, ""
	case e.rec.ErrorCode == plan.CodeCreateFailed:
		return nil, "its create failed, and its containers were removed; delete it, or apply it again with --replace"
	}
	rec, w := e.rec, e.world
	rec.State, rec.Desired, rec.Attempt = agboxv1.SandboxState_SANDBOX_STATE_PENDING, storev1.RunState_RUN_STATE_RUN, storev1.Attempt_ATTEMPT_RESUME
	rec.Recover, rec.Progress = true, &storev1.Progress{HooksDone: rec.Progress.GetHooksDone()}
	w.Stopping = nil
	p := e.reader.Decide(rec, e.sb, w, e.at)
	for _, ev := range p.After.Events {
		if ev.GetEventType() == agboxv1.EventType_SANDBOX_FAILED {
			return nil, e.redact(ev.GetSandboxPhase().GetErrorMessage()) + "; delete it, or apply it again with --replace"
		}
	}
	for _, s := range p.Steps {
		steps = append(steps, e.step(s))
	}
	return steps, ""
}
