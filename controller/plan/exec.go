package plan

import (
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execphase"
)

// Error codes of EXEC_FAILED.
const (
	CodeExecRunFailed   = "EXEC_RUN_FAILED"
	CodeExecStartFailed = "EXEC_START_FAILED"
	CodeExecLost        = "EXEC_LOST"
	CodeExecTimeout     = "EXEC_TIMEOUT"
	CodeExecLogLimit    = "EXEC_LOG_LIMIT"
)

// ExecRecord is the stored state of an exec without a recorded end.
type ExecRecord struct {
	// CancelRequested: a cancel of the exec was accepted.
	CancelRequested bool
	// SandboxRuns: the sandbox is READY and wanted to run.
	SandboxRuns bool
	// SandboxEnding: the sandbox is to be stopped or deleted; that cancels its execs.
	SandboxEnding bool
	// TurnLeft is how long the exec of an agent in a turn may still run although its sandbox is ending.
	TurnLeft time.Duration
	// SandboxWaits: the sandbox is paused or being resumed; an exec that has not started starts later.
	SandboxWaits bool
	// TakenByDeath: the sandbox ends because the engine or the host died.
	TakenByDeath bool
	// OtherBoot: it was dispatched before the host was rebooted, so its journal may be lost.
	OtherBoot bool
	// StdinAbandoned: a writer of standard input is on record, but not attached to this daemon.
	StdinAbandoned bool
	// StdinLeft is how long standard input stays open without a writer; nil: no deadline runs. Not positive: it ends.
	StdinLeft *time.Duration
}

// ExecLimits bound an exec that starts now.
type ExecLimits struct {
	// LogBytes bounds each log of a command of a user, and each outbox; AgentLogBytes bounds each log of a process or of a helper command of
	// an agent; 0: no bound.
	LogBytes, AgentLogBytes int64
	// KillAtLogLimit ends a command at that bound unless its sandbox's spec says otherwise; false: further output is dropped.
	KillAtLogLimit bool
	// CancelGrace is the time between TERM and KILL.
	CancelGrace time.Duration
}

// ExecAction is the next action for an exec.
type ExecAction string

// The actions.
const (
	// ExecWait: nothing; the end of the exec, or a change of the sandbox, adds the key.
	ExecWait ExecAction = "wait"
	// ExecRequest: request its start.
	ExecRequest ExecAction = "request"
	// ExecCancel: request its end.
	ExecCancel ExecAction = "cancel"
	// ExecClose: close the fence so that it never starts, then observe again.
	ExecClose ExecAction = "close"
	// ExecDetachStdin: record that the writer of standard input is gone.
	ExecDetachStdin ExecAction = "detach-stdin"
	// ExecEndStdin: end standard input, or hang up the terminal.
	ExecEndStdin ExecAction = "end-stdin"
	// ExecRecordEnd: record the end.
	ExecRecordEnd ExecAction = "record-end"
)

// ExecPlan is an action. End is the end that ExecRecordEnd records; nil: the one in the journal.
type ExecPlan struct {
	Action ExecAction
	End    *storev1.ExecEnd
	// Next is the requeue delay if nothing else adds the key; zero: none.
	Next time.Duration
}

// cancelRecheck is the requeue delay after a cancel if no end is reported.
const cancelRecheck = 5 * time.Second

// DecideExec returns what to do for one exec. A recorded result always wins; a command that may have run is never started again.
//
//	ended                            record that end
//	lost                             CANCELLED if its end was wanted, else FAILED with EXEC_LOST
//	closed                           CANCELLED if its end was wanted, else FAILED with EXEC_START_FAILED
//	foreign                          FAILED with EXEC_LOST
//	of another boot                  not started: close the fence; closed, foreign: lost
//	running, end wanted              cancel; an agent's turn has a while first if only the sandbox is ending
//	running, stdin's writer is gone  record that, which starts its deadline
//	running, stdin's deadline passed end standard input
//	running                          wait
//	not started, end wanted          close the fence
//	not started, sandbox runs        request the start
//	not started, sandbox paused      wait; also while it is being resumed
//	not started, sandbox failed      close the fence
func DecideExec(r ExecRecord, phase execphase.Phase) ExecPlan {
	unwanted := r.CancelRequested || r.SandboxEnding
	lost := func(why string) ExecPlan { return record(unwanted && !r.TakenByDeath, CodeExecLost, why) }
	if r.OtherBoot {
		switch phase {
		case execphase.NotStarted:
			return ExecPlan{Action: ExecClose}
		case execphase.Closed, execphase.Foreign:
			return lost("the host went down before it had stored whether the command ran")
		}
	}
	switch phase {
	case execphase.Ended:
		return ExecPlan{Action: ExecRecordEnd}
	case execphase.Lost:
		return lost("the command's supervisor died and with it the true end of the command")
	case execphase.Closed:
		return record(unwanted, CodeExecStartFailed, "the sandbox ended before the command started")
	case execphase.Foreign:
		return record(false, CodeExecLost, "the journal of the exec was replaced inside the sandbox")
	case execphase.Running:
		if unwanted && !r.CancelRequested && r.TurnLeft > 0 {
			return ExecPlan{Action: ExecWait, Next: r.TurnLeft}
		}
		if unwanted {
			return ExecPlan{Action: ExecCancel, Next: cancelRecheck}
		}
		return r.stdin()
	}
	switch {
	case !unwanted && r.SandboxRuns:
		return ExecPlan{Action: ExecRequest}
	case !unwanted && r.SandboxWaits:
		return ExecPlan{Action: ExecWait}
	}
	return ExecPlan{Action: ExecClose}
}

func record(cancelled bool, code, message string) ExecPlan {
	end := &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), ErrorCode: code, ErrorMessage: message}
	if cancelled {
		end = &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_CANCELLED)}
	}
	return ExecPlan{Action: ExecRecordEnd, End: end}
}

// stdin is the plan for the standard input of a running exec.
func (r ExecRecord) stdin() ExecPlan {
	switch {
	case r.StdinAbandoned:
		return ExecPlan{Action: ExecDetachStdin}
	case r.StdinLeft == nil:
		return ExecPlan{Action: ExecWait}
	case *r.StdinLeft > 0:
		return ExecPlan{Action: ExecWait, Next: *r.StdinLeft}
	}
	return ExecPlan{Action: ExecEndStdin}
}
