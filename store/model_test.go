package store

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// model models the store as a few maps and the whole history: it derives everything from all events each time.
type model struct {
	sandboxes map[string]*modelSandbox
	reserved  map[string]bool
	execs     map[string]string // every ID ever used -> sandbox
}

type modelSandbox struct {
	name       string
	run        storev1.RunState
	attempt    storev1.Attempt
	generation uint64
	events     []modelEvent
	active     map[string]bool
	deleted    bool
	port       uint32
	team       string
	cpu        float64
	limits     bool // pending
	progress   *storev1.Progress
	before     int // number of events when the limit was last changed
	modelLife
}

type modelEvent struct {
	typ   agboxv1.EventType
	state agboxv1.SandboxState
	code  string
	at    time.Time
	found *agboxv1.RehydratedDetails // set for a rebuilt record
}

// begun returns the start of the run that ev starts, and the start of the idle time if the sandbox is READY.
func (ev modelEvent) begun() (since, idle time.Time) {
	if ev.found == nil {
		return ev.at, ev.at
	}
	return ev.found.GetStateChangedAt().AsTime(), ev.found.GetIdleSince().AsTime()
}

func (m *modelSandbox) state() agboxv1.SandboxState {
	for _, ev := range slices.Backward(m.events) {
		if ev.state != 0 {
			return ev.state
		}
	}
	return 0
}

// derive is written from the comments of Sandbox, independently of the store's code.
func (m *modelSandbox) derive() (changedAt, idleSince time.Time, code string, preparing bool) {
	var state agboxv1.SandboxState
	run := 0
	for i, ev := range m.events {
		if ev.state != 0 && (ev.state != state || ev.found != nil) {
			state, run = ev.state, i
		}
	}
	changedAt, idleSince = m.events[run].begun()
	for _, ev := range m.events[run:] {
		switch ev.typ {
		case agboxv1.EventType_SANDBOX_RESTARTED, agboxv1.EventType_SANDBOX_READY, agboxv1.EventType_EXEC_FINISHED:
			idleSince = ev.at
		}
		if ev.typ == agboxv1.EventType_SANDBOX_FAILED || ev.found != nil && state == failed {
			code = ev.code
		}
		preparing = preparing || ev.typ == agboxv1.EventType_SANDBOX_PREPARING || ev.found.GetPreparing()
	}
	if state != ready || len(m.active) > 0 {
		idleSince = time.Time{}
	}
	preparing = preparing && state == pending && m.attempt == storev1.Attempt_ATTEMPT_CREATE
	return changedAt, idleSince, code, preparing
}

// machine runs the store and the model side by side.
type machine struct {
	t     *rapid.T
	tb    testing.TB
	s     *Store
	clock *clock
	model model
	limit int
}

var (
	modelIDs   = []string{"box-1", "box-2", "box-3"}
	modelNames = []string{"", "", "web", "db"}
	modelExecs = []string{"exec-1", "exec-2", "exec-3", "exec-4", "exec-5", "exec-6", "exec-7", "exec-8"}
)

func (m *machine) pick() (string, *modelSandbox) {
	id := rapid.SampledFrom(modelIDs).Draw(m.t, "id")
	return id, m.model.sandboxes[id]
}

func (m *machine) outcome(what string, wantOK bool, err error) bool {
	if (err == nil) != wantOK {
		m.t.Fatalf("%s: want ok %v, got %v", what, wantOK, err)
	}
	return err == nil
}

func (m *machine) log(sb *modelSandbox, typ agboxv1.EventType, state agboxv1.SandboxState, code string) {
	sb.events = append(sb.events, modelEvent{typ: typ, state: state, code: code, at: m.clock.at})
}

func (m *machine) nameTaken(name string) bool {
	for _, sb := range m.model.sandboxes {
		if name != "" && sb.name == name && sb.run != storev1.RunState_RUN_STATE_DELETE {
			return true
		}
	}
	return false
}

func (m *machine) portTaken(port uint32) bool {
	for _, sb := range m.model.sandboxes {
		if port != 0 && sb.port == port && sb.run != storev1.RunState_RUN_STATE_DELETE && sb.state() != failed {
			return true
		}
	}
	return false
}

func (m *modelSandbox) spec() *agboxv1.CreateSpec {
	out := spec()
	out.Labels["team"], out.CpuLimit = m.team, m.cpu
	out.Timeout, out.OnTimeout, out.AutoResume = m.specTimeout(), m.onTimeout, m.autoResume
	if m.port != 0 {
		out.OptionalServices = []*agboxv1.ServiceSpec{{Name: "db", Ports: []*agboxv1.PortSpec{{ContainerPort: 1, HostPort: m.port}}}}
	}
	return out
}

