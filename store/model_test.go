package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// model is the store as a few maps and the whole history: it derives everything from all events each time.
type model struct {
	sandboxes map[string]*modelSandbox
	reserved  map[string]bool
	execs     map[string]string // ever used -> sandbox
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
	before     int // events that were there when the limit was last changed
}

type modelEvent struct {
	typ   agboxv1.EventType
	state agboxv1.SandboxState
	code  string
	at    time.Time
}

func (m *modelSandbox) state() agboxv1.SandboxState {
	for _, ev := range slices.Backward(m.events) {
		if ev.state != 0 {
			return ev.state
		}
	}
	return 0
}

// derive is written from the comments of Sandbox, not from the store's code.
func (m *modelSandbox) derive() (changedAt, idleSince time.Time, code string, preparing bool) {
	state := m.state()
	run := len(m.events)
	for run > 0 && (m.events[run-1].state == 0 || m.events[run-1].state == state) {
		run--
	}
	for m.events[run].state == 0 { // exec events before the run's first are not of it
		run++
	}
	changedAt = m.events[run].at
	for i, ev := range m.events[run:] {
		switch {
		case i == 0, ev.typ == agboxv1.EventType_SANDBOX_RESTARTED, ev.typ == agboxv1.EventType_SANDBOX_READY,
			ev.typ == agboxv1.EventType_EXEC_FINISHED:
			idleSince = ev.at
		}
		if ev.typ == agboxv1.EventType_SANDBOX_FAILED {
			code = ev.code
		}
		preparing = preparing || ev.typ == agboxv1.EventType_SANDBOX_PREPARING
	}
	if state != ready || len(m.active) > 0 {
		idleSince = time.Time{}
	}
	preparing = preparing && state == pending && m.attempt == storev1.Attempt_ATTEMPT_CREATE
	return changedAt, idleSince, code, preparing
}

// machine runs the store beside the model.
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
	sb.events = append(sb.events, modelEvent{typ, state, code, m.clock.at})
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
	if m.port != 0 {
		out.OptionalServices = []*agboxv1.ServiceSpec{{Name: "db", Ports: []*agboxv1.PortSpec{{ContainerPort: 1, HostPort: m.port}}}}
	}
	return out
}

