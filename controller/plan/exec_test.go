package plan

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execphase"
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
	otherBoot := ExecRecord{SandboxRuns: true, OtherBoot: true}
	otherBootCancelled := ExecRecord{SandboxRuns: true, OtherBoot: true, CancelRequested: true}
	deadHost := ExecRecord{SandboxEnding: true, TakenByDeath: true, OtherBoot: true}
	deadEngine := ExecRecord{SandboxEnding: true, TakenByDeath: true}
	for _, row := range []struct {
		name   string
		rec    ExecRecord
		phase  execphase.Phase
		action ExecAction
		state  agboxv1.ExecState
		code   string
	}{
		{"not started: request it", runs, execphase.NotStarted, ExecRequest, 0, ""},
		{"not started and cancelled: close the fence", cancelled, execphase.NotStarted, ExecClose, 0, ""},
		{"not started and the sandbox ends: close the fence", ending, execphase.NotStarted, ExecClose, 0, ""},
		{"not started and the sandbox failed: close the fence", broken, execphase.NotStarted, ExecClose, 0, ""},
		{"not started and the sandbox is paused: it starts later", waits, execphase.NotStarted, ExecWait, 0, ""},
		{"not started, paused and cancelled: close the fence", waitsCancelled, execphase.NotStarted, ExecClose, 0, ""},
		{"running and frozen: wait", waits, execphase.Running, ExecWait, 0, ""},
		{"lost with the engine", deadEngine, execphase.Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"not started when the engine died: close the fence", deadEngine, execphase.NotStarted, ExecClose, 0, ""},
		{"running: wait", runs, execphase.Running, ExecWait, 0, ""},
		{"running and cancelled: cancel", cancelled, execphase.Running, ExecCancel, 0, ""},
		{"running and the sandbox ends: cancel", ending, execphase.Running, ExecCancel, 0, ""},
		{"an agent in a turn and the sandbox ends: wait", inTurn, execphase.Running, ExecWait, 0, ""},
		{"an agent in a turn that is cancelled: cancel", inTurnCancelled, execphase.Running, ExecCancel, 0, ""},
		{"an agent in a turn that has ended", inTurn, execphase.Ended, ExecRecordEnd, 0, ""},
		{"an agent in a turn that is lost by a stop: cancelled", inTurn, execphase.Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"running in a sandbox that failed: its lock is free soon", broken, execphase.Running, ExecWait, 0, ""},
		{"ended: that is the result", runs, execphase.Ended, ExecRecordEnd, 0, ""},
		{"ended before the cancel: still the result", cancelled, execphase.Ended, ExecRecordEnd, 0, ""},
		{"lost", runs, execphase.Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"lost by a stop: cancelled", ending, execphase.Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"closed by a cancel", cancelled, execphase.Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"closed as the sandbox failed", broken, execphase.Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecStartFailed},
		{"dispatched in another boot, no journal: close the fence", otherBoot, execphase.NotStarted, ExecClose, 0, ""},
		{"dispatched in another boot and paused, no journal: close the fence", ExecRecord{SandboxWaits: true, OtherBoot: true}, execphase.NotStarted, ExecClose, 0, ""},
		{"dispatched in another boot, closed: it may have run", otherBoot, execphase.Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"dispatched in another boot, torn: it may have run", otherBoot, execphase.Foreign, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"dispatched in another boot, closed and cancelled", otherBootCancelled, execphase.Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_CANCELLED, ""},
		{"lost with the host: not by its stop", deadHost, execphase.Closed, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"dispatched in another boot, ended", otherBoot, execphase.Ended, ExecRecordEnd, 0, ""},
		{"dispatched in another boot, its supervisor died with it", otherBoot, execphase.Lost, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
		{"a forged journal is no result", runs, execphase.Foreign, ExecRecordEnd, agboxv1.ExecState_EXEC_STATE_FAILED, CodeExecLost},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := DecideExec(row.rec, row.phase)
			if p.Action != row.action || p.End.GetState() != int32(row.state) || p.End.GetErrorCode() != row.code {
				t.Errorf("got %+v", p)
			}
		})
	}
}
