package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// BenchmarkAccept measures the latency of a single accept: two fdatasyncs.
func BenchmarkAccept(b *testing.B) {
	s := open(b, testOptions(b))
	for i := 0; b.Loop(); i++ {
		create(b, s, boxID(i))
	}
}

// BenchmarkAcceptTogether measures 1000 concurrent callers; ns/op is the time until all have their answer.
func BenchmarkAcceptTogether(b *testing.B) {
	const callers = 1000
	o := testOptions(b)
	commits := 0
	o.Observe = func(time.Duration, int, error) { commits++ }
	s := open(b, o)
	for round := 0; b.Loop(); round++ {
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() { create(b, s, fmt.Sprintf("box-%d-%d", round, i)) })
		}
		wg.Wait()
	}
	b.ReportMetric(float64(b.N)*callers/b.Elapsed().Seconds(), "accepts/s")
	b.ReportMetric(float64(commits)/float64(b.N), "commits/op")
}

// BenchmarkReopen opens a file of 40 live sandboxes with 250 events each.
func BenchmarkReopen(b *testing.B) {
	s := withHistory(b, 40, 250)
	o := s.o
	must(b, s.Close())
	for b.Loop() {
		s, err := Open(context.Background(), o)
		must(b, err)
		must(b, s.Close())
	}
}

// BenchmarkCheck measures what an unclean end adds to the start, for 100000 events.
func BenchmarkCheck(b *testing.B) {
	s := withHistory(b, 100, 1000)
	path := s.o.Path
	must(b, s.Close())
	for b.Loop() {
		must(b, CheckFile(path))
	}
}

// withHistory creates n sandboxes with the given number of events each, most of them of execs.
func withHistory(t testing.TB, n, events int) *Store {
	t.Helper()
	s := open(t, testOptions(t))
	fill(t, s, n, func(i int) {
		makeReady(t, s, boxID(i))
		many := make([]*agboxv1.SandboxEvent, events-3)
		for j := range many {
			many[j] = serviceEvent()
		}
		report(t, s, boxID(i), many...)
	})
	return s
}

// BenchmarkReplay reads 1,000,000 events of one sandbox, half of them of execs, as a subscription does. heap-MB is the largest sampled
// live heap.
func BenchmarkReplay(b *testing.B) {
	const events = 1_000_000
	s := withLongHistory(b, events)
	before, most := heap(), uint64(0)
	for b.Loop() {
		for after := uint64(0); after < events; {
			page, err := s.EventsAfter(b.Context(), "box", Cursor{After: after}, 0)
			must(b, err)
			after += uint64(len(page))
			if after%(events/4) < maxRead {
				b.StopTimer()
				most = max(most, heap())
				b.StartTimer()
			}
		}
	}
	b.ReportMetric(float64(b.N)*events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(max(most, before)-before)/(1<<20), "heap-MB")
}

// BenchmarkOpenLongHistory opens a file with 1,000,000 events of one sandbox.
func BenchmarkOpenLongHistory(b *testing.B) {
	s := withLongHistory(b, 1_000_000)
	must(b, s.Close())
	for b.Loop() {
		s, err := Open(b.Context(), s.o)
		must(b, err)
		must(b, s.Close())
	}
}

// withLongHistory creates one sandbox with the given number of service and exec events, recorded as their writers record them.
func withLongHistory(t testing.TB, events int) *Store {
	t.Helper()
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	for n := 3; n < events; {
		must(t, s.update(t.Context(), func(tx *txn) error {
			sb, err := tx.sandbox("box", nil)
			for ; err == nil && n < events && len(tx.ops) < 10_000; n++ {
				ev := serviceEvent()
				if n%2 == 0 {
					ev = execEvent(agboxv1.EventType_EXEC_FINISHED, &agboxv1.ExecEventDetails{
						ExecId: fmt.Sprintf("exec-%030d", n), ExecState: agboxv1.ExecState_EXEC_STATE_FINISHED,
					})
				}
				tx.append(sb, ev)
			}
			tx.keep(sb, "")
			return err
		}))
	}
	return s
}
