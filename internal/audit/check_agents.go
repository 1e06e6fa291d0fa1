package audit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Short names of the states of agents.
const (
	agentPending  = agboxv1.AgentState_AGENT_STATE_PENDING
	agentStarting = agboxv1.AgentState_AGENT_STATE_STARTING
	agentIdle     = agboxv1.AgentState_AGENT_STATE_IDLE
	agentBusy     = agboxv1.AgentState_AGENT_STATE_BUSY
	agentStopped  = agboxv1.AgentState_AGENT_STATE_STOPPED
	agentFailed   = agboxv1.AgentState_AGENT_STATE_FAILED
)

const agentDelete = storev1.AgentRun_AGENT_RUN_DELETE

// maxTransitions is how many transitions the store keeps per agent.
const maxTransitions = 1000

// agentMoves are the legal changes of an agent's state.
var agentMoves = map[agboxv1.AgentState][]agboxv1.AgentState{
	agentPending:  {agentStarting, agentStopped, agentFailed},
	agentStarting: {agentIdle, agentStopped, agentFailed},
	agentIdle:     {agentBusy, agentStopped, agentFailed},
	agentBusy:     {agentIdle, agentStopped, agentFailed},
	agentStopped:  {agentStarting},
	agentFailed:   {agentStarting, agentStopped},
}

func agentName(a *agent) string { return "agent " + a.id }

func (a *auditor) agent(ag *agent) {
	a.about(hard, "I2", agentName(ag), "").when(!a.records.agentIDs[ag.id], "its ID is not reserved")
	toDelete := ag.desired.GetRun() == agentDelete // parts of it may be removed already
	if ag.spec == nil || ag.desired == nil || ag.status == nil {
		a.about(hard, "I1", agentName(ag), "").when(!toDelete,
			"its record is incomplete: spec %t, intent %t, status %t", ag.spec != nil, ag.desired != nil, ag.status != nil)
		return
	}
	a.incarnations(ag)
	a.offsets(ag)
	if toDelete {
		return
	}
	a.agentTransitions(ag)
	a.conversation(ag)
}

func (ag *agent) stamp() string { return fmt.Sprint(ag.status.GetVersion()) }

// incarnationOf returns the number of the agent's process that an exec is.
func incarnationOf(agentID, execID string) (n uint64, ok bool) {
	rest, ok := strings.CutPrefix(execID, agentID+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 64)
	return n, err == nil && n > 0
}

// incarnations checks I20: at most one process of an agent lives, the newest.
func (a *auditor) incarnations(ag *agent) {
	wrong, unsettled := a.about(hard, "I20", agentName(ag), ag.stamp()), a.about(flux, "I20", agentName(ag), ag.stamp())
	st := ag.status
	active, known := false, false
	for _, sb := range a.records.sandboxes {
		for _, e := range sb.execs {
			n, ok := incarnationOf(ag.id, e.id)
			known = known || ok && n == st.GetIncarnation()
			switch {
			case !ok:
			case n > st.GetIncarnation():
				wrong("its newest incarnation is %d, and exec %s is on record", st.GetIncarnation(), e.id)
			case e.end != nil:
			case n < st.GetIncarnation():
				unsettled("its newest incarnation is %d, and exec %s of sandbox %s has not ended", st.GetIncarnation(), e.id, sb.id)
			case sb.id != ag.desired.GetSandboxId():
				unsettled("it belongs to sandbox %s, and its process is in sandbox %s", ag.desired.GetSandboxId(), sb.id)
			}
			active = active || ok && e.end == nil && n == st.GetIncarnation()
		}
	}
	lives := st.GetState() == agentStarting || st.GetState() == agentIdle || st.GetState() == agentBusy
	home := a.records.sandboxes[ag.desired.GetSandboxId()]
	wrong.when(lives && (home == nil || home.gone()), "it is %s, and its sandbox %q is not live", st.GetState(), ag.desired.GetSandboxId())
	wrong.when(lives && !known, "it is %s, and no exec of its incarnation %d is on record", st.GetState(), st.GetIncarnation())
	if ag.desired.GetRun() == agentDelete {
		return
	}
	unsettled.when(lives && known && !active,
		"it is %s, and its incarnation %d has no exec that has not ended", st.GetState(), st.GetIncarnation())
	unsettled.when(!lives && active, "it is %s, and its incarnation %d has not ended", st.GetState(), st.GetIncarnation())
	busy := st.GetState() == agentBusy
	wrong.when(busy != (st.GetPromptId() != ""), "it is %s with prompt %q", st.GetState(), st.GetPromptId())
}

