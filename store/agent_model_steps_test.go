package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

func (m *agentMachine) trigger() {
	id, a := m.pick()
	tr := Transition{
		Trigger: rapid.SampledFrom([]agboxv1.AgentTrigger{crashed, connected, exited, parked, terminated, reconciled, resulted}).Draw(m.t, "trigger"),
		Parked:  rapid.Bool().Draw(m.t, "parked"), NeedsAttention: rapid.Bool().Draw(m.t, "attention"),
		Saved: rapid.SampledFrom([]string{"", Saved, NotSaved}).Draw(m.t, "saved"), Strike: rapid.Bool().Draw(m.t, "strike"),
	}
	late := false
	if a != nil {
		late = rapid.IntRange(0, 4).Draw(m.t, "late") == 0
		if tr.Incarnation = a.incarnation; late {
			tr.Incarnation = a.incarnation + 7
		}
	}
	m.apply(id, a, tr, late)
}

func (m *agentMachine) apply(id string, a *modelAgent, tr Transition, late bool) {
	to, changes, illegal := m.next(a, tr.Trigger)
	_, err := m.s.TransitionAgent(ctx, id, tr)
	if !m.ok(tr.Trigger.String(), a != nil && !late && illegal == nil, err) {
		return
	}
	a.parked, a.attention = a.parked || tr.Parked, a.attention || tr.NeedsAttention
	if tr.Saved != "" {
		a.saved = tr.Saved
	}
	if changes {
		m.leaveTurn(a, tr)
		m.enter(a, to, tr.Trigger)
	}
}

// forward takes the next step of an agent towards the end of a turn.
func (m *agentMachine) forward() {
	id, a := m.pick()
	m.only = id
	defer func() { m.only = "" }()
	switch {
	case a == nil:
		m.create()
	case a.state == agentStarting:
		m.apply(id, a, Transition{Trigger: connected, Incarnation: a.incarnation}, false)
	case a.state == agentIdle:
		m.prompt()
		m.claim()
	case a.state == agentBusy:
		m.ingest()
	default:
		m.run()
		m.spawn()
	}
}

// leaveTurn ends the turn of a BUSY agent.
func (m *agentMachine) leaveTurn(a *modelAgent, tr Transition) {
	p := a.working
	if a.state != agentBusy {
		return
	}
	a.working = nil
	if tr.Trigger == resulted {
		a.forget(p)
		return
	}
	if a.open != "" {
		a.settleMessage(a.open)
	}
	a.tell("ASSISTANT_COMPLETED", "", -1)
	if a.interrupt == p.id {
		a.forget(p)
		return
	}
	if tr.Strike {
		p.strikes++
	}
	p.held = p.strikes >= 2
}

func (m *agentMachine) claim() {
	id, a := m.pick()
	var p *modelPrompt
	if a != nil {
		_, p = a.waiting()
	}
	version := uint64(0)
	if have, err := m.s.Agent(ctx, id); err == nil && rapid.Bool().Draw(m.t, "by version") {
		version = have.Status.GetVersion()
	}
	_, got, err := m.s.ClaimPrompt(ctx, id, version, Claim{InboxOffset: 7, Past: "before"})
	if !m.ok("claim", a != nil && a.state == agentIdle && p != nil && m.gatesOpen(a), err) {
		return
	}
	p.claims++
	if got.GetPromptId() != p.id || got.GetClaims() != p.claims || got.GetIncarnation() != a.incarnation || got.GetText() != a.texts[p.id] {
		m.t.Fatalf("claimed %v, want %+v", got, p)
	}
	a.working, a.parked = p, false
	for _, kind := range []string{"MESSAGE_CREATED", "MESSAGE_PART_UPDATED", "MESSAGE_COMPLETED"} {
		a.tell(kind, "prompt."+p.id, -1)
	}
	m.enter(a, agentBusy, agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED)
}

