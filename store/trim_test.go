package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// limited returns a store with a history limit and one READY sandbox.
func limited(t testing.TB, limit int) *Store {
	t.Helper()
	o := testOptions(t)
	o.EventHistoryLimit = limit
	s := open(t, o)
	makeReady(t, s, "box")
	return s
}

// runExecs runs n execs to their end, two events each.
func runExecs(t testing.TB, s *Store, n int) {
	t.Helper()
	first := get1(t, s, "box").LastSequence
	for i := range n {
		id := fmt.Sprintf("exec-%d-%d", first, i)
		startExec(t, s, "box", id)
		endExec(t, s, id)
	}
}

func trimmedTo(s *Store, id string) uint64 {
	sb := s.index.sandbox(id)
	return sb.history.trimmed
}

func sequences(events []*agboxv1.SandboxEvent) (seqs []uint64) {
	for _, ev := range events {
		seqs = append(seqs, ev.GetSequence())
	}
	return seqs
}

func TestHistoryLimitDropsTheOldestExecEvents(t *testing.T) {
	s := limited(t, 10)
	runExecs(t, s, 3) // 9 events
	if n := len(allEvents(t, s, "box")); n != 9 || trimmedTo(s, "box") != 0 {
		t.Fatalf("%d events, trimmed to %d", n, trimmedTo(s, "box"))
	}
	report(t, s, "box", serviceEvent())
	runExecs(t, s, 10)
	want := []uint64{1, 2, 3, 10, 25, 26, 27, 28, 29, 30}
	for range 2 {
		if got := sequences(allEvents(t, s, "box")); !slices.Equal(got, want) {
			t.Fatalf("left are %v", got)
		}
		if got := get1(t, s, "box"); trimmedTo(s, "box") != 24 || got.LastSequence != 30 || got.history.dropped != 20 {
			t.Fatalf("%+v", got.history)
		}
		s = reopen(t, s)
	}
	deleteIt(t, s, "box")
	page, err := s.Events(ctx, "box", 0, 0) // a deleted sandbox keeps its events
	if got := sequences(page); err != nil || len(got) != 10 || got[9] != 32 {
		t.Fatalf("after the delete: %v, %v", got, err)
	}
	if _, err := s.Events(ctx, "box", 25, 0); !errdefs.IsOutOfRange(err) {
		t.Fatalf("%v", err)
	}
	must(t, s.PurgeSandbox(ctx, "box"))
	if n := walk(t, s)[bucketTrimmed]; n != 0 {
		t.Fatal("the mark outlives the purge")
	}
}

func TestAnchorsOfTrimmedHistory(t *testing.T) {
	s := limited(t, 10)
	runExecs(t, s, 10)
	trimmed, newest := trimmedTo(s, "box"), get1(t, s, "box").LastSequence
	if trimmed < 5 {
		t.Fatalf("trimmed to %d", trimmed)
	}
	for after := range newest + 3 {
		page, err := s.Events(ctx, "box", after, 0)
		if after > newest || after > 0 && after < trimmed {
			var r *Refusal
			if !errors.As(err, &r) || !errdefs.IsOutOfRange(err) || r.Metadata["oldest_sequence"] != strconv.FormatUint(trimmed+1, 10) {
				t.Fatalf("after %d: %v", after, err)
			}
			continue
		}
		if err != nil || after > 0 && uint64(len(page)) != newest-after {
			t.Fatalf("after %d: %d events, %v", after, len(page), err)
		}
	}
}

func TestALoweredLimitIsWorkedOffInBatches(t *testing.T) {
	s := limited(t, 0)
	runExecs(t, s, 200)
	s.SetEventHistoryLimit(50)
	for left := 403; left > 50; {
		if n := len(allEvents(t, s, "box")); n != left {
			t.Fatalf("%d events, want %d", n, left)
		}
		report(t, s, "box", phase(agboxv1.EventType_IMAGE_PULLING, 0))
		left = max(50, left+1-trimBatch)
	}
	if n := len(allEvents(t, s, "box")); n != 50 {
		t.Fatalf("%d events", n)
	}
	s.SetEventHistoryLimit(0)
	runExecs(t, s, 20)
	if n := len(allEvents(t, s, "box")); n != 90 {
		t.Fatalf("without a limit: %d events", n)
	}
}