func (m *machine) create() {
	id, _ := m.pick()
	name := rapid.SampledFrom(modelNames).Draw(m.t, "name")
	sb := &modelSandbox{name: name, run: 1, attempt: 1, generation: 1, active: map[string]bool{}, team: "a", progress: &storev1.Progress{}}
	sb.port = rapid.SampledFrom([]uint32{0, 0, 8080, 8081}).Draw(m.t, "port")
	_, err := m.s.CreateSandbox(ctx, id, name, sb.spec(), []*storev1.ToolMount{{Tool: "git", Source: id}})
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
	ok := sb != nil && sb.state() == ready
	changed, err := m.s.RequestStop(ctx, id, "stop_requested")
	if m.intent("stop", ok, ok && sb.run == storev1.RunState_RUN_STATE_RUN, changed, err) {
		sb.run = storev1.RunState_RUN_STATE_STOP
		sb.generation++
		m.log(sb, agboxv1.EventType_SANDBOX_STOP_REQUESTED, ready, "")
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
	changed, err := m.s.RequestIdleStop(ctx, id, ttl)
	if m.intent("idle stop", sb != nil, changes, changed, err) {
		sb.run = storev1.RunState_RUN_STATE_STOP
		sb.generation++
		m.log(sb, agboxv1.EventType_SANDBOX_STOP_REQUESTED, ready, "")
	}
}

func (m *machine) resume() {
	id, sb := m.pick()
	under := sb != nil && sb.state() == pending && sb.attempt == storev1.Attempt_ATTEMPT_RESUME
	can := sb != nil && sb.state() == stopped && sb.run == storev1.RunState_RUN_STATE_STOP
	changed, err := m.s.RequestResume(ctx, id)
	if m.intent("resume", under || can, can, changed, err) {
		sb.run, sb.attempt = storev1.RunState_RUN_STATE_RUN, storev1.Attempt_ATTEMPT_RESUME
		sb.generation++
		sb.progress = &storev1.Progress{HooksDone: sb.progress.GetHooksDone()}
		m.log(sb, agboxv1.EventType_SANDBOX_ACCEPTED, pending, "")
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
	changed, err := m.s.RequestCleanup(ctx, id, ttl)
	changes = changes && sb.run != storev1.RunState_RUN_STATE_DELETE
	if m.intent("cleanup", sb != nil, changes, changed, err) {
		sb.run = storev1.RunState_RUN_STATE_DELETE
		sb.generation++
		m.log(sb, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting, "")
	}
}

// updateSpec changes label and limit, or finds that they are as they should be.
func (m *machine) updateSpec() {
	id, sb := m.pick()
	team := rapid.SampledFrom([]string{"a", "b"}).Draw(m.t, "team")
	cpu := rapid.SampledFrom([]float64{1, 2}).Draw(m.t, "cpu")
	updated, changed, err := m.s.UpdateSpec(ctx, id, func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
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
		sb.run = storev1.RunState_RUN_STATE_DELETE
		sb.generation++
		m.log(sb, agboxv1.EventType_SANDBOX_DELETE_REQUESTED, deleting, "")
	}
}

// reports that a pass could make for a sandbox in some state.
var reports = map[agboxv1.SandboxState][]modelEvent{
	pending: {{typ: agboxv1.EventType_IMAGE_PULLING}, {typ: agboxv1.EventType_SANDBOX_PREPARING, state: pending}, {typ: agboxv1.EventType_SANDBOX_READY, state: ready}, {typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "SANDBOX_CREATE_FAILED"}},
	ready: {{typ: agboxv1.EventType_SANDBOX_SERVICE_FAILED}, {typ: agboxv1.EventType_SANDBOX_SERVICE_READY, state: ready}, {typ: agboxv1.EventType_SANDBOX_RESTARTED, state: ready},
		{typ: agboxv1.EventType_SANDBOX_STOPPED, state: stopped}, {typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "CONTAINER_DIED"}},
	failed:   {{typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "SANDBOX_STOP_FAILED"}},
	stopped:  {{typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "CONTAINER_MISSING"}},
	deleting: {{typ: agboxv1.EventType_SANDBOX_DELETED, state: deleted}, {typ: agboxv1.EventType_SANDBOX_SERVICE_FAILED, state: deleting}},
	deleted:  {{typ: agboxv1.EventType_SANDBOX_SERVICE_FAILED, state: deleted}},
}

func (m *machine) report() {
	id, sb := m.pick()
	if sb == nil {
		return
	}
	ev := rapid.SampledFrom(reports[sb.state()]).Draw(m.t, "event")
	old := rapid.IntRange(0, 9).Draw(m.t, "old generation") == 0
	generation := sb.generation
	if old {
		generation--
	}
	sent := phase(ev.typ, ev.state)
	if ev.code != "" {
		sent = failure(ev.code)
	}
	r := Report{Generation: generation, Events: []*agboxv1.SandboxEvent{sent}, LimitsApplied: rapid.Bool().Draw(m.t, "limits applied")}
	if hooks := rapid.Uint32Range(0, 3).Draw(m.t, "progress"); hooks > 0 {
		r.Progress = &storev1.Progress{HooksDone: hooks, Restarts: &storev1.Restarts{Count: 1}}
	}
	err := m.s.Report(ctx, id, r)
	tooEarly := ev.state == deleted && len(sb.active) > 0
	if m.outcome(fmt.Sprintf("report %v", ev.typ), !old && !sb.deleted && !tooEarly, err) {
		m.log(sb, ev.typ, ev.state, ev.code)
		sb.deleted = ev.state == deleted
		sb.limits = sb.limits && !r.LimitsApplied
		if r.Progress != nil {
			sb.progress = r.Progress
		}
	}
}

func (m *machine) exec() {
	id, sb := m.pick()
	execID := rapid.SampledFrom(modelExecs).Draw(m.t, "exec")
	_, used := m.model.execs[execID]
	_, err := m.s.CreateExec(ctx, execRequest(id, execID))
	ok := sb != nil && sb.state() == ready && sb.run == storev1.RunState_RUN_STATE_RUN && !used
	if m.outcome("exec", ok, err) {
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
			"create": action(m.create), "stop": action(m.stop), "idle stop": action(m.idleStop), "resume": action(m.resume),
			"delete": action(m.delete), "report": action(m.report), "report again": action(m.report),
			"exec": action(m.exec), "end exec": action(m.endExec),
			"purge": action(m.purge), "reopen": action(m.reopen), "cleanup": action(m.cleanup),
			"update": action(m.updateSpec), "limit": action(m.setLimit), "exec again": action(m.exec), "end exec again": action(m.endExec),
			"": func(rt *rapid.T) { m.t = rt; m.check() },
		})
	})
}
