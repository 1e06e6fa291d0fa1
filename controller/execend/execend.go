// Package execend converts the journal of an ended exec to the record of its end, for the pass over an exec and for a rebuild.
package execend

import (
	"fmt"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Of returns the record of the end in a journal whose state is StateEnded. stopWanted: a stop of the container counts as a cancellation,
// because the end of the exec or of its sandbox was requested.
func Of(j execjournal.Journal, stopWanted bool) *storev1.ExecEnd {
	end := &storev1.ExecEnd{
		StartedAt: j.StartedAtNanos, EndedAt: j.EndedAtNanos, ExitCode: int32(j.ExitCode), OomKilled: j.OOM, OomKills: j.OOMKills,
		StdoutDroppedBytes: j.StdoutDroppedBytes, StderrDroppedBytes: j.StderrDroppedBytes, WithContainer: j.Stopped,
	}
	fail := func(code, message string) {
		end.State, end.ErrorCode, end.ErrorMessage = int32(agboxv1.ExecState_EXEC_STATE_FAILED), code, message
	}
	meanwhile := plan.Meanwhile(j.OOMKills, j.OOMLimitBytes)
	switch {
	case j.ErrorCode != "":
		fail(plan.CodeExecStartFailed, j.Error)
	case j.Cancelled, j.Stopped && stopWanted:
		end.State = int32(agboxv1.ExecState_EXEC_STATE_CANCELLED)
	case j.TimeoutMillis != 0:
		fail(plan.CodeExecTimeout, fmt.Sprintf("the command was ended: its timeout of %s has passed", time.Duration(j.TimeoutMillis)*time.Millisecond)+meanwhile)
	case j.LogLimit:
		fail(plan.CodeExecLogLimit, "the command was ended: its output reached artifacts.exec_log_max_bytes, or its sandbox artifacts.sandbox_max_bytes, and on_log_limit is kill"+meanwhile)
	case j.ExitCode == 0:
		end.State = int32(agboxv1.ExecState_EXEC_STATE_FINISHED)
	case j.OOM:
		fail(plan.CodeExecRunFailed, plan.OutOfMemory(j.OOMLimitBytes))
	case j.Stopped:
		fail(plan.CodeExecRunFailed, "the command was ended: "+plan.EndedWithContainer+meanwhile)
	case j.Signal != 0:
		fail(plan.CodeExecRunFailed, fmt.Sprintf("the command was ended by signal %d", j.Signal)+meanwhile)
	default:
		fail(plan.CodeExecRunFailed, fmt.Sprintf("the command exited with code %d", j.ExitCode)+meanwhile)
	}
	return end
}