// offsets checks I21: offsets do not exceed the sizes of the files.
func (a *auditor) offsets(ag *agent) {
	st, execID := ag.status, fmt.Sprintf("%s.%d", ag.id, ag.status.GetIncarnation())
	wrong, unsettled := a.about(hard, "I21", agentName(ag), ag.stamp()), a.about(flux, "I21", agentName(ag), ag.stamp())
	p := ag.position
	wrong.when(p.GetIncarnation() != st.GetIncarnation(),
		"its output was read from incarnation %d, but the newest is %d", p.GetIncarnation(), st.GetIncarnation())
	sb := a.records.sandboxes[ag.desired.GetSandboxId()]
	if sb == nil || sb.gone() || sb.desired.GetRunState() == wantDelete || sb.execs[execID] == nil || sb.execs[execID].end != nil {
		return // its files may be removed already
	}
	logs, run := a.files.logs[sb.id], a.files.runs[runName(sb.id)]
	if logs != nil && p.GetStdoutOffset() > logs.sizes[execID+suffixStdout] {
		unsettled("its output was read up to byte %d, and the log has %d", p.GetStdoutOffset(), logs.sizes[execID+suffixStdout])
	}
	if run == nil {
		return
	}
	unsettled.when(p.GetOutboxOffset() > run.outboxes[execID],
		"its outbox was read up to byte %d, and it has %d", p.GetOutboxOffset(), run.outboxes[execID])
	for n, prompt := range ag.prompts {
		unsettled.when(prompt.GetIncarnation() == st.GetIncarnation() && prompt.GetClaims() > 0 && prompt.GetInboxOffset() > run.inboxes[execID],
			"prompt %d was written at byte %d of its inbox, which has %d", n, prompt.GetInboxOffset(), run.inboxes[execID])
	}
}

// agentTransitions checks I22: the newest 1,000 exist without a gap, each is legal, and the last one leads to the state.
func (a *auditor) agentTransitions(ag *agent) {
	say := a.about(hard, "I22", agentName(ag), "")
	newest := ag.status.GetTransitions()
	next := newest - min(newest, maxTransitions) + 1
	at := agboxv1.AgentState(0)
	for _, t := range ag.transitions {
		from, to := t.m.GetFrom(), t.m.GetTo()
		say.when(t.key != next || t.m.GetNumber() != t.key, "transition %d is at number %d, and %d is next", t.m.GetNumber(), t.key, next)
		say.when(at != 0 && from != at || !slices.Contains(agentMoves[from], to),
			"transition %d leads from %s to %s, and the one before it led to %s", t.key, from, to, at)
		next, at = t.key+1, to
	}
	say.when(next != newest+1 || at != 0 && at != ag.status.GetState(),
		"its transitions end with number %d in %s, and it is %s by number %d", next-1, at, ag.status.GetState(), newest)
}

// conversation checks I22: the events are in order, match the count, and end with the newest; each prompt is referenced by its ID, and
// none has a number beyond the count.
func (a *auditor) conversation(ag *agent) {
	say := a.about(hard, "I22", agentName(ag), "")
	st := ag.status
	var n, last uint64
	for _, ev := range ag.events {
		say.when(ev.m.GetSequence() != ev.key || ev.m.GetAgentId() != ag.id || ev.m.GetOccurredAt() == nil,
			"event %d says that it is %d of agent %q, or has no time", ev.key, ev.m.GetSequence(), ev.m.GetAgentId())
		if last = ev.key; ev.key > st.GetTruncatedThrough() {
			n++
		}
	}
	say.when(n != st.GetEvents() || last != st.GetLastSequence(),
		"there are %d events up to %d, and counted are %d up to %d", n, last, st.GetEvents(), st.GetLastSequence())
	for n, p := range ag.prompts {
		ref := ag.promptIDs[p.GetPromptId()]
		say.when(ref.GetNumber() != n || n == 0 || n > ag.status.GetPrompts(),
			"prompt %q is number %d of %d, and %d by its ID", p.GetPromptId(), n, ag.status.GetPrompts(), ref.GetNumber())
	}
}

// agentNames checks I3 for agents.
func (a *auditor) agentNames() {
	holders := map[string]string{}
	for id, ag := range a.records.agents {
		name := ag.desired.GetName()
		if name == "" || ag.desired.GetRun() == agentDelete {
			continue
		}
		other := holders[name]
		a.about(hard, "I3", "agent name "+name, "").when(other != "", "agents %s and %s both hold it", min(id, other), max(id, other))
		holders[name] = id
	}
}
