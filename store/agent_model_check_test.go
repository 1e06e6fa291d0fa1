package store

import (
	"fmt"
	"slices"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// check compares everything readable.
func (m *agentMachine) check() {
	if got := m.s.LiveAgentIDs(); len(got) != len(m.m.agents) || !slices.Equal(got, m.s.AgentsOf("box")) {
		m.t.Fatalf("agents %v of %d, of the box %v", got, len(m.m.agents), m.s.AgentsOf("box"))
	}
	for _, a := range m.s.Agents(AgentFilter{SandboxID: "box"}) {
		m.compare(a, m.m.agents[a.ID])
	}
	sb, err := m.s.Sandbox(ctx, "box")
	if want := m.idleSince(); err != nil || !sb.IdleSince.Equal(want) {
		m.t.Fatalf("idle since %v, want %v, %v", sb.IdleSince, want, err)
	}
	if got := m.s.Drain() != nil; got != m.m.isDraining(m.clock.at) {
		m.t.Fatalf("draining: %v", got)
	}
	if c := m.s.Corrupt(); len(c) > 0 {
		m.t.Fatalf("corrupt: %v", c)
	}
}

func (m *agentMachine) idleSince() time.Time {
	if !m.m.up && !m.m.stopping || len(m.m.plain) > 0 {
		return time.Time{}
	}
	since := m.m.idleFrom
	for _, a := range m.m.agents {
		if a.state == agentBusy {
			return time.Time{}
		}
		if a.changedAt.After(since) {
			since = a.changedAt
		}
	}
	return since
}

func (m *agentMachine) compare(got Agent, want *modelAgent) {
	waiting, first := want.waiting()
	working := ""
	if want.working != nil {
		working = want.working.id
	}
	st := got.Status
	same := got.Name == want.name && got.Desired.GetRun() == want.run && got.Queued == waiting &&
		st.GetState() == want.state && st.GetStateChangedAt() == want.changedAt.UnixNano() && st.GetIncarnation() == want.incarnation &&
		st.GetAttempts() == want.attempts && st.GetParked() == want.parked && st.GetNeedsAttention() == want.attention &&
		st.GetSaved() == want.saved && st.GetPromptId() == working && st.GetLastSequence() == want.sequence &&
		st.GetTransitions() == uint64(len(want.transitions))
	if !same {
		m.t.Fatalf("%s is %+v\nwant %+v, %d waiting, working on %q", got.ID, got, want, waiting, working)
	}
	m.comparePrompts(got.ID, want, first)
	events, err := m.s.AgentEvents(ctx, got.ID, 0, 0)
	m.ok("events", true, err)
	var wanted []string
	for _, ev := range want.events {
		wanted = append(wanted, fmt.Sprint(ev.seq, " ", ev.kind))
	}
	if have := kinds(events); !slices.Equal(have, wanted[:min(len(wanted), maxRead)]) {
		m.t.Fatalf("events of %s\n%v\nwant\n%v", got.ID, have, wanted)
	}
	list, err := m.s.Transitions(ctx, got.ID, 0, 0)
	m.ok("transitions", true, err)
	for i, tr := range list {
		if have := fmt.Sprint(tr.GetFrom(), tr.GetTo(), tr.GetTrigger(), tr.GetIncarnation()); have != want.transitions[i] {
			m.t.Fatalf("transition %d is %s, want %s", i, have, want.transitions[i])
		}
	}
}

func (m *agentMachine) comparePrompts(id string, want *modelAgent, first *modelPrompt) {
	list, err := m.s.QueuedPrompts(ctx, id, 0)
	m.ok("prompts", true, err)
	var have, wanted []string
	for _, p := range list {
		have = append(have, fmt.Sprint(p.GetPromptId(), p.GetClaims(), p.GetHeld()))
	}
	for _, p := range want.queue {
		if p != want.working {
			wanted = append(wanted, fmt.Sprint(p.id, p.claims, p.held))
		}
	}
	if !slices.Equal(have, wanted) {
		m.t.Fatalf("prompts of %s are %v, want %v", id, have, wanted)
	}
	next, err := nextPrompt(m.s, id)
	if err != nil || (next == nil) != (first == nil) || first != nil && next.GetPromptId() != first.id {
		m.t.Fatalf("next prompt of %s is %v, %v, want %+v", id, next, err, first)
	}
	claimed, err := m.s.ClaimedPrompt(ctx, id)
	if err != nil || (claimed == nil) != (want.working == nil) || claimed != nil && claimed.GetPromptId() != want.working.id {
		m.t.Fatalf("claimed prompt of %s is %v, %v, want %+v", id, claimed, err, want.working)
	}
	m.compareCounts()
}

func (m *agentMachine) compareCounts() {
	want, inNeed := map[agboxv1.AgentState]int{}, 0
	for _, a := range m.m.agents {
		want[a.state]++
		if a.attention {
			inNeed++
		}
	}
	if n := m.s.CountAgentsInNeed(); n != inNeed {
		m.t.Fatalf("%d agents need attention, want %d", n, inNeed)
	}
	for state, n := range m.s.CountAgentsByState() {
		if want[state] != n {
			m.t.Fatalf("%d agents are %s, want %d", n, state, want[state])
		}
	}
}
