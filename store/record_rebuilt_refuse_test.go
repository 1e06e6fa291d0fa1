package store

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestRecordRebuiltKeepsExistingRecords(t *testing.T) {
	s := open(t, newClock().options(testOptions(t)))
	_, err := s.CreateSandbox(ctx, "live", "web", spec(), nil)
	must(t, err)
	makeReady(t, s, "busy")
	startExec(t, s, "busy", "taken")
	makeDeleted(t, s, "gone")
	must(t, s.PurgeSandbox(ctx, "gone"))
	before := contentOf(t, s)
	if ids := recordRebuilt(t, s, Rebuilt{Record: record("live")}, Rebuilt{Record: record("gone")}, Rebuilt{Record: record("busy")}); len(ids) != 0 {
		t.Fatal(ids)
	}
	for key, value := range before {
		if contentOf(t, s)[key] != value {
			t.Errorf("%q has changed", key)
		}
	}
	fresh := record("fresh")
	fresh.Desired.Name = "web"
	ids := recordRebuilt(t, s, Rebuilt{Record: fresh, Defaulted: []string{"state", "deadline_at"}, Execs: []*storev1.ExecRecord{
		execRecord("taken", nil), execRecord("mine", nil), execRecord("mine", finished()), execRecord("done", finished()),
		{ExecId: "no-nonce"}, execRecord("x", &storev1.ExecEnd{}),
		{ExecId: "elsewhere", Desired: &storev1.ExecDesired{Nonce: "n"}, Request: execRequest("live", "elsewhere")},
	}})
	sb := get1(t, s, "fresh")
	if len(ids) != 1 || sb.Name != "" || !slices.Equal(sb.ActiveExecs, []string{"mine"}) ||
		!slices.Equal(sb.Desired.GetRehydrated().GetDefaulted(), []string{"deadline_at", "execs", "name", "state"}) {
		t.Fatalf("%v: %+v", ids, sb)
	}
	if holder, _ := heldBy(s, "web"); holder.ID != "live" {
		t.Fatalf("the name went to %s", holder.ID)
	}
	if e, err := s.Exec(ctx, "taken"); err != nil || e.SandboxID != "busy" {
		t.Fatalf("%+v, %v", e, err)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
}

// contentOf returns every record of an open store by bucket and key.
func contentOf(t *testing.T, s *Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error { all[string(name)+"/"+string(k)] = string(v); return nil })
		})
	}))
	return all
}

func TestRecordRebuiltSkipsInvalidRecords(t *testing.T) {
	s := open(t, testOptions(t))
	for name, spoil := range map[string]func(r *storev1.SandboxRecord){
		"no ID":                     func(r *storev1.SandboxRecord) { r.SandboxId = "" },
		"an endless ID":             func(r *storev1.SandboxRecord) { r.SandboxId = strings.Repeat("x", maxIDBytes+1) },
		"no spec":                   func(r *storev1.SandboxRecord) { r.Spec = nil },
		"no state":                  func(r *storev1.SandboxRecord) { r.State = 0 },
		"an unknown state":          func(r *storev1.SandboxRecord) { r.State = 77 },
		"deleted":                   func(r *storev1.SandboxRecord) { r.State = int32(deleted) },
		"no intent":                 func(r *storev1.SandboxRecord) { r.Desired = nil },
		"an intent of a later time": func(r *storev1.SandboxRecord) { r.Desired.RunState = 99 },
		"generation 0":              func(r *storev1.SandboxRecord) { r.Desired.Generation = 0 },
		"an endless name":           func(r *storev1.SandboxRecord) { r.Desired.Name = strings.Repeat("x", maxIDBytes+1) },
		"a sequence without room":   func(r *storev1.SandboxRecord) { r.LastSequence = maxSequence + 1 },
	} {
		bad, good := record("bad"), "good-"+strings.ReplaceAll(name, " ", "-")
		spoil(bad)
		ids, err := s.RecordRebuilt(ctx, []Rebuilt{{Record: bad}, {}, {Record: record(good)}})
		if !errdefs.IsInvalidArgument(err) || !slices.Equal(ids, []string{good}) {
			t.Errorf("%s: %v, %v", name, ids, err)
		}
	}
	if ids := s.LiveIDs(); slices.Contains(ids, "bad") || len(s.Corrupt()) > 0 {
		t.Errorf("%v, %v", ids, s.Corrupt())
	}
}

