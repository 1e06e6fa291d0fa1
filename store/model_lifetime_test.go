package store

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// modelLife is the model of pauses and deadlines.
type modelLife struct {
	timeout     time.Duration // -1: none in the spec
	onTimeout   string
	autoResume  bool
	deadline    int64 // Unix nanoseconds; 0: never
	deadlineSet bool
	demotedAt   int64
	cancelled   map[string]bool // active execs
}

// modelDefault is passed as the daemon's default timeout.
const modelDefault = 7 * time.Second

func (m *machine) drawTimeout() time.Duration {
	return rapid.SampledFrom([]time.Duration{0, 3 * time.Second, time.Minute}).Draw(m.t, "timeout")
}

func (m *machine) drawOnTimeout() string {
	return rapid.SampledFrom([]string{"", "stop", "pause", "delete"}).Draw(m.t, "on_timeout")
}

func (l modelLife) specTimeout() *durationpb.Duration {
	if l.timeout < 0 {
		return nil
	}
	return durationpb.New(l.timeout)
}

// held reports whether the sandbox is paused or pausing with a pause as intent.
func (m *modelSandbox) held() bool {
	return m.run == storev1.RunState_RUN_STATE_PAUSE && (m.state() == paused || m.state() == ready)
}

func (m *machine) wants(sb *modelSandbox, run storev1.RunState) {
	sb.run, sb.demotedAt = run, 0
	sb.generation++
}

func (m *machine) stopped(sb *modelSandbox) {
	m.wants(sb, storev1.RunState_RUN_STATE_STOP)
	sb.deadline, sb.deadlineSet = 0, false
	m.log(sb, agboxv1.EventType_SANDBOX_STOP_REQUESTED, sb.state(), "")
}

func (m *machine) paused(sb *modelSandbox) {
	m.wants(sb, storev1.RunState_RUN_STATE_PAUSE)
	m.log(sb, agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, ready, "")
}

func (m *machine) deleting(sb *modelSandbox) {
	m.wants(sb, storev1.RunState_RUN_STATE_DELETE)
	m.log(sb, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting, "")
}

func (m *machine) resumed(sb *modelSandbox) {
	demoted := sb.demotedAt != 0
	if sb.held() && !demoted && (sb.state() == ready || sb.progress.GetFrozen()) {
		sb.progress = proto.CloneOf(sb.progress)
		sb.progress.Frozen = true
	} else {
		sb.progress = &storev1.Progress{HooksDone: sb.progress.GetHooksDone(), Stopping: demoted && sb.progress.GetStopping()}
	}
	m.wants(sb, storev1.RunState_RUN_STATE_RUN)
	sb.attempt = storev1.Attempt_ATTEMPT_RESUME
	m.log(sb, agboxv1.EventType_SANDBOX_ACCEPTED, pending, "")
}

// reported models the side effects of a report.
func (m *machine) reported(sb *modelSandbox, typ agboxv1.EventType, timeout time.Duration) {
	now := m.clock.at.UnixNano()
	if typ == agboxv1.EventType_SANDBOX_READY && (!sb.deadlineSet || sb.deadline != 0) && sb.deadline <= now {
		sb.deadline, sb.deadlineSet = 0, false
		if timeout > 0 {
			sb.deadline = now + int64(timeout)
		}
	}
}

func (m *machine) pause() {
	id, sb := m.pick()
	ok := sb != nil && sb.state() == ready && (sb.run == storev1.RunState_RUN_STATE_RUN || sb.run == storev1.RunState_RUN_STATE_PAUSE)
	changed, err := m.s.RequestPause(ctx, id, "pause_requested")
	if m.intent("pause", ok, ok && sb.run == storev1.RunState_RUN_STATE_RUN, changed, err) {
		m.paused(sb)
	}
}

func (m *machine) demote() {
	id, sb := m.pick()
	changed, err := m.s.Demote(ctx, id)
	if m.intent("demote", sb != nil, sb != nil && sb.held() && sb.demotedAt == 0, changed, err) {
		sb.generation++
		sb.demotedAt = m.clock.at.UnixNano()
		sb.progress = proto.CloneOf(sb.progress)
		sb.progress.Frozen, sb.progress.Stopping = false, true
		for execID := range sb.active {
			sb.cancelled[execID] = true
		}
	}
}

func (m *machine) pauseCleanup() {
	id, sb := m.pick()
	const ttl = 2 * time.Second
	changes := sb != nil && sb.held() && sb.state() == paused && sb.demotedAt != 0 && m.clock.at.UnixNano()-sb.demotedAt >= int64(ttl)
	changed, err := m.s.RequestPauseCleanup(ctx, id, ttl, m.s.moment())
	if m.intent("pause cleanup", sb != nil, changes, changed, err) {
		m.deleting(sb)
	}
}

func (m *machine) expire() {
	id, sb := m.pick()
	changes := sb != nil && sb.state() == ready && sb.run == storev1.RunState_RUN_STATE_RUN && sb.deadline != 0 && sb.deadline <= m.clock.at.UnixNano()
	changed, err := m.s.RequestExpire(ctx, id, m.s.moment())
	if !m.intent("expire", sb != nil, changes, changed, err) {
		return
	}
	switch sb.onTimeout {
	case "pause":
		m.paused(sb)
	case "delete":
		m.deleting(sb)
	default:
		m.stopped(sb)
	}
}

