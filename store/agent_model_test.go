package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/agbox/agbox/apis/enum"

	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
)

// agentModel models one sandbox with a few agents as lists of events.
type agentModel struct {
	up, stopping bool // READY and wanted to run; READY with a stop requested; neither: STOPPED
	idleFrom     time.Time
	plain        map[string]bool // active execs of no agent
	plains       int
	agents       map[string]*modelAgent
	reserved     map[string]bool
	draining     bool
	drainAt      time.Time
}

type modelAgent struct {
	name        string
	run         storev1.AgentRun
	state       agboxv1.AgentState
	changedAt   time.Time
	incarnation uint64
	attempts    uint32
	parked      bool
	attention   bool
	saved       string
	active      map[uint64]bool // incarnations with an active exec
	queue       []*modelPrompt
	texts       map[string]string
	working     *modelPrompt
	interrupt   string
	transitions []string
	events      []*modelAgentEvent
	sequence    uint64
	open        string // message that was started and not completed
	messages    int
	stdout      int64
}

type modelPrompt struct {
	id      string
	claims  uint32
	strikes int
	held    bool
}

type modelAgentEvent struct {
	seq         uint64
	kind        string
	message     string
	part        int // -1: none
	incarnation uint64
}

func (a *modelAgent) tell(kind, message string, part int) {
	a.sequence++
	a.events = append(a.events, &modelAgentEvent{a.sequence, kind, message, part, a.incarnation})
}

// settleMessage drops all but the newest snapshot of each part.
func (a *modelAgent) settleMessage(message string) {
	var kept []*modelAgentEvent
	for i, ev := range a.events {
		newer := false
		for _, later := range a.events[i+1:] {
			newer = newer || ev.part >= 0 && later.part == ev.part && later.message == ev.message && later.incarnation == ev.incarnation
		}
		if ev.message != message || ev.incarnation != a.incarnation || !newer {
			kept = append(kept, ev)
		}
	}
	a.events = kept
}

func (a *modelAgent) waiting() (n int, first *modelPrompt) {
	for _, p := range a.queue {
		if !p.held && p != a.working {
			if n++; first == nil {
				first = p
			}
		}
	}
	return n, first
}

func (a *modelAgent) forget(p *modelPrompt) {
	for i, q := range a.queue {
		if q == p {
			a.queue = append(a.queue[:i:i], a.queue[i+1:]...)
			return
		}
	}
}

// agentMachine runs the store and the model side by side.
type agentMachine struct {
	t      *rapid.T
	tb     testing.TB
	s      *Store
	clock  *clock
	m      agentModel
	only   string // pick this agent
	opened func(*Store)
}

var agentModelIDs = []string{"a-1", "a-2", "a-3"}

func (m *agentMachine) pick() (string, *modelAgent) {
	id := m.only
	if id == "" {
		id = rapid.SampledFrom(agentModelIDs).Draw(m.t, "agent")
	}
	return id, m.m.agents[id]
}

func (m *agentMachine) ok(what string, want bool, err error) bool {
	if (err == nil) != want {
		m.t.Fatalf("%s: want ok %v, got %v", what, want, err)
	}
	return err == nil
}

func (m *agentMachine) changed(what string, ok, changes, changed bool, err error) bool {
	if m.ok(what, ok, err); changed != changes {
		m.t.Fatalf("%s: changed %v, want %v", what, changed, changes)
	}
	return changed
}

func (m *agentMachine) create() {
	id, _ := m.pick()
	name := rapid.SampledFrom([]string{"", "", "", "web"}).Draw(m.t, "name")
	taken := false
	for _, a := range m.m.agents {
		taken = taken || name != "" && a.name == name && a.run != storev1.AgentRun_AGENT_RUN_DELETE
	}
	spec := agentSpec("box")
	spec.InitialPrompt = rapid.SampledFrom([]string{"", "begin"}).Draw(m.t, "initial")
	_, err := m.s.CreateAgent(ctx, id, name, spec)
	if !m.ok("create", !m.m.reserved[id] && !taken, err) {
		return
	}
	a := &modelAgent{
		name: name, run: storev1.AgentRun_AGENT_RUN_RUN, state: agentPending, changedAt: m.clock.at,
		active: map[uint64]bool{}, texts: map[string]string{},
	}
	if spec.GetInitialPrompt() != "" {
		a.texts[InitialPromptID] = "begin"
		a.queue = append(a.queue, &modelPrompt{id: InitialPromptID})
	}
	m.m.agents[id], m.m.reserved[id] = a, true
}