// Events that must be kept exceed the limit: they stay, with few exec events. A replay from 0 reads them all, although some are older than
// the mark.
func TestOtherEventsStayWhateverTheLimit(t *testing.T) {
	s := limited(t, 100)
	for range maxRead + 50 {
		report(t, s, "box", serviceEvent())
	}
	runExecs(t, s, 100)
	all := allEvents(t, s, "box")
	if n := len(all); n != 3+maxRead+50+trimKeep {
		t.Fatalf("%d events", n)
	}
	if _, err := s.Events(ctx, "box", 200, 0); !errdefs.IsOutOfRange(err) {
		t.Fatalf("%v", err)
	}
}

func TestAReaderOfTrimmedEventsGetsOutOfRange(t *testing.T) {
	s := limited(t, 10)
	runExecs(t, s, 10)
	newest := get1(t, s, "box").LastSequence
	replay, follow := Cursor{After: 3, GapsTo: newest}, Cursor{After: newest}
	runExecs(t, s, 2)
	for _, c := range []Cursor{replay, follow} {
		if _, err := s.EventsAfter(ctx, "box", c, 0); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
	}
	runExecs(t, s, 10)
	for _, c := range []Cursor{replay, follow} {
		if _, err := s.EventsAfter(ctx, "box", c, 0); !errdefs.IsOutOfRange(err) {
			t.Fatalf("%+v: %v", c, err)
		}
	}
}

func TestTheIdleClockOutlivesATrim(t *testing.T) {
	c := newClock()
	o := c.options(testOptions(t))
	o.EventHistoryLimit = 2
	s := open(t, o)
	makeReady(t, s, "box")
	c.pass(time.Minute)
	runExecs(t, s, 3)
	idle := c.at
	c.pass(time.Minute)
	for range 3 {
		report(t, s, "box", serviceEvent())
	}
	if got := get1(t, s, "box").IdleSince; !got.Equal(idle) {
		t.Fatalf("idle since %v, not %v", got, idle)
	}
	s = reopen(t, s)
	if got := get1(t, s, "box").IdleSince; !got.Equal(idle) {
		t.Fatalf("after reopen: idle since %v, not %v", got, idle)
	}
	runExecs(t, s, 1)
	report(t, s, "box", serviceEvent())
	if got := sequences(allEvents(t, s, "box")); slices.Contains(got, 9) {
		t.Fatalf("the old one stays: %v", got)
	}
}

func TestTheNewestEndByTheOOMKillerOutlivesATrim(t *testing.T) {
	s := limited(t, 10)
	since := time.Now().Add(-time.Hour)
	killForMemory(t, s, "oom-1")
	killForMemory(t, s, "oom-2")
	older, newer := uint64(5), uint64(7)
	for range 2 {
		runExecs(t, s, 20)
		wantKilled(t, s, since, true)
		if got := sequences(allEvents(t, s, "box")); slices.Contains(got, older) || !slices.Contains(got, newer) {
			t.Fatalf("%v", got)
		}
		s = reopen(t, s)
	}
	killForMemory(t, s, "oom-3")
	runExecs(t, s, 20)
	if got := sequences(allEvents(t, s, "box")); slices.Contains(got, newer) {
		t.Fatalf("two of them stay: %v", got)
	}
	wantKilled(t, s, since, true)
}

func TestAnExecWhoseStartEventWasDroppedHasAnAnchor(t *testing.T) {
	s := limited(t, 10)
	if e := startExec(t, s, "box", "long"); e.Anchor != 4 {
		t.Fatalf("%d", e.Anchor)
	}
	runExecs(t, s, 10)
	e, err := s.Exec(ctx, "long")
	if err != nil || e.Anchor != get1(t, s, "box").LastSequence {
		t.Fatalf("%d, %v", e.Anchor, err)
	}
	runExecs(t, s, 2)
	endExec(t, s, "long")
	page, err := s.Events(ctx, "box", e.Anchor, 0)
	if err != nil || page[len(page)-1].GetExec().GetExecId() != "long" {
		t.Fatalf("%v, %v", page, err)
	}
	if e, err = s.Exec(ctx, "long"); err != nil || e.Anchor != e.End.GetSequence() {
		t.Fatalf("%d, %v", e.Anchor, err)
	}
}