// ingest ingests several outputs at once: parts of messages, results, readiness, checkpoints.
func (m *agentMachine) ingest() {
	id, a := m.pick()
	if a == nil || a.incarnation == 0 {
		return
	}
	from := &storev1.AgentPosition{Incarnation: a.incarnation, StdoutOffset: a.stdout}
	to := proto.CloneOf(from)
	to.StdoutOffset++
	stale := rapid.IntRange(0, 5).Draw(m.t, "stale") == 0
	if stale {
		from.StdoutOffset += 5
	}
	draft := *a
	draft.events = slices.Clone(a.events)
	draft.transitions, draft.queue = slices.Clone(a.transitions), slices.Clone(a.queue)
	var out []AgentOutput
	for range rapid.IntRange(0, 6).Draw(m.t, "outputs") {
		out = append(out, m.say(&draft))
	}
	if m.ok("ingest", !stale, m.s.Ingest(ctx, id, a.incarnation, from, to, out)) {
		*a = draft
		a.stdout++
	}
}

func (m *agentMachine) say(a *modelAgent) AgentOutput {
	switch what := rapid.SampledFrom([]string{"part", "part", "part", "end", "result", "ready", "checkpoint"}).Draw(m.t, "say"); {
	case what == "ready":
		m.heard(a, connected)
		return AgentOutput{Ready: true}
	case what == "result":
		a.tell("ASSISTANT_COMPLETED", "", -1)
		m.heard(a, resulted)
		return resultOutput("end_turn")
	case what == "checkpoint":
		a.tell("CHECKPOINT", "", -1)
		return AgentOutput{Event: checkpointEvent("c")}
	case a.open == "":
		a.messages++
		a.open = fmt.Sprintf("m.%d", a.messages)
		a.tell("MESSAGE_CREATED", a.open, -1)
		return AgentOutput{Event: messageBegins(a.open)}
	case what == "end":
		open := a.open
		a.open = ""
		a.tell("MESSAGE_COMPLETED", open, -1)
		a.settleMessage(open)
		return AgentOutput{Event: messageEnds(open)}
	}
	part := rapid.IntRange(0, 2).Draw(m.t, "part")
	a.tell("MESSAGE_PART_UPDATED", a.open, part)
	return AgentOutput{Event: partEvent(a.open, uint32(part), "text")}
}

func (m *agentMachine) heard(a *modelAgent, tr agboxv1.AgentTrigger) {
	if to, changes, err := m.next(a, tr); err == nil && changes {
		m.leaveTurn(a, Transition{Trigger: tr})
		m.enter(a, to, tr)
	}
}

func (m *agentMachine) endExec() {
	id, a := m.pick()
	if a == nil || len(a.active) == 0 {
		return
	}
	for n := range a.active {
		must(m.tb, m.s.EndExec(ctx, execid.ForAgent(id, n), finished()))
		delete(a.active, n)
		m.execEnded()
		return
	}
}

func (m *agentMachine) execEnded() {
	if (m.m.up || m.m.stopping) && len(m.m.plain) == 0 {
		m.m.idleFrom = m.clock.at
	}
}

func (m *agentMachine) plainExec() {
	if !m.m.up {
		return
	}
	m.m.plains++
	id := fmt.Sprintf("plain-%d", m.m.plains)
	_, err := m.s.CreateExec(ctx, execRequest("box", id), Caller{})
	m.ok("exec", true, err)
	m.m.plain[id] = true
	m.m.idleFrom = time.Time{}
}

func (m *agentMachine) endPlain() {
	for id := range m.m.plain {
		must(m.tb, m.s.EndExec(ctx, id, finished()))
		delete(m.m.plain, id)
		m.execEnded()
		return
	}
}

// box advances the sandbox: a stop is requested, it is stopped, it is resumed.
func (m *agentMachine) box() {
	var err error
	switch {
	case m.m.up:
		_, err = m.s.RequestStop(ctx, "box", "stop_requested")
		m.m.up, m.m.stopping = false, true
	case m.m.stopping:
		report(m.tb, m.s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
		m.m.stopping, m.m.idleFrom = false, time.Time{}
	default:
		_, err = m.s.RequestResume(ctx, "box")
		report(m.tb, m.s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
		if m.m.up = true; len(m.m.plain) == 0 {
			m.m.idleFrom = m.clock.at
		}
	}
	m.ok("box", true, err)
}

func (m *agentMachine) drain() {
	_, err := m.s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Wait: time.Minute})
	if !m.ok("drain", !m.m.isDraining(m.clock.at), err) {
		return
	}
	m.m.draining, m.m.drainAt = true, m.clock.at
	m.mark(true)
}