func (m *machine) create() {
	id, _ := m.pick()
	name := rapid.SampledFrom(modelNames).Draw(m.t, "name")
	sb := &modelSandbox{name: name, run: 1, attempt: 1, generation: 1, active: map[string]bool{}, modelLife: modelLife{cancelled: map[string]bool{}}, team: "a", progress: &storev1.Progress{}}
	sb.port = rapid.SampledFrom([]uint32{0, 0, 8080, 8081}).Draw(m.t, "port")
	sb.timeout, sb.onTimeout, sb.autoResume = m.drawTimeout(), m.drawOnTimeout(), rapid.Bool().Draw(m.t, "auto_resume")
	_, err := m.s.CreateSandbox(ctx, id, name, sb.spec(), &Resolved{
		Tools: []*storev1.ToolMount{{Tool: "git", Source: id}}, Confinement: &storev1.Confinement{Profile: id}, Caller: m.drawCaller(),
	})
	if !m.outcome("create", !m.model.reserved[id] && !m.nameTaken(name) && !m.portTaken(sb.port), err) {
		return
	}
	m.log(sb, agboxv1.EventType_SANDBOX_ACCEPTED, pending, "")
	m.model.sandboxes[id], m.model.reserved[id] = sb, true
}

func (m *machine) intent(what string, ok, changes bool, changed bool, err error) bool {
	m.outcome(what, ok, err)
	if changed != changes {
		m.t.Fatalf("%s: changed %v, want %v", what, changed, changes)
	}
	return changed
}

func (m *machine) stop() {
	id, sb := m.pick()
	ok := sb != nil && (sb.state() == ready || sb.state() == paused)
	changed, err := m.s.RequestStop(ctx, id, "stop_requested")
	if m.intent("stop", ok, ok && sb.run != storev1.RunState_RUN_STATE_STOP, changed, err) {
		m.stopped(sb)
	}
}

func (m *machine) idleStop() {
	id, sb := m.pick()
	const ttl = 2 * time.Second
	changes := false
	if sb != nil && sb.state() == ready && sb.run == storev1.RunState_RUN_STATE_RUN {
		_, idle, _, _ := sb.derive()
		changes = !idle.IsZero() && m.clock.at.Sub(idle) >= ttl
	}
	changed, err := m.s.RequestIdleStop(ctx, id, ttl, m.s.moment())
	if m.intent("idle stop", sb != nil, changes, changed, err) {
		m.stopped(sb)
	}
}

func (m *machine) diskStop() {
	id, sb := m.pick()
	is, _ := m.s.Sandbox(ctx, id)
	older := time.Duration(rapid.IntRange(0, 1).Draw(m.t, "older"))
	changes := sb != nil && sb.state() == ready && sb.run == storev1.RunState_RUN_STATE_RUN && older == 0
	changed, err := m.s.RequestDiskStop(ctx, id, is.StateChangedAt.Add(-older), "")
	if m.intent("disk stop", sb != nil, changes, changed, err) {
		m.stopped(sb)
	}
}

func (m *machine) resume() {
	id, sb := m.pick()
	under := sb != nil && sb.state() == pending && sb.attempt == storev1.Attempt_ATTEMPT_RESUME
	can := sb != nil && (sb.state() == stopped && sb.run == storev1.RunState_RUN_STATE_STOP || sb.held())
	changed, err := m.s.RequestResume(ctx, id)
	if m.intent("resume", under || can, can, changed, err) {
		m.resumed(sb)
	}
}

func (m *machine) cleanup() {
	id, sb := m.pick()
	const ttl = 3 * time.Second
	changes := false
	if sb != nil && (sb.state() == failed || sb.state() == stopped && sb.run == storev1.RunState_RUN_STATE_STOP) {
		since, _, _, _ := sb.derive()
		changes = m.clock.at.Sub(since) >= ttl
	}
	changed, err := m.s.RequestCleanup(ctx, id, ttl, m.s.moment())
	changes = changes && sb.run != storev1.RunState_RUN_STATE_DELETE
	if m.intent("cleanup", sb != nil, changes, changed, err) {
		m.deleting(sb)
	}
}

