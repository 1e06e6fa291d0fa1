package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func serviceEvent() *agboxv1.SandboxEvent {
	return phase(agboxv1.EventType_SANDBOX_SERVICE_READY, ready)
}

func TestEventsPageByCursor(t *testing.T) {
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	many := make([]*agboxv1.SandboxEvent, 600)
	for i := range many {
		many[i] = serviceEvent()
	}
	report(t, s, "box", many...)
	for _, limit := range []int{0, -1, 1000, 256} {
		if page, err := s.Events(ctx, "box", 0, limit); err != nil || len(page) != 256 {
			t.Fatalf("limit %d: %d events, %v", limit, len(page), err)
		}
	}
	if page, err := s.Events(ctx, "box", 10, 3); err != nil || len(page) != 3 || page[0].GetSequence() != 11 {
		t.Fatalf("%v, %v", page, err)
	}
	if n := len(allEvents(t, s, "box")); n != 603 {
		t.Fatalf("%d events", n)
	}
	if page, err := s.Events(ctx, "box", 603, 0); err != nil || len(page) != 0 {
		t.Fatalf("after the newest: %v, %v", page, err)
	}
}

func TestAnchorOutsideOfHistory(t *testing.T) {
	s := open(t, testOptions(t))
	create(t, s, "box")
	for _, after := range []uint64{2, math.MaxUint64} {
		_, err := s.Events(ctx, "box", after, 0)
		var r *Refusal
		if !errors.As(err, &r) || r.Reason != "SANDBOX_EVENT_SEQUENCE_EXPIRED" || !errdefs.IsOutOfRange(err) || r.Metadata["oldest_sequence"] != "1" {
			t.Fatalf("%+v", err)
		}
	}
	refused := func(after uint64) error { _, err := s.Events(ctx, "box", after, 0); return err }
	refusedFor(t, refused(2), "SANDBOX_EVENT_SEQUENCE_EXPIRED", errdefs.ErrOutOfRange, "sandbox box event sequence 2 is outside retained history")
	_, err := s.Events(ctx, "nobody", 0, 0)
	refusedFor(t, err, "SANDBOX_NOT_FOUND", errdefs.ErrNotFound, "sandbox nobody was not found")
}

func TestWatchersAreNotifiedAfterTheCommit(t *testing.T) {
	s := open(t, testOptions(t))
	create(t, s, "box")
	changed, stop := s.Watch("box")
	other, stopOther := s.Watch("other")
	defer stopOther()
	select {
	case <-changed:
		t.Fatal("a tick before any change")
	default:
	}
	for range 10 { // without a reader: the writer does not block
		report(t, s, "box", phase(agboxv1.EventType_SANDBOX_PREPARING, pending))
	}
	<-changed
	if page, err := s.Events(ctx, "box", 10, 0); err != nil || len(page) != 1 {
		t.Fatalf("%v, %v", page, err)
	}
	select {
	case <-changed:
		t.Fatal("ticks are not coalesced")
	case <-other:
		t.Fatal("a tick for another sandbox")
	default:
	}
	stop()
	stop()
}

func TestCommitHooksRunInOrderAndMayRead(t *testing.T) {
	s := open(t, testOptions(t))
	var got []string
	s.OnCommit(func(c Change) {
		if _, err := s.Sandbox(context.Background(), c.SandboxID); err != nil {
			t.Errorf("read from a hook: %v", err)
		}
		got = append(got, c.SandboxID+"/"+c.ExecID)
	})
	makeReady(t, s, "box")
	startExec(t, s, "box", "exec-1")
	_, err := s.RequestCancel(ctx, "exec-1")
	must(t, err)
	endExec(t, s, "exec-1")
	if want := []string{"box/", "box/", "box/", "box/exec-1", "box/exec-1", "box/exec-1"}; !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
}

func TestListOrderAndFilter(t *testing.T) {
	c := newClock()
	s := open(t, c.options(testOptions(t)))
	for _, id := range []string{"box-b", "box-a"} {
		create(t, s, id)
	}
	c.pass(time.Second)
	create(t, s, "box-z")
	makeDeleted(t, s, "box-gone")
	_, err := s.CreateSandbox(ctx, "other", "", &agboxv1.CreateSpec{Image: "x"}, nil)
	must(t, err)
	s = reopen(t, s)
	ids := func(f Filter) (ids []string) {
		list, err := s.List(ctx, f)
		must(t, err)
		for _, sb := range list {
			ids = append(ids, sb.ID)
		}
		return ids
	}
	team := map[string]string{"team": "a"}
	if got := ids(Filter{}); !slices.Equal(got, []string{"box-z", "other", "box-a", "box-b"}) {
		t.Errorf("all: %v", got)
	}
	if got := ids(Filter{Labels: team}); !slices.Equal(got, []string{"box-z", "box-a", "box-b"}) {
		t.Errorf("by label: %v", got)
	}
	if got := ids(Filter{Labels: team, IncludeDeleted: true}); !slices.Equal(got, []string{"box-gone", "box-z", "box-a", "box-b"}) {
		t.Errorf("with deleted: %v", got)
	}
	for _, oldest := range []bool{false, true} {
		whole := ids(Filter{IncludeDeleted: true, OldestFirst: oldest})
		var pages []string
		for f := (Filter{IncludeDeleted: true, OldestFirst: oldest, Limit: 2}); ; {
			page, err := s.List(ctx, f)
			must(t, err)
			for _, sb := range page {
				pages = append(pages, sb.ID)
				f.After = &Position{sb.CreatedAt, sb.ID}
			}
			if len(page) < f.Limit {
				break
			}
		}
		if len(pages) != 5 || !slices.Equal(pages, whole) || oldest != (whole[4] == "box-gone") {
			t.Errorf("oldest first %v: %v in pages, %v as a whole", oldest, pages, whole)
		}
	}
	if n := s.CountByState(); n[pending] != 4 || len(n) != 1 {
		t.Errorf("by state: %v", n)
	}
}

func TestDeletedOnesArePagedThroughTheFile(t *testing.T) {
	s := open(t, testOptions(t))
	many := 2*maxRead + 5
	fill(t, s, many, func(i int) { makeDeleted(t, s, boxID(i)) })
	list, err := s.List(ctx, Filter{IncludeDeleted: true})
	if err != nil || len(list) != many {
		t.Fatalf("%d, %v", len(list), err)
	}
	ids, err := s.DeletedBefore(ctx, s.moment(), -time.Hour, many+1)
	if err != nil || len(ids) != many || !slices.IsSorted(ids) {
		t.Fatalf("%d, %v", len(ids), err)
	}
	if ids, err := s.DeletedBefore(ctx, s.moment(), -time.Hour, 7); err != nil || len(ids) != 7 {
		t.Fatalf("limit: %d, %v", len(ids), err)
	}
	if ids, err := s.DeletedBefore(ctx, s.moment(), time.Hour, 7); err != nil || len(ids) != 0 {
		t.Fatalf("too young: %d, %v", len(ids), err)
	}
}
