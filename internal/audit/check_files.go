package audit

import (
	"strings"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	codeLost        = "EXEC_LOST"
	codeRunFailed   = "EXEC_RUN_FAILED"
	codeStartFailed = "EXEC_START_FAILED"
	codeTimeout     = "EXEC_TIMEOUT"
)

// execFiles checks one exec against its journal, lock and logs. The logs of a sandbox that is being deleted may be removed already.
func (a *auditor) execFiles(sb *sandbox, e *execution) {
	if sb.gone() || sb.desired.GetRunState() == wantDelete {
		return
	}
	d := a.files.logs[sb.id]
	if d == nil {
		d = &logDir{}
	}
	j, there := d.journals[e.id]
	if there && j.State == "started" && !j.held {
		_, lost := d.sizes[e.id+suffixLost]
		j.held = !lost && a.files.runs[runName(sb.id)].hides(j)
	}
	switch {
	case e.end == nil:
		a.activeExec(sb, e, j, there)
	case a.mayBeCut(e) && (j.State != "ended" || !j.of(e.desired.GetNonce())):
		// EXEC_LOST, and what is left of the journal contradicts nothing.
	case !there:
		a.endWithoutJournal(e)
	default:
		a.endWithJournal(e, j)
	}
	if there && j.State == "ended" && j.of(e.desired.GetNonce()) {
		a.execLogs(e, j, d)
	}
}

// mayBeCut reports whether the host went down after the exec was dispatched. Then its journal may not be on disk, as far as it was written.
func (a *auditor) mayBeCut(e *execution) bool {
	return e.desired.GetBootId() != "" && e.desired.GetBootId() != a.boot
}

// activeExec checks I8.
func (a *auditor) activeExec(sb *sandbox, e *execution, j journalFile, there bool) {
	say := a.about(flux, "I8", "exec "+e.id, sb.stamp())
	state := sb.state()
	switch {
	case there && !j.of(e.desired.GetNonce()):
		say("it has no end, and its journal is not its own: %s", j.problem)
	case there && j.State != "started":
		say("its journal says %q, and no end is on record", j.State)
	case there && !j.held:
		say("its journal says that it started, its lock is free, and no end is on record")
	case there && (state == stopped || state == failed):
		say("it runs, and its sandbox is %s", state)
	case there:
	case state == stopped || state == failed:
		say("it has not started, and its sandbox is %s", state)
	case state == ready && sb.desired.GetRunState() == wantRun && a.at.Sub(time.Unix(0, e.desired.GetCreatedAt())) > startPatience:
		say("its sandbox is READY, and it has not started for more than %s", startPatience)
	}
}

// endWithoutJournal checks I7: every exec that ran has a journal.
func (a *auditor) endWithoutJournal(e *execution) {
	state, code := agboxv1.ExecState(e.end.GetState()), e.end.GetErrorCode()
	if state == agboxv1.ExecState_EXEC_STATE_FINISHED || code == codeRunFailed || e.end.GetStartedAt() != 0 {
		a.report(flux, "I7", "exec "+e.id, "", "it ended %s %s, and there is no journal of it", state, code)
	}
}

// endWithJournal checks I7: the record matches the journal.
func (a *auditor) endWithJournal(e *execution, j journalFile) {
	say := a.about(flux, "I7", "exec "+e.id, "")
	state, code := agboxv1.ExecState(e.end.GetState()), e.end.GetErrorCode()
	finished, cancelled := state == agboxv1.ExecState_EXEC_STATE_FINISHED, state == agboxv1.ExecState_EXEC_STATE_CANCELLED
	if !j.of(e.desired.GetNonce()) {
		say.when(code != codeLost, "it ended %s %s, and its journal is not its own: %s", state, code, j.problem)
		return
	}
	switch j.State {
	case "closed":
		say.when(finished || code == codeRunFailed || e.end.GetExitCode() != 0 || e.end.GetStartedAt() != 0,
			"it ended %s %s with exit code %d, and its journal says that it never ran", state, code, e.end.GetExitCode())
	case "started":
		say.when(code != codeLost && !cancelled, "it ended %s %s, and its journal has no end", state, code)
		say.when(j.held, "it ended %s %s, and its lock is held", state, code)
	case "ended":
		a.trueEnd(e, j, say)
	}
}