func (m *agentMachine) run() {
	id, a := m.pick()
	ok := a != nil && a.run != storev1.AgentRun_AGENT_RUN_DELETE
	changes := ok && (a.run != storev1.AgentRun_AGENT_RUN_RUN || a.attention ||
		(a.state == agentStopped || a.state == agentFailed) && (!a.parked || a.attempts != 0))
	changed, err := m.s.RequestAgentRun(ctx, id)
	if m.changed("run", ok, changes, changed, err) {
		a.run, a.parked, a.attempts, a.attention = storev1.AgentRun_AGENT_RUN_RUN, true, 0, false
	}
}

func (m *agentMachine) stop() {
	id, a := m.pick()
	ok := a != nil && a.run != storev1.AgentRun_AGENT_RUN_DELETE
	changed, err := m.s.RequestAgentStop(ctx, id)
	if m.changed("stop", ok, ok && a.run != storev1.AgentRun_AGENT_RUN_STOP, changed, err) {
		a.run, a.parked = storev1.AgentRun_AGENT_RUN_STOP, false
	}
}

func (m *agentMachine) delete() {
	id, a := m.pick()
	changed, err := m.s.RequestAgentDelete(ctx, id)
	if m.changed("delete", a != nil, a != nil && a.run != storev1.AgentRun_AGENT_RUN_DELETE, changed, err) {
		a.run, a.parked = storev1.AgentRun_AGENT_RUN_DELETE, false
	}
}

func (m *agentMachine) remove() {
	id, a := m.pick()
	ok := a != nil && a.run == storev1.AgentRun_AGENT_RUN_DELETE && len(a.active) == 0
	if m.ok("remove", ok, m.s.RemoveAgent(ctx, id)) {
		delete(m.m.agents, id)
	}
}

func (m *agentMachine) interrupt() {
	id, a := m.pick()
	ok := a != nil && a.run != storev1.AgentRun_AGENT_RUN_DELETE && a.state == agentBusy
	changed, err := m.s.RequestInterrupt(ctx, id)
	if m.changed("interrupt", ok, ok && a.interrupt != a.working.id, changed, err) {
		a.interrupt = a.working.id
	}
}

func (m *agentMachine) prompt() {
	id, a := m.pick()
	promptID := fmt.Sprintf("p-%d", rapid.IntRange(1, 20).Draw(m.t, "prompt"))
	text := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(m.t, "text")
	ok := a != nil && a.run != storev1.AgentRun_AGENT_RUN_DELETE && (a.texts[promptID] == "" || a.texts[promptID] == text)
	q, err := m.s.QueuePrompt(ctx, id, promptID, text)
	if !m.ok("prompt", ok, err) || a.texts[promptID] != "" {
		return
	}
	ahead, _ := a.waiting()
	if a.working != nil {
		ahead++
	}
	if q.Ahead != ahead || q.Sequence != a.sequence || q.PromptID != promptID {
		m.t.Fatalf("queued %+v, want %d ahead, sequence %d", q, ahead, a.sequence)
	}
	a.texts[promptID] = text
	a.queue = append(a.queue, &modelPrompt{id: promptID})
}

func (m *agentMachine) gatesOpen(a *modelAgent) bool {
	return a.run == storev1.AgentRun_AGENT_RUN_RUN && m.m.up && !m.m.isDraining(m.clock.at)
}

func (m *agentModel) isDraining(now time.Time) bool {
	return m.draining && now.Sub(m.drainAt) < maxDrain
}

func (m *agentMachine) spawn() {
	id, a := m.pick()
	tr := Transition{Trigger: spawned, Spawn: execRequest("ignored", "ignored"), Attempts: rapid.Uint32Range(1, 5).Draw(m.t, "attempts")}
	if a != nil {
		tr.Incarnation = a.incarnation + uint64(rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(m.t, "next"))
	}
	_, changes, illegal := m.next(a, spawned)
	ok := a != nil && tr.Incarnation == a.incarnation+1 && illegal == nil && (!changes || m.gatesOpen(a))
	_, err := m.s.TransitionAgent(ctx, id, tr)
	if !m.ok("spawn", ok, err) || !changes {
		return
	}
	a.incarnation++
	a.active[a.incarnation] = true
	a.attempts, a.parked, a.attention, a.saved, a.stdout, a.open = tr.Attempts, false, false, "", 0, ""
	m.enter(a, agentStarting, spawned)
}

func (m *agentMachine) next(a *modelAgent, tr agboxv1.AgentTrigger) (to agboxv1.AgentState, changes bool, err error) {
	if a == nil {
		return 0, false, agentstate.ErrIllegal
	}
	return agentstate.Next(a.state, tr, agentstate.Options{})
}

func (m *agentMachine) enter(a *modelAgent, to agboxv1.AgentState, tr agboxv1.AgentTrigger) {
	a.transitions = append(a.transitions, fmt.Sprint(a.state, to, tr, a.incarnation))
	a.state, a.changedAt = to, m.clock.at
	a.tell(enum.Word(to), "", -1)
}
