package store

import (
	"fmt"

	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// reports lists the events that a pass can report in each state.
var reports = map[agboxv1.SandboxState][]modelEvent{
	pending: {{typ: agboxv1.EventType_IMAGE_PULLING}, {typ: agboxv1.EventType_SANDBOX_PREPARING, state: pending}, {typ: agboxv1.EventType_SANDBOX_READY, state: ready},
		{typ: agboxv1.EventType_SANDBOX_READY, state: ready}, {typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "SANDBOX_CREATE_FAILED"}},
	ready: {{typ: agboxv1.EventType_SANDBOX_SERVICE_FAILED, state: ready}, {typ: agboxv1.EventType_IMAGE_PULLING}, {typ: agboxv1.EventType_SANDBOX_SERVICE_READY, state: ready}, {typ: agboxv1.EventType_SANDBOX_RESTARTED, state: ready},
		{typ: agboxv1.EventType_NETWORK_DENIED}, {typ: agboxv1.EventType_NETWORK_DENIED},
		{typ: agboxv1.EventType_SANDBOX_STOPPED, state: stopped}, {typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "CONTAINER_DIED"},
		{typ: agboxv1.EventType_SANDBOX_PAUSED, state: paused}, {typ: agboxv1.EventType_SANDBOX_PAUSED, state: paused}},
	paused: {{typ: agboxv1.EventType_SANDBOX_PAUSED, state: paused}, {typ: agboxv1.EventType_IMAGE_PULLING},
		{typ: agboxv1.EventType_SANDBOX_STOPPED, state: stopped}, {typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "CONTAINER_DIED"}},
	failed:   {{typ: agboxv1.EventType_IMAGE_PULLING}},
	stopped:  {{typ: agboxv1.EventType_SANDBOX_FAILED, state: failed, code: "CONTAINER_MISSING"}},
	deleting: {{typ: agboxv1.EventType_SANDBOX_DELETED, state: deleted}, {typ: agboxv1.EventType_IMAGE_PULLING}},
	deleted:  {{typ: agboxv1.EventType_IMAGE_PULLING}},
}

func (m *machine) report() {
	id, sb := m.pick()
	if sb == nil {
		return
	}
	ev := rapid.SampledFrom(reports[sb.state()]).Draw(m.t, "event")
	old := rapid.IntRange(0, 9).Draw(m.t, "old generation") == 0
	r := m.drawReport(sb, ev)
	if old {
		r.Generation--
	}
	err := m.s.Report(ctx, id, r)
	tooEarly := ev.state == deleted && len(sb.active) > 0
	unasked := ev.typ == agboxv1.EventType_SANDBOX_PAUSED && sb.run != storev1.RunState_RUN_STATE_PAUSE ||
		ev.typ == agboxv1.EventType_SANDBOX_STOPPED && sb.run != storev1.RunState_RUN_STATE_STOP
	if m.outcome(fmt.Sprintf("report %v", ev.typ), !old && !sb.deleted && !tooEarly && !unasked, err) {
		m.log(sb, ev.typ, ev.state, ev.code)
		sb.deleted = ev.state == deleted
		sb.limits = sb.limits && !r.LimitsApplied
		if r.Progress != nil {
			sb.progress = r.Progress
		}
		m.reported(sb, ev.typ, r.Timeout)
	}
}

func (m *machine) drawReport(sb *modelSandbox, ev modelEvent) Report {
	sent := phase(ev.typ, ev.state)
	if ev.code != "" {
		sent = failure(ev.code)
	}
	r := Report{
		Generation: sb.generation, Events: []*agboxv1.SandboxEvent{sent}, LimitsApplied: rapid.Bool().Draw(m.t, "limits applied"),
		Timeout: m.drawTimeout(),
	}
	if hooks := rapid.Uint32Range(0, 3).Draw(m.t, "progress"); hooks > 0 {
		r.Progress = &storev1.Progress{HooksDone: hooks, Restarts: &storev1.Restarts{Count: 1}, Frozen: rapid.Bool().Draw(m.t, "frozen")}
	}
	return r
}
