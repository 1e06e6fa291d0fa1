package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/clock"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/clockjump"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/metrics"
	"github.com/agbox/agbox/store"
)

// flooded is a reconciler of one agent whose process has printed size bytes of the same line.
func flooded(t *testing.T, line string, size int) *Reconciler {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "ids.db"), Logger: log})
	must(err)
	t.Cleanup(func() { must(s.Close()) })
	_, err = s.CreateSandbox(t.Context(), "box", "", &agboxv1.CreateSpec{Image: "x"}, nil)
	must(err)
	must(s.Report(t.Context(), "box", store.Report{Generation: 1, Events: []*agboxv1.SandboxEvent{{
		EventType: agboxv1.EventType_SANDBOX_READY, SandboxState: agboxv1.SandboxState_SANDBOX_STATE_READY,
	}}}))
	_, err = s.CreateAgent(t.Context(), "ada", "", &agboxv1.AgentSpec{SandboxId: "box", Command: []string{"yes"}})
	must(err)
	_, err = s.TransitionAgent(t.Context(), "ada", store.Transition{
		Incarnation: 1, Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN, Attempts: 1,
		Spawn: &agboxv1.CreateExecRequest{SandboxId: "box", Command: []string{"yes"}},
	})
	must(err)
	files := execjournal.New(filepath.Join(dir, "logs"), filepath.Join(dir, "run"))
	paths, err := files.Prepare("box")
	must(err)
	output := bytes.Repeat([]byte(line+"\n"), size/(len(line)+1))
	must(os.WriteFile(filepath.Join(paths.Logs, execjournal.StdoutName("ada.1")), output, 0o600))
	return New(Options{
		Store: s, Files: files, Logger: log, Metrics: metrics.New(prometheus.NewRegistry(), metrics.Sets{}),
		Clock: clock.New(nil, func() time.Duration { return 0 }, clockjump.State{}),
		Sandbox: func(_ context.Context, id string) (plan.Record, store.Sandbox, error) {
			return plan.Record{
				ID: id, Standing: plan.Live, Desired: storev1.RunState_RUN_STATE_RUN, State: agboxv1.SandboxState_SANDBOX_STATE_READY,
			}, store.Sandbox{}, nil
		},
		InDoubt: func(string) bool { return false },
	})
}

// TestAFloodOfOutputCostsLittleMemory: a program that prints short lines as fast as it can leaves a backlog of output. The test measures
// the heap, garbage included, at the point where a pass holds most.
func TestAFloodOfOutputCostsLittleMemory(t *testing.T) {
	for _, line := range []string{"y", `{"type":"message","text":"m"}`, `{"type":"checkpoint","text":"m"}`} {
		t.Run(line, func(t *testing.T) {
			c := flooded(t, line, 4<<20)
			idle, most := heapWithGarbage(true), uint64(0)
			for range 16 {
				a, err := c.cfg.Store.Agent(t.Context(), "ada")
				if err != nil {
					t.Fatal(err)
				}
				v, err := c.observe(t.Context(), a, c.cfg.Clock.Read())
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, heapWithGarbage(false))
				if err := v.read(t.Context()); err != nil {
					t.Fatal(err)
				}
				most = max(most, heapWithGarbage(false))
			}
			if pos, err := c.cfg.Store.AgentPosition(t.Context(), "ada"); err != nil || pos.GetStdoutOffset() == 0 {
				t.Fatalf("taken in up to %d: %v", pos.GetStdoutOffset(), err)
			}
			if most > idle+100<<20 {
				t.Errorf("the heap grew from %d MiB to %d MiB", idle>>20, most>>20)
			}
			t.Logf("with the garbage the heap grew from %d MiB to %d MiB", idle>>20, most>>20)
		})
	}
}

// heapWithGarbage returns the size of the heap in bytes; collected: after a garbage collection.
func heapWithGarbage(collected bool) uint64 {
	if collected {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
