package disklimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

func TestWhatFollowsFromAMeasurement(t *testing.T) {
	begun := time.Now()
	of := subject{"primary", begun, 100}
	const slow = 5 * time.Second
	away := errdefs.ErrUnavailable
	under, over, failed := memory{of: of, bytes: 1, known: true}, memory{of: of, bytes: 101, known: true}, memory{of: of, bytes: 101, known: true, err: away}
	for name, c := range map[string]struct {
		was       memory
		bytes     int64
		err       error
		took      time.Duration
		confirmed bool
		next      time.Duration
		known     int64 // afterwards; -1: nothing
	}{
		"nothing written":                      {memory{of: of}, 0, nil, 0, false, Every, 0},
		"as much as it may":                    {memory{of: of}, 100, nil, 0, false, Every, 100},
		"too much, for the first time":         {memory{of: of}, 101, nil, 0, false, again, 101},
		"a wrong answer after a right one":     {under, 1 << 60, nil, 0, false, again, 1 << 60},
		"too much again":                       {over, 102, nil, 0, true, again, 102},
		"it has removed files":                 {over, 100, nil, 0, false, Every, 100},
		"a zero after too much":                {over, 0, nil, 0, false, Every, 0},
		"no answer after too much":             {over, 0, away, 0, false, Every, 101},
		"too much after no answer":             {failed, 101, nil, 0, false, again, 101},
		"never an answer":                      {memory{of: of}, 0, away, 0, false, Every, -1},
		"many files":                           {under, 2, nil, slow, false, share * slow, 2},
		"many files, too much":                 {under, 101, nil, slow, false, slow, 101},
		"no answer within the deadline":        {under, 0, away, time.Minute, false, share * time.Minute, 1},
		"an answer that is wrong, but no size": {under, -1, away, 0, false, Every, 1},
	} {
		now, confirmed := c.was.after(measurement{c.bytes, c.err, begun, c.took})
		known := int64(-1)
		if now.known {
			known = now.bytes
		}
		if confirmed != c.confirmed || now.due.Sub(begun) != c.next || known != c.known || now.of != of || now.took != c.took {
			t.Errorf("%s: confirmed %v, %+v", name, confirmed, now)
		}
	}
}

func TestAResumedSandboxHasTimeToRemoveFiles(t *testing.T) {
	now := time.Now()
	of := subject{"primary", now, 100}
	over := memory{of: of, took: time.Second, bytes: 101, known: true, due: now}
	if m := over.begins(of, now); m != over {
		t.Errorf("the same run: %+v", m)
	}
	resumed := of
	resumed.since = now.Add(time.Hour)
	if m := over.begins(resumed, now); m.known || m.over() || m.due.Sub(now) != share*time.Second {
		t.Errorf("resumed: %+v", m)
	}
	if m := (memory{}).begins(of, now); m.due.Sub(now) != Every {
		t.Errorf("never seen: %+v", m)
	}
}

// world is a store and an engine. A test has its lock, except while time passes.
type world struct {
	sync.Mutex
	boxes    map[string]*store.Sandbox
	sizes    map[string]int64
	err      error
	walk     time.Duration
	info     dockerx.Info
	problem  string
	same     error
	refuses  error
	measured []string
	stopped  []string
	during   func() // a measurement
}

func newWorld(boxes int) *world {
	w := &world{boxes: map[string]*store.Sandbox{}, sizes: map[string]int64{}, during: func() {}, info: dockerx.Info{Version: "1", StorageDriver: "overlay2 on extfs"}}
	for i := range boxes {
		id := fmt.Sprintf("box-%04d", i)
		w.boxes[id] = &store.Sandbox{
			ID: id, State: agboxv1.SandboxState_SANDBOX_STATE_READY, StateChangedAt: time.Now(), Spec: &agboxv1.CreateSpec{DiskLimit: "64MiB"},
			Desired: &storev1.Desired{RunState: storev1.RunState_RUN_STATE_RUN, Objects: &storev1.Objects{PrimaryId: "primary of " + id}},
		}
	}
	return w
}