func (a *auditor) trueEnd(e *execution, j journalFile, say saying) {
	state, code := agboxv1.ExecState(e.end.GetState()), e.end.GetErrorCode()
	say.when(int(e.end.GetExitCode()) != j.ExitCode,
		"its end is recorded with exit code %d, and its journal says %d", e.end.GetExitCode(), j.ExitCode)
	if e.end.GetStartedAt() != j.StartedAt || e.end.GetEndedAt() != j.EndedAt {
		say("it is recorded to run from %d to %d, and its journal says from %d to %d", e.end.GetStartedAt(), e.end.GetEndedAt(), j.StartedAt, j.EndedAt)
	}
	if e.end.GetStdoutDroppedBytes() != j.StdoutDropped || e.end.GetStderrDroppedBytes() != j.StderrDropped {
		a.report(flux, "I10", "exec "+e.id, "", "%d and %d dropped bytes are on record, and its journal says %d and %d",
			e.end.GetStdoutDroppedBytes(), e.end.GetStderrDroppedBytes(), j.StdoutDropped, j.StderrDropped)
	}
	finished := state == agboxv1.ExecState_EXEC_STATE_FINISHED
	cancelled := state == agboxv1.ExecState_EXEC_STATE_CANCELLED
	switch {
	case code == codeLost:
		say("it is recorded as EXEC_LOST, and its journal has the end: exit code %d", j.ExitCode)
	case cancelled && !j.Cancelled && !j.Stopped:
		say("it is recorded as CANCELLED, and its journal says that it exited with code %d without a cancel", j.ExitCode)
	case finished && (j.ExitCode != 0 || j.ErrorCode != "" || j.Cancelled || j.LogLimit || j.Timeout != 0):
		say("it is FINISHED, and its journal says exit code %d, error code %q", j.ExitCode, j.ErrorCode)
	case (code == codeTimeout) != (j.Timeout != 0) && !cancelled:
		say("its error code is %q, and its journal says that a timeout of %d ms ended it", code, j.Timeout)
	case (code == codeStartFailed) != (j.ErrorCode != "") && !cancelled:
		say("its error code is %q, and its journal says %q", code, j.ErrorCode)
	}
}

// execLogs checks I10 and I11. Children that outlive a command may append to its logs; nothing is ever removed.
func (a *auditor) execLogs(e *execution, j journalFile, d *logDir) {
	for _, l := range []struct {
		file           string
		bytes, dropped int64
	}{
		{e.id + suffixStdout, j.StdoutBytes, j.StdoutDropped},
		{e.id + suffixStderr, j.StderrBytes, j.StderrDropped},
	} {
		size := d.sizes[l.file]
		a.about(flux, "I10", "exec "+e.id, "").when(size < l.bytes, "%s has %d bytes, and its journal says %d", l.file, size, l.bytes)
		a.about(flux, "I10", "exec "+e.id, "").when(l.dropped > 0 && !d.marked[l.file],
			"%d bytes of %s were dropped, and it does not end with the marker", l.dropped, l.file)
		res, isStream := d.streams[l.file]
		if !isStream {
			continue
		}
		byItself := !j.Cancelled && !j.Stopped && j.ExitCode == 0 && !j.LogLimit && !j.LogLost && j.Timeout == 0
		switch {
		case len(res.Rest) > 0 && (l.dropped == 0 || !strings.HasPrefix(string(res.Rest), markerText)):
			a.report(flux, "I11", "exec "+e.id, "", "%s differs from its program's output after byte %d: %.40q", l.file, res.Bytes, res.Rest)
		case byItself && !res.Complete && l.dropped == 0:
			a.report(flux, "I11", "exec "+e.id, "", "%s ends after %d bytes, but its program wrote more and exited with code 0", l.file, res.Bytes)
		}
	}
}

