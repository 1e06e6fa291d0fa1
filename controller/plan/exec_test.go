package plan

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestDecideExec(t *testing.T) {
	runs := ExecRecord{SandboxRuns: true}
	cancelled := ExecRecord{SandboxRuns: true, CancelRequested: true}
	ending := ExecRecord{SandboxEnding: true}
	broken := ExecRecord{}
	waits := ExecRecord{SandboxWaits: true}
	waitsCancelled := ExecRecord{SandboxWaits: true, CancelRequested: true}
	inTurn := ExecRecord{SandboxEnding: true, TurnLeft: 1}
	inTurnCancelled := ExecRecord{SandboxEnding: true, CancelRequested: true, TurnLeft: 1}
	deadEngine := ExecRecord{SandboxEnding: true, TakenByDeath: true}
	for _, row := range []struct {
		name   string
		rec    ExecRecord
		phase  Phase
		action ExecAction
		state  agboxv1.ExecState
		code   string
	}{
		{"not started: request it", runs, NotStarted, ExecRequest, 0, ""},
		{"not started and cancelled: close the fence", cancelled, NotStarted, ExecClose, 0, ""},
		{"not started and the sandbox ends: close the fence", ending, NotStarted, ExecClose, 0, ""},
		{"not started and the sandbox failed: close the fence", broken, NotStarted, ExecClose, 0, ""},
		{"not started and the sandbox is paused: it starts later", waits, NotStarted, ExecWait, 0, ""},
		{"not started, paused and cancelled: close the fence", waitsCancelled, NotStarted, ExecClose, 0, ""},
		{"running and frozen: wait", waits, Running, ExecWait, 0, ""},
		{"lost with the engine", deadEngine, Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"not started when the engine died: close the fence", deadEngine, NotStarted, ExecClose, 0, ""},
		{"running: wait", runs, Running, ExecWait, 0, ""},
		{"running and cancelled: cancel", cancelled, Running, ExecCancel, 0, ""},
		{"running and the sandbox ends: cancel", ending, Running, ExecCancel, 0, ""},
		{"an agent in a turn and the sandbox ends: wait", inTurn, Running, ExecWait, 0, ""},
		{"an agent in a turn that is cancelled: cancel", inTurnCancelled, Running, ExecCancel, 0, ""},
		{"an agent in a turn that has ended", inTurn, Ended, ExecRecordEnd, 0, ""},
		{"an agent in a turn that is lost by a stop: cancelled", inTurn, Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"running in a sandbox that failed: its lock is free soon", broken, Running, ExecWait, 0, ""},
		{"ended: that is the result", runs, Ended, ExecRecordEnd, 0, ""},
		{"ended before the cancel: still the result", cancelled, Ended, ExecRecordEnd, 0, ""},
		{"lost", runs, Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"lost by a stop: cancelled", ending, Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"closed by a cancel", cancelled, Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"closed as the sandbox failed", broken, Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecStartFailed},
		{"a forged journal is no result", runs, Foreign, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := DecideExec(row.rec, row.phase)
			if p.Action != row.action || p.Outcome.State != row.state || p.Outcome.Code != row.code {
				t.Errorf("got %+v", p)
			}
		})
	}
}
