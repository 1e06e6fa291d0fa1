package store

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// TestRebuiltSandboxesEqualTheirRecords checks RecordRebuilt after random histories of the lost store. Only the newest sequence, which is
// one higher, and the mark of a rebuilt record may differ.
func TestRebuiltSandboxesEqualTheirRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		c := newClock()
		s := openUnsynced(t, c.options(testOptions(t)))
		m := &machine{t: rt, tb: t, s: s, clock: c, model: model{map[string]*modelSandbox{}, map[string]bool{}, map[string]string{}}}
		defer func() { must(t, m.s.Close()) }()
		action := func(fn func()) func(*rapid.T) {
			return func(rt *rapid.T) { m.t = rt; c.pass(time.Second); fn() }
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": action(m.create), "stop": action(m.stop), "idle stop": action(m.idleStop), "resume": action(m.resume),
			"delete": action(m.delete), "report": action(m.report), "report again": action(m.report),
			"exec": action(m.exec), "exec again": action(m.exec), "end exec": action(m.endExec),
			"update": action(m.updateSpec), "limit": action(m.setLimit), "purge": action(m.purge),
			"pause": action(m.pause), "demote": action(m.demote), "set timeout": action(m.setTimeout), "expire": action(m.expire),
			"update timeout": action(m.updateTimeout), "clock set back": action(m.setBack),
		})
		c.pass(time.Hour)
		list := recordAndCompare(t, rt, c, m.s, recordsOf(t, m.s))
		if rapid.IntRange(0, 4).Draw(rt, "lost again") == 0 {
			recordAndCompare(t, rt, c, m.s, list)
		}
	})
}

// openUnsynced opens a store that does not sync: nothing crashes here, and syncs would take most of the test's time.
func openUnsynced(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(ctx, o)
	must(t, err)
	s.db.NoSync = true
	return s
}

// recordAndCompare returns the records of a new store that has recorded the list.
func recordAndCompare(t *testing.T, rt *rapid.T, c *clock, from *Store, list []Rebuilt) []Rebuilt {
	o := c.options(testOptions(t))
	s := openUnsynced(t, o)
	ids := recordRebuilt(t, s, list...)
	if slices.Sort(ids); !slices.Equal(ids, from.LiveIDs()) || !slices.Equal(ids, s.LiveIDs()) {
		rt.Fatalf("recorded %v, live %v, lost %v", ids, s.LiveIDs(), from.LiveIDs())
	}
	compareAll := func() {
		for _, r := range list {
			compareRebuilt(rt, s, from, r)
		}
	}
	compareAll()
	must(t, s.Close())
	if all := findings(t, o.Path); len(all) > 0 {
		rt.Fatalf("findings: %v", all)
	}
	s = openUnsynced(t, o)
	compareAll()
	defer func() { must(t, s.Close()) }()
	return recordsOf(t, s)
}

func compareRebuilt(t *rapid.T, s, from *Store, r Rebuilt) {
	id := r.Record.GetSandboxId()
	want, err := from.Sandbox(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Sandbox(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	told := got.Desired.GetRehydrated()
	if told == nil || len(told.GetDefaulted()) > 0 || got.LastSequence != r.Record.GetLastSequence()+1 {
		t.Fatalf("%s: %v, event %d after %d", id, told, got.LastSequence, r.Record.GetLastSequence())
	}
	got.Desired.Rehydrated, want.Desired.Rehydrated = nil, nil
	same := got.ID == want.ID && got.Name == want.Name && proto.Equal(got.Spec, want.Spec) && proto.Equal(got.Desired, want.Desired) &&
		proto.Equal(got.Progress, want.Progress) && got.State == want.State && got.StateChangedAt.Equal(want.StateChangedAt) &&
		got.ErrorCode == want.ErrorCode && got.ErrorMessage == want.ErrorMessage && got.CreatedAt.Equal(want.CreatedAt) &&
		got.Preparing == want.Preparing && got.IdleSince.Equal(want.IdleSince) && slices.Equal(got.ActiveExecs, want.ActiveExecs)
	if !same {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
	holder, held := heldBy(s, got.Name)
	if before, was := heldBy(from, got.Name); held != was || holder.ID != before.ID {
		t.Fatalf("the name %q is held by %q, and was by %q", got.Name, holder.ID, before.ID)
	}
	compareExecs(t, s, from, got)
}

func compareExecs(t *rapid.T, s, from *Store, sb Sandbox) {
	ids, err := from.ExecIDs(ctx, sb.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, execID := range ids {
		want, errWant := from.Exec(ctx, execID)
		got, err := s.Exec(ctx, execID)
		if err != nil || errWant != nil {
			t.Fatal(err, errWant)
		}
		if got.SandboxID != want.SandboxID || !proto.Equal(got.Request, want.Request) || !proto.Equal(got.Desired, want.Desired) ||
			!proto.Equal(got.End, want.End) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		if _, err := s.Events(ctx, sb.ID, got.Anchor, 0); got.End == nil && err != nil {
			t.Fatalf("behind the anchor %d of %s: %v", got.Anchor, execID, err)
		}
	}
}
