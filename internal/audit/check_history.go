package audit

import (
	"fmt"
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

const (
	eventStarted   = agboxv1.EventType_EXEC_STARTED
	eventFinished  = agboxv1.EventType_EXEC_FINISHED
	eventFailed    = agboxv1.EventType_EXEC_FAILED
	eventCancelled = agboxv1.EventType_EXEC_CANCELLED
	eventRebuilt   = agboxv1.EventType_SANDBOX_REHYDRATED
	eventRecovered = agboxv1.EventType_SANDBOX_RECOVERED
)

// isExec reports whether events of this type are about an exec.
func isExec(t agboxv1.EventType) bool { return t >= eventStarted && t <= eventCancelled }

// sequence checks I4: there is no gap except events dropped by the bound, and each event matches its key.
func (a *auditor) sequence(sb *sandbox) {
	say := a.about(hard, "I4", sandboxName(sb), "")
	next, before := uint64(1), int64(0)
	for i, ev := range sb.events {
		rebuilt := ev.GetEventType() == eventRebuilt
		switch {
		case rebuilt && i > 0:
			say("event %d says that the record was rebuilt, but older events exist", ev.key)
		case ev.key == next, rebuilt:
		case i == 0:
			say("its first event is %d", ev.key)
		case ev.key > next && ev.key-1 <= sb.trimmed: // events of execs, dropped by the bound
		default:
			say("event %d follows event %d, and events up to %d were dropped by the bound", ev.key, next-1, sb.trimmed)
		}
		next = ev.key + 1
		say.when(ev.GetSequence() != ev.key || ev.GetSandboxId() != sb.id || ev.GetEventId() != fmt.Sprintf("%s-%d", sb.id, ev.key),
			"event %d says that it is %q, %d of sandbox %s", ev.key, ev.GetEventId(), ev.GetSequence(), ev.GetSandboxId())
		if ev.GetOccurredAt() == nil {
			say("event %d has no time", ev.key)
		} else {
			at := ev.GetOccurredAt().AsTime().UnixNano()
			a.about(note, "I4", sandboxName(sb), "").when(at < before, "event %d is older than the one before it: the clock was set back", ev.key)
			before = at
		}
	}
	say.when(sb.trimmed >= sb.last(), "events up to %d were dropped by the bound, and the newest is %d", sb.trimmed, sb.last())
}

// moves are the legal state changes by event type: the permitted previous states, and the new one. 0 in from is "none yet"; to == 0
// means that the state does not change.
var moves = map[agboxv1.EventType]struct {
	from []agboxv1.SandboxState
	to   agboxv1.SandboxState
}{
	agboxv1.EventType_SANDBOX_ACCEPTED:         {[]agboxv1.SandboxState{0, stopped, paused, ready, failed}, pending},
	agboxv1.EventType_SANDBOX_PREPARING:        {[]agboxv1.SandboxState{pending}, pending},
	agboxv1.EventType_SANDBOX_READY:            {[]agboxv1.SandboxState{pending}, ready},
	agboxv1.EventType_SANDBOX_FAILED:           {[]agboxv1.SandboxState{pending, ready, stopped, paused}, failed},
	agboxv1.EventType_SANDBOX_STOP_REQUESTED:   {[]agboxv1.SandboxState{ready, paused}, 0},
	agboxv1.EventType_SANDBOX_STOPPED:          {[]agboxv1.SandboxState{ready, paused}, stopped},
	agboxv1.EventType_SANDBOX_DELETE_REQUESTED: {[]agboxv1.SandboxState{pending, ready, stopped, paused, failed}, deleting},
	agboxv1.EventType_SANDBOX_DELETED:          {[]agboxv1.SandboxState{deleting}, deleted},
	agboxv1.EventType_SANDBOX_SERVICE_READY:    {[]agboxv1.SandboxState{pending, ready}, 0},
	agboxv1.EventType_SANDBOX_SERVICE_FAILED:   {[]agboxv1.SandboxState{pending, ready}, 0},
	agboxv1.EventType_SANDBOX_RESTARTED:        {[]agboxv1.SandboxState{ready}, ready},
	agboxv1.EventType_SANDBOX_PAUSE_REQUESTED:  {[]agboxv1.SandboxState{ready}, ready},
	agboxv1.EventType_SANDBOX_PAUSED:           {[]agboxv1.SandboxState{ready, paused}, paused},
}

// transitions checks I5: every event is legal after the previous ones, and the other records agree with the events.
func (a *auditor) transitions(sb *sandbox) {
	say := a.about(hard, "I5", sandboxName(sb), "")
	var at, before agboxv1.SandboxState // before: the state before the last failure
	var run uint64                      // first event since which the state has not changed
	for _, ev := range sb.events {
		typ, to := ev.GetEventType(), ev.GetSandboxState()
		m, judged := moves[typ]
		switch {
		case at == deleted:
			say("event %d, %s, comes after SANDBOX_DELETED", ev.key, typ)
		case typ == eventRebuilt && (to == 0 || to == deleted):
			say("event %d: a record was rebuilt as %s", ev.key, to)
		case typ == eventStarted && at != ready && at != pending && at != paused && at != 0:
			say("event %d: an exec was accepted while the sandbox was %s", ev.key, at)
		case isExec(typ) && to != 0:
			say("event %d of an exec sets the state %s", ev.key, to)
		case typ == eventRecovered && (at != failed || to != before):
			say("event %d, %s, leads from %s to %s, and the sandbox was %s before it failed", ev.key, typ, at, to, before)
		case judged && (!slices.Contains(m.from, at) || to != m.to && (m.to != 0 || to != at)):
			say("event %d, %s, leads from %s to %s", ev.key, typ, at, to)
		}
		if to == failed && at != failed {
			before = at
		}
		if to != 0 && (to != at || typ == eventRebuilt) {
			at, run = to, ev.key
		}
	}
	say.when(sb.stateSeq != run, "the state is recorded to begin with event %d, and it is %s since event %d", sb.stateSeq, at, run)
	say.when(sb.gone() != (at == deleted), "its deletion is recorded: %t, and its state is %s", sb.gone(), at)
	want := sb.desired.GetRunState()
	switch {
	case want == 0 || sb.desired.GetGeneration() == 0:
		say("it has no intent")
	case (at == deleting || at == deleted) != (want == wantDelete):
		say("it is %s, and the intent is %s", at, want)
	case at == paused && want == wantRun:
		say("it is %s, and the intent is %s", at, want)
	}
}

// history holds the first and the last event of one exec.
type history struct {
	start, end event
}

// execs checks I6: one EXEC_STARTED, then one end, and the record matches the events. Then it checks the files of each exec.
func (a *auditor) execs(sb *sandbox) {
	byID := map[string]*history{}
	for id := range sb.execs {
		byID[id] = &history{}
	}
	for _, ev := range sb.events {
		id := ev.GetExec().GetExecId()
		a.about(hard, "I6", sandboxName(sb), "").when(isExec(ev.GetEventType()) != (id != ""),
			"event %d, %s, is about exec %q", ev.key, ev.GetEventType(), id)
		if id == "" {
			continue
		}
		t := byID[id]
		if t == nil {
			t = &history{}
			byID[id] = t
		}
		a.oneOfTwo(sb, t, ev)
		a.about(hard, "I6", "exec "+id, "").when(sb.execs[id] == nil, "event %d of sandbox %s is about it, and it has no record", ev.key, sb.id)
	}
	for id, e := range sb.execs {
		a.exec(sb, e, *byID[id])
	}
}

func (a *auditor) oneOfTwo(sb *sandbox, t *history, ev event) {
	object := "exec " + ev.GetExec().GetExecId()
	if ev.GetEventType() == eventStarted {
		a.about(hard, "I6", object, "").when(t.start.SandboxEvent != nil || t.end.SandboxEvent != nil,
			"event %d of sandbox %s starts it, and it is not its first", ev.key, sb.id)
		t.start = ev
		return
	}
	a.about(hard, "I6", object, "").when(t.end.SandboxEvent != nil, "event %d of sandbox %s ends it again", ev.key, sb.id)
	t.end = ev
}

// exec checks the records of one exec against its events, as far as the history is kept.
func (a *auditor) exec(sb *sandbox, e *execution, t history) {
	object := "exec " + e.id
	say := a.about(hard, "I6", object, "")
	if e.request == nil || e.desired == nil {
		a.report(hard, "I1", object, "", "its record is incomplete: request %t, intent %t", e.request != nil, e.desired != nil)
		return
	}
	a.about(hard, "I2", object, "").when(!a.records.execIDs[e.id], "its ID is not reserved")
	ref := a.records.execRefs[e.id]
	say.when(ref != sb.id, "it is referred to as of sandbox %q, and is in sandbox %s", ref, sb.id)
	say.when(e.request.GetExecId() != e.id || e.request.GetSandboxId() != sb.id,
		"its request says exec %q of sandbox %q", e.request.GetExecId(), e.request.GetSandboxId())
	forgotten := max(sb.trimmed, rebuiltAt(sb)) // older events may be dropped
	seq := e.desired.GetStartedSequence()
	say.when(seq == 0 || seq != t.start.key && (seq > forgotten || t.start.key != 0),
		"it is recorded to start with event %d, and it starts with event %d", seq, t.start.key)
	if e.end == nil {
		say.when(t.end.SandboxEvent != nil, "event %d reports its end, and none is on record", t.end.key)
		say.when(sb.gone(), "it has no end, and its sandbox is deleted")
	} else {
		a.execEnd(e, t, forgotten)
	}
	if !a.records.hidden[sb.id] {
		a.execFiles(sb, e)
	}
}

// rebuiltAt returns the event that starts a rebuilt record; 0 for others.
func rebuiltAt(sb *sandbox) uint64 {
	if len(sb.events) > 0 && sb.events[0].GetEventType() == eventRebuilt {
		return sb.events[0].key
	}
	return 0
}

var endStates = map[agboxv1.EventType]agboxv1.ExecState{
	eventFinished: agboxv1.ExecState_EXEC_STATE_FINISHED, eventFailed: agboxv1.ExecState_EXEC_STATE_FAILED,
	eventCancelled: agboxv1.ExecState_EXEC_STATE_CANCELLED,
}

func (a *auditor) execEnd(e *execution, t history, forgotten uint64) {
	say := a.about(hard, "I6", "exec "+e.id, "")
	state := agboxv1.ExecState(e.end.GetState())
	if t.end.SandboxEvent == nil {
		seq := e.end.GetSequence()
		say.when(seq == 0 || seq > forgotten, "its end %s is on record, and no event reports it", state)
		return
	}
	d := t.end.GetExec()
	say.when(e.end.GetSequence() != t.end.key, "its end is recorded with event %d, and event %d reports it", e.end.GetSequence(), t.end.key)
	want := endStates[t.end.GetEventType()]
	say.when(state != want || d.GetExecState() != want,
		"its end is recorded as %s, and event %d says %s", state, t.end.key, t.end.GetEventType())
	if e.end.GetExitCode() != d.GetExitCode() || e.end.GetErrorCode() != d.GetErrorCode() {
		say("its end is recorded with exit code %d and error code %q, and event %d says %d and %q", e.end.GetExitCode(), e.end.GetErrorCode(),
			t.end.key, d.GetExitCode(), d.GetErrorCode())
	}
	say.when(state == agboxv1.ExecState_EXEC_STATE_FINISHED && e.end.GetExitCode() != 0,
		"it is FINISHED with exit code %d", e.end.GetExitCode())
}

// nameHolders checks I3 for each name.
func (a *auditor) nameHolders() {
	for name, id := range a.records.names {
		sb := a.records.sandboxes[id]
		switch {
		case sb == nil || sb.desired == nil || sb.gone():
			a.report(hard, "I3", "name "+name, "", "sandbox %q holds it, which is not live", id)
		case sb.desired.GetName() != name:
			a.report(hard, "I3", "name "+name, "", "sandbox %s holds it, whose name is %q", id, sb.desired.GetName())
		case sb.desired.GetRunState() == wantDelete:
			a.report(hard, "I3", "name "+name, "", "sandbox %s holds it, which is being deleted", id)
		}
	}
}

// holdsName checks I3 for one sandbox.
func (a *auditor) holdsName(sb *sandbox) {
	name := sb.desired.GetName()
	if name == "" || sb.gone() || sb.desired.GetRunState() == wantDelete {
		return
	}
	holder := a.records.names[name]
	a.about(hard, "I3", sandboxName(sb), "").when(holder != sb.id, "its name %q is held by %q", name, holder)
}

// execReferences checks that every reference is to an existing exec.
func (a *auditor) execReferences() {
	for id, sandboxID := range a.records.execRefs {
		sb := a.records.sandboxes[sandboxID]
		a.about(hard, "I6", "exec "+id, "").when(sb == nil || sb.execs[id] == nil,
			"it is referred to as of sandbox %s, which has no such exec", sandboxID)
	}
}