func (w *world) LiveIDs() (ids []string) {
	w.Lock()
	defer w.Unlock()
	for id := range w.boxes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) Sandbox(_ context.Context, id string) (store.Sandbox, error) {
	w.Lock()
	defer w.Unlock()
	if w.boxes[id] == nil {
		return store.Sandbox{}, errdefs.ErrNotFound
	}
	return *w.boxes[id], nil
}

func (w *world) RequestDiskStop(_ context.Context, id string, since time.Time, sentence string) (bool, error) {
	w.Lock()
	defer w.Unlock()
	if w.refuses != nil || w.boxes[id] == nil || !since.Equal(w.boxes[id].StateChangedAt) {
		return false, w.refuses
	}
	w.stopped = append(w.stopped, id+": "+sentence)
	w.boxes[id].Desired = &storev1.Desired{RunState: storev1.RunState_RUN_STATE_STOP, Reason: store.ReasonDiskLimit}
	return true, nil
}

func (w *world) Life() (*storev1.EngineRun, string) {
	w.Lock()
	defer w.Unlock()
	return &storev1.EngineRun{}, w.problem
}

func (w *world) Info() dockerx.Info {
	w.Lock()
	defer w.Unlock()
	return w.info
}

func (w *world) CheckSame(context.Context, *storev1.EngineRun) error {
	w.Lock()
	defer w.Unlock()
	return w.same
}

// warnings are those about the only sandbox.
func (w *world) warnings(watcher *Watcher) []string {
	sb := *w.boxes[box]
	w.Unlock()
	defer w.Lock()
	return watcher.Warnings(sb)
}

func (w *world) measure(ctx context.Context, container string) (int64, error) {
	w.Lock()
	walk := w.walk
	w.Unlock()
	time.Sleep(walk)
	w.Lock()
	defer w.Unlock()
	w.during()
	w.measured = append(w.measured, container)
	return w.sizes[container], errors.Join(w.err, ctx.Err())
}

// watched runs a watcher of w during test, which lets time pass by.
func watched(t *testing.T, boxes int, test func(t *testing.T, w *world, watcher *Watcher, pass func(time.Duration))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(boxes)
		watcher := New(Options{Store: w, Link: w, Measure: w.measure, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); watcher.Run(ctx) }()
		w.Lock()
		defer func() { w.Unlock(); cancel(); <-done }()
		test(t, w, watcher, func(d time.Duration) {
			w.Unlock()
			time.Sleep(d)
			synctest.Wait()
			w.Lock()
		})
	})
}

const box, primary, tooMuch = "box-0000", "primary of box-0000", 100 << 20

func TestASandboxOverItsLimitIsStopped(t *testing.T) {
	watched(t, 1, func(t *testing.T, w *world, watcher *Watcher, pass func(time.Duration)) {
		w.sizes[primary] = tooMuch
		pass(Every + 3*again)
		if len(w.stopped) != 1 || w.stopped[0] != box+": it has written 100MiB, and its disk_limit is 64MiB" || len(w.measured) != 2 {
			t.Fatalf("measured %q, stopped %q", w.measured, w.stopped)
		}
		warnings := strings.Join(w.warnings(watcher), "\n")
		if !strings.Contains(warnings, "overlay2 on extfs") || !strings.Contains(warnings, "remove some within 10s") {
			t.Error(warnings)
		}
		pass(time.Hour)
		if len(w.measured) != 2 {
			t.Error("a sandbox that does not run is measured")
		}
		w.boxes[box].Desired = &storev1.Desired{RunState: storev1.RunState_RUN_STATE_RUN, Objects: &storev1.Objects{PrimaryId: primary}}
		w.boxes[box].StateChangedAt = time.Now()
		pass(Every - again)
		w.sizes[primary] = 0
		pass(time.Minute)
		if len(w.stopped) != 1 || len(w.measured) < 7 {
			t.Errorf("resumed and cleaned up: measured %d times, stopped %q", len(w.measured), w.stopped)
		}
		if got := w.warnings(watcher); len(got) != 1 || !strings.HasSuffix(got[0], "it has written 0B") {
			t.Errorf("%q", got)
		}
	})
}