func TestADamagedMarkIsFoundByTheGap(t *testing.T) {
	s := limited(t, 10)
	runExecs(t, s, 10)
	want := get1(t, s, "box").history
	s = spoil(t, s, bucketTrimmed, []byte("box"))
	if c := s.Corrupt(); len(c) != 1 || c[0].Bucket != bucketTrimmed {
		t.Fatalf("%v", c)
	}
	if got := get1(t, s, "box").history; got.dropped != want.dropped || got.trimmed != want.trimmed {
		t.Fatalf("%+v, want %+v", got, want)
	}
	if _, err := s.Events(ctx, "box", want.trimmed-1, 0); !errdefs.IsOutOfRange(err) {
		t.Fatalf("%v", err)
	}
	if _, err := s.Events(ctx, "box", want.trimmed, 0); err != nil {
		t.Fatal(err)
	}
}

func TestADamagedEventStays(t *testing.T) {
	s := limited(t, 0)
	runExecs(t, s, 10)
	s = spoil(t, s, prefixEvents+"box", encodeInt(6))
	s.SetEventHistoryLimit(4)
	runExecs(t, s, 1)
	if _, err := s.Events(ctx, "box", 0, 0); err != nil {
		t.Fatal(err)
	}
	kept := false
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		kept = get(tx, prefixEvents+"box", encodeInt(6)) != nil
		return nil
	}))
	if !kept || trimmedTo(s, "box") < 10 {
		t.Fatalf("kept: %v, trimmed to %d", kept, trimmedTo(s, "box"))
	}
}

// FuzzAnchor reads from a store with trimmed history after any anchor: no panic, no wrong event, and a refusal exactly when the
// documentation of Events says so.
func FuzzAnchor(f *testing.F) {
	s := limited(f, 20)
	for range 5 {
		report(f, s, "box", serviceEvent())
		runExecs(f, s, 10)
	}
	trimmed, newest := trimmedTo(s, "box"), get1(f, s, "box").LastSequence
	left := sequences(allEvents(f, s, "box"))
	for _, after := range []uint64{0, 1, trimmed - 1, trimmed, trimmed + 1, newest - 1, newest, newest + 1, math.MaxUint64 - 1, math.MaxUint64} {
		f.Add(after, uint64(0), 0)
		f.Add(after, newest, 7)
	}
	f.Fuzz(func(t *testing.T, after, gapsTo uint64, limit int) {
		page, err := s.EventsAfter(ctx, "box", Cursor{After: after, GapsTo: gapsTo}, limit)
		refused := after > newest || after > 0 && after < trimmed && gapsTo < trimmed
		if refused != errdefs.IsOutOfRange(err) || (err == nil) == refused {
			t.Fatalf("after %d, gaps to %d: %v", after, gapsTo, err)
		}
		if err != nil {
			return
		}
		i, _ := slices.BinarySearch(left, after+1)
		if after == math.MaxUint64 {
			i = len(left)
		}
		want := left[i:]
		if limit < 1 || limit > maxRead {
			limit = maxRead
		}
		if got := sequences(page); !slices.Equal(got, want[:min(limit, len(want))]) {
			t.Fatalf("after %d: %v, want %v", after, got, want)
		}
	})
}

// BenchmarkAppendAtTheLimit appends 100 events in one commit, each of which drops an older one; compare BenchmarkAppendWithoutLimit.
func BenchmarkAppendAtTheLimit(b *testing.B) { benchmarkAppend(b, 20_000) }

func BenchmarkAppendWithoutLimit(b *testing.B) { benchmarkAppend(b, 0) }

func benchmarkAppend(b *testing.B, limit int) {
	s := withLongHistory(b, 20_000)
	s.SetEventHistoryLimit(limit)
	for b.Loop() {
		must(b, s.update(b.Context(), func(tx *txn) error {
			sb, err := tx.sandbox("box", nil)
			for j := 0; err == nil && j < 100; j++ {
				tx.append(sb, execEvent(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{ExecId: strconv.Itoa(j)}))
			}
			tx.keep(sb, "")
			return err
		}))
	}
}