func (m *agentMachine) undrain() {
	changed, err := m.s.WithdrawDrain(ctx)
	if m.changed("undrain", true, m.m.isDraining(m.clock.at), changed, err) {
		m.m.draining = false
		m.mark(false)
	}
}

func (m *agentMachine) mark(parked bool) {
	for _, a := range m.m.agents {
		if livesInModel(a) && a.run == storev1.AgentRun_AGENT_RUN_RUN {
			a.parked = parked
		}
	}
	m.tellDrain()
}

func (m *agentMachine) tellDrain() {
	for _, a := range m.m.agents {
		if a.run == storev1.AgentRun_AGENT_RUN_RUN && (livesInModel(a) || a.parked) {
			a.tell("DRAIN_PHASE", "", -1)
		}
	}
}

func livesInModel(a *modelAgent) bool {
	return a.state == agentStarting || a.state == agentIdle || a.state == agentBusy
}

func (m *agentMachine) restart() {
	must(m.tb, m.s.Close())
	s, err := Open(ctx, m.s.o)
	if err != nil {
		m.t.Fatal(err)
	}
	if m.s = s; m.opened != nil {
		m.opened(s)
	}
	if rapid.Bool().Draw(m.t, "epoch") {
		_, err := m.s.NewEpoch(ctx)
		m.ok("epoch", true, err)
		if m.m.isDraining(m.clock.at) {
			m.tellDrain()
		}
		m.m.draining = false
	}
}

func (m *agentMachine) hour() { m.clock.pass(time.Hour) }

// actions returns the actions of the state machine.
func (m *agentMachine) actions() map[string]func(*rapid.T) {
	action := func(fn func()) func(*rapid.T) {
		return func(rt *rapid.T) { m.t = rt; m.clock.pass(time.Second); fn() }
	}
	return map[string]func(*rapid.T){
		// The names set the order: rapid draws the first ones more often.
		"1 forward": action(m.forward), "2 forward": action(m.forward), "3 forward": action(m.forward), "4 ingest": action(m.ingest),
		"5 interrupt": action(m.interrupt), "6 trigger": action(m.trigger), "7 restart": action(m.restart),
		"create": action(m.create), "run": action(m.run), "stop": action(m.stop),
		"delete": action(m.delete), "remove": action(m.remove), "interrupt": action(m.interrupt),
		"prompt": action(m.prompt), "spawn": action(m.spawn),
		"trigger": action(m.trigger), "claim": action(m.claim),
		"ingest": action(m.ingest), "ingest again": action(m.ingest), "end exec": action(m.endExec),
		"plain exec": action(m.plainExec), "end plain": action(m.endPlain), "box": action(m.box), "drain": action(m.drain),
		"undrain": action(m.undrain), "restart": action(m.restart), "hour": action(m.hour),
		"": func(rt *rapid.T) { m.t = rt; m.check() },
	}
}

func TestAgentsAreLikeTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := testOptions(t)
		c := newClock()
		s, err := Open(ctx, c.options(o))
		must(t, err)
		makeReady(t, s, "box")
		m := &agentMachine{t: rt, tb: t, s: s, clock: c, m: agentModel{
			up: true, idleFrom: c.at, plain: map[string]bool{}, agents: map[string]*modelAgent{}, reserved: map[string]bool{},
		}}
		defer func() { must(t, m.s.Close()) }()
		rt.Repeat(m.actions())
		must(t, m.s.Close())
		if all := findings(t, o.Path); len(all) > 0 {
			rt.Fatalf("findings: %v", all)
		}
	})
}
