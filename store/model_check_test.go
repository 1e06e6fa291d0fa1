package store

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// check compares everything readable.
func (m *machine) check() {
	list, err := m.s.List(ctx, Filter{IncludeDeleted: true})
	if err != nil || len(list) != len(m.model.sandboxes) {
		m.t.Fatalf("list: %d of %d, %v", len(list), len(m.model.sandboxes), err)
	}
	for _, listed := range list {
		got, err := m.s.Sandbox(ctx, listed.ID)
		if err != nil || !proto.Equal(got.Desired, listed.Desired) || got.State != listed.State {
			m.t.Fatalf("%+v listed as %+v, %v", got, listed, err)
		}
		m.compare(got, m.model.sandboxes[listed.ID])
	}
	for _, name := range modelNames {
		if _, held := heldBy(m.s, name); held != m.nameTaken(name) {
			m.t.Fatalf("name %q held: %v", name, held)
		}
	}
	if got, want := m.s.FrozenIDs(), m.frozen(); !slices.Equal(got, want) {
		m.t.Fatalf("frozen: %v, want %v", got, want)
	}
	m.compareUsage()
	if c := m.s.Corrupt(); len(c) > 0 {
		m.t.Fatalf("corrupt: %v", c)
	}
}

func (m *machine) drawCaller() Caller {
	return Caller{Name: rapid.SampledFrom([]string{"", "uid:1", "uid:2"}).Draw(m.t, "caller")}
}

// compareUsage counts what callers have in the records.
func (m *machine) compareUsage() {
	want := map[string]usage{}
	for id, sb := range m.model.sandboxes {
		if !sb.deleted {
			got, err := m.s.Sandbox(ctx, id)
			must(m.tb, err)
			want[got.Desired.GetCaller()] = want[got.Desired.GetCaller()].plus(usage{sandboxes: 1, pending: pendingIn(sb.state())})
		}
		for execID := range sb.active {
			e, err := m.s.Exec(ctx, execID)
			must(m.tb, err)
			want[e.Desired.GetCaller()] = want[e.Desired.GetCaller()].plus(usage{execs: 1})
		}
	}
	delete(want, "")
	if !maps.Equal(m.s.index.usage, want) {
		m.t.Fatalf("callers have %v, want %v", m.s.index.usage, want)
	}
}

func (m *machine) compare(got Sandbox, want *modelSandbox) {
	changedAt, idleSince, code, preparing := want.derive()
	ok := got.State == want.state() && got.StateChangedAt.Equal(changedAt) && got.IdleSince.Equal(idleSince) &&
		got.ErrorCode == code && got.Preparing == preparing && got.Name == want.name &&
		got.LastSequence == uint64(len(want.events)) && got.DeletedAt.IsZero() == !want.deleted &&
		slices.Equal(got.ActiveExecs, slices.Sorted(maps.Keys(want.active))) &&
		got.Desired.GetRunState() == want.run && got.Desired.GetGeneration() == want.generation &&
		got.Desired.GetAttempt() == want.attempt && got.Desired.GetLimitsPending() == want.limits &&
		got.Desired.GetToolMounts()[0].GetSource() == got.ID && got.Desired.GetConfinement().GetProfile() == got.ID &&
		got.Desired.GetDeadlineAt() == want.deadline && got.Desired.GetDeadlineSet() == want.deadlineSet &&
		got.Desired.GetDemotedAt() == want.demotedAt && m.cancelled(got) == len(want.cancelled) &&
		proto.Equal(got.Progress, want.progress) && proto.Equal(got.Spec, want.spec())
	if !ok {
		m.t.Fatalf("got %+v\nwant %+v, changed at %v, idle since %v, code %q, preparing %v", got, want, changedAt, idleSince, code, preparing)
	}
	m.compareEvents(got.ID, want)
}

// compareEvents checks that the kept events are correct, and that only events of execs and denied destinations up to the mark are missing.
func (m *machine) compareEvents(id string, want *modelSandbox) {
	left, err := m.s.Events(ctx, id, 0, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	var trimmed uint64
	next := 0
	for i, w := range want.events {
		seq := uint64(i + 1)
		if next == len(left) || left[next].GetSequence() != seq {
			if trimmed = seq; !isTransient(w.typ) {
				m.t.Fatalf("event %d of %s is gone: %+v", seq, id, w)
			}
			continue
		}
		if ev := left[next]; ev.GetEventType() != w.typ || !ev.GetOccurredAt().AsTime().Equal(w.at) {
			m.t.Fatalf("event %d: %v, want %+v", seq, ev, w)
		}
		next++
	}
	m.compareBound(left, want)
	after := rapid.Uint64Range(0, uint64(len(want.events))+2).Draw(m.t, "anchor")
	_, err = m.s.Events(ctx, id, after, 0)
	if refused := after > uint64(len(want.events)) || after > 0 && after < trimmed; refused != (err != nil) {
		m.t.Fatalf("after %d of %d, trimmed to %d: %v", after, len(want.events), trimmed, err)
	}
}

// compareBound checks that a history beyond the limit has, before the newest half of the limit, at most the two exec events that the store
// needs.
func (m *machine) compareBound(left []*agboxv1.SandboxEvent, want *modelSandbox) {
	if m.limit == 0 || want.deleted || len(want.events) == want.before || len(left) <= m.limit {
		return
	}
	execs := 0
	for _, ev := range left[:len(left)-m.limit/2] {
		if isTransient(ev.GetEventType()) {
			execs++
		}
	}
	if execs > 2 {
		m.t.Fatalf("limit %d: %d events of execs are left of %d: %v", m.limit, execs, len(want.events), sequences(left))
	}
}
