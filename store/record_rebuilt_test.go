package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// recordsOf returns the records of the live sandboxes of s, oldest first.
func recordsOf(t testing.TB, s *Store) []Rebuilt {
	t.Helper()
	var list []Rebuilt
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		for _, id := range liveIn(tx) {
			r, ok := loader{tx, func(Corrupt) {}}.rebuilt(id, s.InstanceID())
			if !ok {
				t.Errorf("sandbox %s does not decode", id)
			}
			list = append(list, r)
		}
		return nil
	}))
	slices.SortFunc(list, func(a, b Rebuilt) int {
		return strings.Compare(fmt.Sprint(a.Record.GetCreatedAt(), a.Record.GetSandboxId()), fmt.Sprint(b.Record.GetCreatedAt(), b.Record.GetSandboxId()))
	})
	return list
}

// record returns the record of a sandbox with only the required fields.
func record(id string) *storev1.SandboxRecord {
	return &storev1.SandboxRecord{
		Version: recordVersion, SandboxId: id, Spec: spec(), State: int32(ready),
		Desired: &storev1.Desired{RunState: storev1.RunState_RUN_STATE_RUN, Generation: 1},
	}
}

func execRecord(id string, end *storev1.ExecEnd) *storev1.ExecRecord {
	return &storev1.ExecRecord{ExecId: id, Desired: &storev1.ExecDesired{Nonce: "n-" + id}, End: end}
}

func recordRebuilt(t testing.TB, s *Store, list ...Rebuilt) []string {
	t.Helper()
	ids, err := s.RecordRebuilt(ctx, list)
	must(t, err)
	return ids
}

// lost returns a store that has recorded the records of a lost one.
func lost(t *testing.T, c *clock, fill func(s *Store)) *Store {
	t.Helper()
	before := open(t, c.options(testOptions(t)))
	fill(before)
	s := open(t, c.options(testOptions(t)))
	recordRebuilt(t, s, recordsOf(t, before)...)
	return s
}

func TestARebuiltSandboxAcceptsAllRequests(t *testing.T) {
	c := newClock()
	s := lost(t, c, func(s *Store) {
		_, err := s.CreateSandbox(ctx, "box", "web", spec(), nil)
		must(t, err)
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
		startExec(t, s, "box", "active")
		startExec(t, s, "box", "ended")
		c.pass(time.Second)
		endExec(t, s, "ended")
	})
	for name, err := range map[string]error{
		"its ID": second(s.CreateSandbox(ctx, "box", "", spec(), nil)), "its name": second(s.CreateSandbox(ctx, "other", "web", spec(), nil)),
		"the ID of its exec": second(s.CreateExec(ctx, execRequest("box", "ended"), Caller{})),
	} {
		if !errdefs.IsAlreadyExists(err) {
			t.Errorf("%s is free: %v", name, err)
		}
	}
	e, err := s.Exec(ctx, "active")
	if err != nil || e.End != nil || e.Request.GetCommand()[0] != "true" || e.Desired.GetNonce() == "" {
		t.Fatalf("%+v, %v", e, err)
	}
	endExec(t, s, "active")
	if events, err := s.Events(ctx, "box", e.Anchor, 0); err != nil || len(events) != 1 || events[0].GetExec().GetExecId() != "active" {
		t.Fatalf("behind the anchor of an exec: %v, %v", events, err)
	}
	if sb := get1(t, s, "box"); !sb.IdleSince.Equal(c.at) {
		t.Fatalf("idle since %v, the exec ended at %v", sb.IdleSince, c.at)
	}
	startExec(t, s, "box", "new")
	s = reopen(t, s)
	endExec(t, s, "new")
	lifeAfter(t, s)
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
}

func second[T any](_ T, err error) error { return err }

// lifeAfter runs box from READY to DELETED.
func lifeAfter(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.RequestStop(ctx, "box", "stop_requested")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_STOPPED, stopped))
	_, err = s.RequestResume(ctx, "box")
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	deleteIt(t, s, "box")
	if _, err := s.CreateSandbox(ctx, "other", "web", spec(), nil); err != nil {
		t.Fatalf("the name is not free: %v", err)
	}
	if e, err := s.Exec(ctx, "ended"); err != nil || e.End.GetState() != int32(agboxv1.ExecState_EXEC_STATE_FINISHED) {
		t.Fatalf("%+v, %v", e, err)
	}
	must(t, s.PurgeSandbox(ctx, "box"))
}

func TestTheHistoryOfARebuiltSandboxContinuesItsLastSequence(t *testing.T) {
	c := newClock()
	s := lost(t, c, func(s *Store) { makeReady(t, s, "box") }) // 3 events
	changed, stop := s.Watch("box")
	defer stop()
	all, err := s.Events(ctx, "box", 0, 0)
	if err != nil || len(all) != 1 || all[0].GetSequence() != 4 || all[0].GetEventType() != agboxv1.EventType_SANDBOX_REHYDRATED {
		t.Fatalf("%v, %v", all, err)
	}
	for after, want := range map[uint64]int{3: 1, 4: 0} {
		if got, err := s.Events(ctx, "box", after, 0); err != nil || len(got) != want {
			t.Errorf("after %d: %v, %v", after, got, err)
		}
	}
	for _, after := range []uint64{1, 2, 5} {
		if _, err := s.Events(ctx, "box", after, 0); !errdefs.IsOutOfRange(err) {
			t.Errorf("after %d: %v", after, err)
		}
	}
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_RESTARTED, ready))
	<-changed
	if got, err := s.Events(ctx, "box", 4, 0); err != nil || len(got) != 1 || got[0].GetSequence() != 5 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTheHistoryLimitHoldsForRebuiltSandboxes(t *testing.T) {
	c := newClock()
	s := lost(t, c, func(s *Store) {
		makeReady(t, s, "box")
		startExec(t, s, "box", "old")
	})
	s.SetEventHistoryLimit(4)
	for i := range 20 {
		startExec(t, s, "box", fmt.Sprint("e-", i))
		endExec(t, s, fmt.Sprint("e-", i))
	}
	sb := get1(t, s, "box")
	if left := allEvents(t, s, "box"); len(left) != 4 || left[0].GetEventType() != agboxv1.EventType_SANDBOX_REHYDRATED || sb.LastSequence != 45 {
		t.Fatalf("%d: %v", sb.LastSequence, sequences(left))
	}
	e, err := s.Exec(ctx, "old")
	must(t, err)
	endExec(t, s, "old")
	if got, err := s.Events(ctx, "box", e.Anchor, 0); err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	s = reopen(t, s)
	if got := get1(t, s, "box"); got.history.dropped != sb.history.dropped+1 {
		t.Fatalf("%+v, before %+v", got.history, sb.history)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
}