func TestRecordRebuiltFillsInUnknownFields(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	late := execRecord("late", nil)
	late.Desired.StartedSequence = 9
	r := record("known-in-part")
	r.LastSequence = 7 // the record lagged behind its exec
	recordRebuilt(t, s, Rebuilt{Record: record("box"), Execs: []*storev1.ExecRecord{execRecord("active", nil), execRecord("ended", finished())}},
		Rebuilt{Record: record("idle")}, Rebuilt{Record: r, Execs: []*storev1.ExecRecord{late}})
	floor := uint64(c.at.Unix())
	sb := get1(t, s, "box")
	if sb.LastSequence != floor+1 || !sb.CreatedAt.Equal(c.at) || !sb.StateChangedAt.Equal(c.at) || !sb.IdleSince.IsZero() || sb.Progress == nil {
		t.Fatalf("%+v", sb)
	}
	if sb := get1(t, s, "idle"); !sb.IdleSince.Equal(c.at) {
		t.Fatalf("idle since %v", sb.IdleSince)
	}
	if sb := get1(t, s, "known-in-part"); sb.LastSequence != 10 {
		t.Fatalf("%+v", sb)
	}
	e, err := s.Exec(ctx, "ended")
	if err != nil || e.Anchor != floor || e.Request.GetSandboxId() != "box" || e.Request.GetExecId() != "ended" {
		t.Fatalf("%+v, %v", e, err)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
}

func TestRecordRebuiltUsesBoundedTransactionsAndIsRepeatable(t *testing.T) {
	o := testOptions(t)
	commits, most, fail := 0, 0, 2
	o.Observe = func(_ time.Duration, writes int, _ error) { commits++; most = max(most, writes) }
	o.commit = func(tx *bolt.Tx) error {
		if fail--; fail == 0 {
			_ = tx.Rollback()
			return &fs.PathError{Op: "write", Err: syscall.ENOSPC}
		}
		return tx.Commit()
	}
	s := open(t, o)
	var list []Rebuilt
	for i := range 200 {
		r := Rebuilt{Record: record(boxID(i))}
		execs := 1
		if i%50 == 7 {
			execs = 3000
		}
		for e := range execs {
			r.Execs = append(r.Execs, execRecord(fmt.Sprintf("e-%d-%d", i, e), finished()))
		}
		list = append(list, r)
	}
	first, err := s.RecordRebuilt(ctx, list)
	if !errdefs.IsUnavailable(err) || len(first) == 0 || len(first) == len(list) || !slices.Equal(first, s.LiveIDs()) {
		t.Fatalf("%d recorded, %v", len(first), err)
	}
	if rest := recordRebuilt(t, s, list...); len(rest)+len(first) != len(list) || len(s.LiveIDs()) != len(list) {
		t.Fatalf("%d, then %d", len(first), len(rest))
	}
	if most > rebuiltSandboxes || commits < 4 {
		t.Fatalf("%d commits, the largest with %d sandboxes", commits, most)
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if ids, err := s.RecordRebuilt(stopped, []Rebuilt{{Record: record("late")}}); len(ids) != 0 || err == nil {
		t.Fatal(ids, err)
	}
}

// TestAnOOMKilledExecOfBeforeTheRebuildStillExplainsTheContainersFlag if it ended in the current run.
func TestAnOOMKilledExecOfBeforeTheRebuildStillExplainsTheContainersFlag(t *testing.T) {
	c := newClock()
	s := lost(t, c, func(s *Store) {
		makeReady(t, s, "box")
		startExec(t, s, "box", "hungry")
		end := &storev1.ExecEnd{State: int32(agboxv1.ExecState_EXEC_STATE_FAILED), OomKilled: true, EndedAt: c.at.UnixNano()}
		must(t, s.EndExec(ctx, "hungry", end))
	})
	for since, want := range map[time.Time]bool{c.at.Add(-time.Minute): true, c.at: true, c.at.Add(time.Second): false} {
		if got, err := s.ExecKilledForMemory(ctx, "box", since); err != nil || got != want {
			t.Errorf("since %v: %v, %v", since, got, err)
		}
	}
	_, err := s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	if got, err := s.ExecKilledForMemory(ctx, "box", c.at); err != nil || got {
		t.Errorf("in another run: %v, %v", got, err)
	}
}
