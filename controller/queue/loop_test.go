package queue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agbox/agbox/internal/metrics"
)

// Only the outcome of a pass decides when its key is added again.
func TestTheWorkerMapsTheOutcomeToTheQueue(t *testing.T) {
	for _, row := range []struct {
		name   string
		pass   func(n int) (Result, error) // n counts from 1
		passes int                         // within 10 s
		tries  int                         // failures that are still counted
	}{
		{"done: forgotten", func(int) (Result, error) { return Result{}, nil }, 1, 0},
		{"later: comes again", func(int) (Result, error) { return Result{Next: 3 * time.Second}, nil }, 4, 0},
		{"pending: whoever is waited for adds the key", func(int) (Result, error) { return Result{Pending: true}, nil }, 1, 0},
		{"terminal: not tried again", func(int) (Result, error) {
			return Result{}, &TerminalError{Code: "X", Err: io.EOF}
		}, 1, 0},
		{"error: back-off doubles", func(int) (Result, error) { return Result{}, io.EOF }, 8, 8},
		{"panic: as an error", func(int) (Result, error) { panic("x") }, 8, 8},
		{"an error, then done: the count is gone", func(n int) (Result, error) {
			if n == 1 {
				return Result{}, errors.New("once")
			}
			return Result{}, nil
		}, 2, 0},
		{"an error, then pending: the count stays", func(n int) (Result, error) {
			if n == 1 {
				return Result{}, errors.New("once")
			}
			return Result{Pending: true}, nil
		}, 2, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				l := NewLoop(Options{
					Name: "sandboxes", Workers: 2, Logger: slog.New(slog.DiscardHandler),
					Metrics: metrics.New(prometheus.NewRegistry(), metrics.Sets{}),
				})
				pass := func(context.Context, string) (Result, error) { n++; return row.pass(n) }
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); l.Run(ctx, pass) }()
				l.Add("key")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if n != row.passes || l.Tries("key") != row.tries {
					t.Errorf("%d passes, %d failures; want %d, %d", n, l.Tries("key"), row.passes, row.tries)
				}
				cancel()
				<-done
				time.Sleep(time.Second) // client-go's queues notice their shutdown at their next tick
			})
		})
	}
}