// directories checks I19 and, for deleted sandboxes, I18: every directory on the disk belongs to a record.
func (a *auditor) directories() {
	runs := map[string]string{}
	for id := range a.records.sandboxes {
		runs[runName(id)] = id
	}
	for id := range a.records.sandboxIDs {
		runs[runName(id)] = id
	}
	for id, d := range a.files.logs {
		a.directory("log directory "+id, id)
		a.strangers(id, d)
	}
	for name := range a.files.runs {
		id, known := runs[name]
		if !known {
			a.report(flux, "I19", "record directory "+name, "", "it belongs to no sandbox on record")
			continue
		}
		a.directory("record directory "+name, id)
	}
}

func (a *auditor) directory(object, id string) {
	sb := a.records.sandboxes[id]
	switch {
	case sb == nil && a.records.sandboxIDs[id], sb != nil && sb.gone():
		a.report(flux, "I18", object, "", "its sandbox %s is deleted", id)
	case sb == nil:
		a.report(flux, "I19", object, "", "sandbox %s is not on record", id)
	}
}

// strangers checks I9: journals and locks without a record. IDs of the daemon's own execs start with "_".
func (a *auditor) strangers(id string, d *logDir) {
	sb := a.records.sandboxes[id]
	if sb == nil || sb.gone() {
		return // reported
	}
	for execID, j := range d.journals {
		a.about(flux, "I9", "exec "+execID, "").when(sb.execs[execID] == nil && !strings.HasPrefix(execID, "_"),
			"sandbox %s has a journal of it that says %q, and it is not on record", id, j.State)
	}
	for execID := range d.locks {
		a.about(flux, "I9", "exec "+execID, "").when(sb.execs[execID] == nil && !strings.HasPrefix(execID, "_"),
			"sandbox %s has a lock of it, and it is not on record", id)
	}
}

// ledgerEntries checks I12 against the programs' own ledger.
func (a *auditor) ledgerEntries() {
	if a.ledger == nil {
		return
	}
	for id := range a.ledger {
		a.about(flux, "I12", "exec "+id, "").when(a.records.execRefs[id] == "" && !a.records.execIDs[id],
			"its program ran, and it is not on record")
	}
	for _, sb := range a.records.sandboxes {
		for _, e := range sb.execs {
			if _, ours := a.ledger[e.id]; ours || strings.HasPrefix(e.id, LedgerPrefix) {
				a.ledgerEntry(e, a.ledger[e.id])
			}
		}
	}
}

// LedgerPrefix is the prefix of the IDs of execs whose programs keep a ledger.
const LedgerPrefix = "led-"

func (a *auditor) ledgerEntry(e *execution, l ledgerEntry) {
	wrong, unsettled := a.about(hard, "I12", "exec "+e.id, ""), a.about(flux, "I12", "exec "+e.id, "")
	wrong.when(l.starts > 1, "its program was started %d times", l.starts)
	if e.end == nil {
		return
	}
	state, code := agboxv1.ExecState(e.end.GetState()), e.end.GetErrorCode()
	byItself := state == agboxv1.ExecState_EXEC_STATE_FINISHED || code == codeRunFailed
	switch {
	case byItself && l.starts == 0 && e.end.GetExitCode() < 128:
		unsettled("it ended %s %s, and its program was never started", state, code)
	case code == codeStartFailed && l.starts > 0:
		unsettled("it is recorded as not started, and its program ran")
	case state == agboxv1.ExecState_EXEC_STATE_FINISHED && (!l.ended || l.code != 0):
		unsettled("it is FINISHED, and its program notes an end: %t, exit code %d", l.ended, l.code)
	case code == codeRunFailed && l.ended && int(e.end.GetExitCode()) != l.code && e.end.GetExitCode() < 128:
		unsettled("its exit code is recorded as %d, and its program notes %d", e.end.GetExitCode(), l.code)
	}
}