func TestWhatNeverStopsASandbox(t *testing.T) {
	for name, set := range map[string]func(w *world){
		"no answer":                            func(w *world) { w.err = errdefs.ErrUnavailable },
		"the engine is away":                   func(w *world) { w.problem = "connecting" },
		"the engine is another one":            func(w *world) { w.same = errors.New("another engine") },
		"the engine holds limits":              func(w *world) { w.info.DiskLimit = true },
		"no engine was seen":                   func(w *world) { w.info = dockerx.Info{} },
		"no limit":                             func(w *world) { w.boxes[box].Spec.DiskLimit = "" },
		"a limit as high":                      func(w *world) { w.boxes[box].Spec.DiskLimit = "100MiB" },
		"a paused one":                         func(w *world) { w.boxes[box].State = agboxv1.SandboxState_SANDBOX_STATE_PAUSED },
		"one without a container on record":    func(w *world) { w.boxes[box].Desired.Objects = nil },
		"a stop under way":                     func(w *world) { w.boxes[box].Desired.RunState = storev1.RunState_RUN_STATE_STOP },
		"a deleted one":                        func(w *world) { w.boxes[box].Desired.RunState = storev1.RunState_RUN_STATE_DELETE },
		"one that the store does not find now": func(w *world) { w.boxes[box] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, 1, func(t *testing.T, w *world, watcher *Watcher, pass func(time.Duration)) {
				w.sizes[primary] = tooMuch
				set(w)
				pass(10 * time.Minute)
				if len(w.stopped) > 0 {
					t.Error(w.stopped)
				}
			})
		})
	}
}

func TestASandboxThatChangesDuringItsMeasurement(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"resumed":           func(w *world) { w.boxes[box].StateChangedAt = time.Now() },
		"deleted":           func(w *world) { delete(w.boxes, box) },
		"its file is small": func(w *world) { w.sizes[primary] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, 1, func(t *testing.T, w *world, _ *Watcher, pass func(time.Duration)) {
				w.sizes[primary] = tooMuch
				w.during = func() {
					if len(w.measured) > 0 { // the confirmation
						change(w)
					}
				}
				pass(Every + 3*again)
				if len(w.measured) != 2 || len(w.stopped) > 0 {
					t.Errorf("measured %q, stopped %q", w.measured, w.stopped)
				}
			})
		})
	}
}

func TestAStopThatFailsIsTriedAgain(t *testing.T) {
	watched(t, 1, func(t *testing.T, w *world, watcher *Watcher, pass func(time.Duration)) {
		w.sizes[primary], w.refuses = tooMuch, errdefs.ErrUnavailable
		pass(time.Minute)
		if len(w.stopped) > 0 || len(w.measured) < 10 {
			t.Fatal(w.measured, w.stopped)
		}
		w.refuses = nil
		pass(2 * again)
		if len(w.stopped) != 1 {
			t.Error("it is not stopped")
		}
	})
}

func TestMeasuringTakesLittleOfTheTime(t *testing.T) {
	for _, c := range []struct {
		boxes int
		walk  time.Duration
		least int // measurements in an hour
		share float64
	}{
		{1, 0, 250, 0}, {1, 10 * time.Millisecond, 250, 0.05}, {1, time.Second, 150, 0.05}, {1000, 5 * time.Millisecond, 30_000, 0.05},
		{1000, 100 * time.Millisecond, 1700, 0.05}, {3, 30 * time.Second, 15, 0.2},
	} {
		watched(t, c.boxes, func(t *testing.T, w *world, _ *Watcher, pass func(time.Duration)) {
			w.walk = c.walk
			pass(time.Hour)
			n := len(w.measured)
			if took := float64(n) * float64(c.walk) / float64(time.Hour); n < c.least || took > c.share {
				t.Errorf("%d sandboxes, %s each: %d measurements, %.2f of the time", c.boxes, c.walk, n, took)
			}
		})
	}
}

func TestWatcherForgetsDeletedSandboxes(t *testing.T) {
	watched(t, 2, func(t *testing.T, w *world, watcher *Watcher, pass func(time.Duration)) {
		pass(time.Minute)
		delete(w.boxes, box)
		pass(time.Minute)
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		if len(watcher.of) != 1 {
			t.Error(watcher.of)
		}
	})
}