// updateSpec changes label and limit, unless both have the drawn values already.
func (m *machine) updateSpec() {
	id, sb := m.pick()
	team := rapid.SampledFrom([]string{"a", "b"}).Draw(m.t, "team")
	cpu := rapid.SampledFrom([]float64{1, 2}).Draw(m.t, "cpu")
	updated, changed, err := m.s.UpdateSpec(ctx, id, 0, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
		var paths []string
		if old.GetCpuLimit() != cpu {
			paths = append(paths, "cpu_limit")
		}
		if old.GetLabels()["team"] != team {
			paths = append(paths, "labels[team]")
		}
		limits := old.GetCpuLimit() != cpu
		old.Labels["team"], old.CpuLimit = team, cpu // a copy
		return old, paths, limits, nil
	})
	if !m.outcome("update", sb != nil && !sb.deleted && sb.run != storev1.RunState_RUN_STATE_DELETE, err) {
		return
	}
	differs := sb.team != team || sb.cpu != cpu
	if differs != (len(changed) > 0) {
		m.t.Fatalf("update of %s from %v, %q to %v, %q: %v", id, sb.cpu, sb.team, cpu, team, changed)
	}
	if differs {
		sb.generation++
		sb.limits = sb.limits || sb.cpu != cpu
		sb.team, sb.cpu = team, cpu
		m.log(sb, agboxv1.EventType_SANDBOX_SPEC_CHANGED, 0, "")
	}
	m.compare(updated, sb)
}

func (m *machine) setLimit() {
	m.limit = rapid.SampledFrom([]int{0, 2, 4, 9}).Draw(m.t, "limit")
	m.s.SetEventHistoryLimit(m.limit)
	for _, sb := range m.model.sandboxes {
		sb.before = len(sb.events)
	}
}

func (m *machine) delete() {
	id, sb := m.pick()
	changed, err := m.s.RequestDelete(ctx, id, "delete_requested")
	if m.intent("delete", sb != nil, sb != nil && sb.run != storev1.RunState_RUN_STATE_DELETE, changed, err) {
		m.deleting(sb)
	}
}

func (m *machine) exec() {
	id, sb := m.pick()
	execID := rapid.SampledFrom(modelExecs).Draw(m.t, "exec")
	_, used := m.model.execs[execID]
	wakes := sb != nil && sb.autoResume && sb.held()
	resuming := sb != nil && sb.autoResume && sb.state() == pending && sb.attempt == storev1.Attempt_ATTEMPT_RESUME
	ok := sb != nil && sb.state() == ready && sb.run == storev1.RunState_RUN_STATE_RUN
	_, err := m.s.CreateExec(ctx, execRequest(id, execID), m.drawCaller())
	if m.outcome("exec", (ok || wakes || resuming) && !used, err) {
		if wakes {
			m.resumed(sb)
		}
		m.model.execs[execID] = id
		sb.active[execID] = true
		m.log(sb, agboxv1.EventType_EXEC_STARTED, 0, "")
	}
}

func (m *machine) endExec() {
	execID := rapid.SampledFrom(modelExecs).Draw(m.t, "exec")
	sb := m.model.sandboxes[m.model.execs[execID]]
	err := m.s.EndExec(ctx, execID, finished())
	if m.outcome("end exec", sb != nil, err) && sb.active[execID] {
		delete(sb.active, execID)
		delete(sb.cancelled, execID)
		m.log(sb, agboxv1.EventType_EXEC_FINISHED, 0, "")
	}
}

func (m *machine) purge() {
	id, sb := m.pick()
	if m.outcome("purge", sb != nil && sb.deleted, m.s.PurgeSandbox(ctx, id)) {
		delete(m.model.sandboxes, id)
	}
}

func (m *machine) reopen() {
	must(m.tb, m.s.Close())
	m.s.o.EventHistoryLimit = m.limit
	s, err := Open(ctx, m.s.o)
	if err != nil {
		m.t.Fatal(err)
	}
	m.s = s
}

func TestStoreIsLikeTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := testOptions(t)
		c := newClock()
		s, err := Open(ctx, c.options(o))
		must(t, err)
		m := &machine{t: rt, tb: t, s: s, clock: c, model: model{map[string]*modelSandbox{}, map[string]bool{}, map[string]string{}}}
		defer func() { must(t, m.s.Close()) }()
		action := func(fn func()) func(*rapid.T) {
			return func(rt *rapid.T) { m.t = rt; c.pass(time.Second); fn() }
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": action(m.create), "stop": action(m.stop), "idle stop": action(m.idleStop), "disk stop": action(m.diskStop), "resume": action(m.resume),
			"delete": action(m.delete), "report": action(m.report), "report again": action(m.report),
			"exec": action(m.exec), "end exec": action(m.endExec),
			"purge": action(m.purge), "reopen": action(m.reopen), "cleanup": action(m.cleanup),
			"update": action(m.updateSpec), "limit": action(m.setLimit), "exec again": action(m.exec), "end exec again": action(m.endExec),
			"pause": action(m.pause), "pause again": action(m.pause), "demote": action(m.demote), "pause cleanup": action(m.pauseCleanup),
			"set timeout": action(m.setTimeout), "expire": action(m.expire), "update timeout": action(m.updateTimeout),
			"clock set back": action(m.setBack), "rebuild": action(m.rebuild),
			"": func(rt *rapid.T) { m.t = rt; m.check() },
		})
	})
}