// lives reports whether SetTimeout is allowed.
func (m *modelSandbox) lives() bool {
	return m.held() || m.run == storev1.RunState_RUN_STATE_RUN && (m.state() == pending || m.state() == ready)
}

func (m *machine) setTimeout() {
	id, sb := m.pick()
	to := Timeout{After: m.drawTimeout(), OnlyExtend: rapid.Bool().Draw(m.t, "only extend")}
	want := int64(0)
	if to.After > 0 {
		want = m.clock.at.Add(to.After).UnixNano()
	}
	if rapid.Bool().Draw(m.t, "absolute") {
		to.At = m.clock.at.Add(4 * time.Second)
		want = to.At.UnixNano()
	}
	deadline, changed, err := m.s.SetTimeout(ctx, id, to)
	if !m.outcome("set timeout", sb != nil && sb.lives(), err) {
		return
	}
	shorter := want != 0 && (sb.deadline == 0 || want < sb.deadline)
	same := want == sb.deadline && (want != 0 || sb.deadlineSet)
	if changes := !same && (!to.OnlyExtend || !shorter); changes != changed {
		m.t.Fatalf("set timeout %+v of %+v: changed %v", to, sb, changed)
	}
	if changed {
		m.timed(sb, want)
	}
	if deadline.IsZero() != (sb.deadline == 0) || !deadline.IsZero() && deadline.UnixNano() != sb.deadline {
		m.t.Fatalf("deadline %v, want %v", deadline, sb.deadline)
	}
}

func (m *machine) timed(sb *modelSandbox, deadline int64) {
	sb.deadline, sb.deadlineSet = deadline, true
	m.log(sb, agboxv1.EventType_SANDBOX_TIMEOUT_SET, 0, "")
}

func (m *machine) updateTimeout() {
	id, sb := m.pick()
	timeout := m.drawTimeout()
	if rapid.Bool().Draw(m.t, "the daemon's") {
		timeout = -1
	}
	_, changed, err := m.s.UpdateSpec(ctx, id, modelDefault, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		was := old.GetTimeout()
		old.Timeout = modelLife{timeout: timeout}.specTimeout()
		if proto.Equal(was, old.GetTimeout()) {
			return old, nil, false, nil
		}
		return old, []string{"timeout"}, false, nil
	})
	if !m.outcome("update timeout", sb != nil && !sb.deleted && sb.run != storev1.RunState_RUN_STATE_DELETE, err) || len(changed) == 0 {
		return
	}
	sb.timeout = timeout
	sb.generation++
	m.log(sb, agboxv1.EventType_SANDBOX_SPEC_CHANGED, 0, "")
	if timeout < 0 {
		timeout = modelDefault
	}
	switch {
	case !sb.lives():
	case timeout == 0:
		m.timed(sb, 0)
	default:
		m.timed(sb, m.clock.at.Add(timeout).UnixNano())
	}
}

func (m *machine) setBack() { m.clock.pass(-6 * time.Second) }

// rebuild stages the event of a rebuilt record: it carries the state and its time, whatever the events before it are.
func (m *machine) rebuild() {
	id, sb := m.pick()
	if sb == nil || sb.deleted {
		return
	}
	at := func(label string) *timestamppb.Timestamp {
		return timestamppb.New(m.clock.at.Add(-time.Duration(rapid.IntRange(0, 100).Draw(m.t, label)) * time.Second))
	}
	found := &agboxv1.RehydratedDetails{StateChangedAt: at("changed"), IdleSince: at("idle"), Preparing: rapid.Bool().Draw(m.t, "preparing")}
	if sb.state() == failed {
		found.ErrorCode = "CONTAINER_DIED"
	}
	must(m.tb, stageRebuilt(m.s, id, found))
	sb.events = append(sb.events, modelEvent{
		typ: agboxv1.EventType_SANDBOX_REHYDRATED, state: sb.state(), code: found.GetErrorCode(), at: m.clock.at, found: found,
	})
}

// stageRebuilt appends a SANDBOX_REHYDRATED with the sandbox's current state.
func stageRebuilt(s *Store, id string, found *agboxv1.RehydratedDetails) error {
	return s.update(ctx, func(t *txn) error {
		sb := t.live(id)
		ev := phase(agboxv1.EventType_SANDBOX_REHYDRATED, sb.State)
		ev.Details = &agboxv1.SandboxEvent_Rehydrated{Rehydrated: found}
		t.count(sb.Desired.GetCaller(), usage{pending: -pendingIn(sb.State)})
		sb.State = agboxv1.SandboxState_SANDBOX_STATE_UNSPECIFIED // the state table allows this event only as the first of a record
		t.append(sb, ev)
		t.keep(sb, "")
		return nil
	})
}

// cancelled counts the active execs with an accepted cancel.
func (m *machine) cancelled(sb Sandbox) (n int) {
	for _, execID := range sb.ActiveExecs {
		e, err := m.s.Exec(ctx, execID)
		must(m.tb, err)
		if e.Desired.GetCancelRequestedAt() != 0 {
			n++
		}
	}
	return n
}

func (m *machine) frozen() []string {
	ids := []string{}
	for id, sb := range m.model.sandboxes {
		if sb.held() && sb.state() == paused && sb.demotedAt == 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		x, _, _, _ := m.model.sandboxes[a].derive()
		y, _, _, _ := m.model.sandboxes[b].derive()
		if c := x.Compare(y); c != 0 {
			return c
		}
		return slices.Index(modelIDs, a) - slices.Index(modelIDs, b)
	})
	return ids
}
