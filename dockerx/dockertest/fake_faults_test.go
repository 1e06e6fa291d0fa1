package dockertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

var running = dockerx.ContainerSpec{Name: "c", Image: ConformImage, Labels: map[string]string{"ours": "1"}}

// startOne creates and starts a container.
func startOne(t *testing.T, f *Fake) string {
	t.Helper()
	id, err := f.CreateContainer(t.Context(), running)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

func state(t *testing.T, f *Fake, id string) dockerx.ContainerDetail {
	t.Helper()
	for _, c := range f.Containers() {
		if c.ID == id {
			return c
		}
	}
	t.Fatalf("no container %s", id)
	return dockerx.ContainerDetail{}
}

func wantUnavailable(t *testing.T, err error) {
	t.Helper()
	if !errdefs.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
}

func TestFailBeforeTheEffectAndAfterIt(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		boom := errors.New("boom")
		f.Fail(dockerx.OpCreateContainer, 2, boom, false)
		f.Fail(dockerx.OpCreateContainer, 1, nil, true)
		for range 2 {
			if _, err := f.CreateContainer(t.Context(), running); !errors.Is(err, boom) || len(f.Containers()) != 0 {
				t.Errorf("got %v and %d containers", err, len(f.Containers()))
			}
		}
		_, err := f.CreateContainer(t.Context(), running)
		wantUnavailable(t, err)
		if len(f.Containers()) != 1 {
			t.Error("the effect of a lost reply did not take place")
		}
		if _, err = f.CreateContainer(t.Context(), running); !errdefs.IsAlreadyExists(err) {
			t.Errorf("without faults: %v", err)
		}
		if n := f.Calls(dockerx.OpCreateContainer); n != 4 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestLateOperationTakesEffectLater(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id, err := f.CreateContainer(t.Context(), running)
		if err != nil {
			t.Fatal(err)
		}
		f.Late(dockerx.OpStartContainer, 1, time.Minute)
		wantUnavailable(t, f.StartContainer(t.Context(), id))
		time.Sleep(59 * time.Second)
		if state(t, f, id).Running {
			t.Error("runs too early")
		}
		time.Sleep(2 * time.Second)
		if !state(t, f, id).Running {
			t.Error("never ran")
		}
	})
}

func TestLateOperationIsLostWithItsEngine(t *testing.T) {
	for name, end := range map[string]func(*Fake){
		"restart": func(f *Fake) { f.RestartEngine(true) },
		"close":   func(f *Fake) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *Fake) {
				f.Late(dockerx.OpCreateContainer, 1, time.Minute)
				_, err := f.CreateContainer(t.Context(), running)
				wantUnavailable(t, err)
				end(f)
				time.Sleep(2 * time.Minute)
				if len(f.Containers()) != 0 {
					t.Error("took effect")
				}
			})
		})
	}
}

func TestDelayedOperationCompletesWithoutItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.Delay(dockerx.OpCreateContainer, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.CreateContainer(ctx, running); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Minute)
		if len(f.Containers()) != 1 {
			t.Error("took no effect")
		}
		f.Heal()
		start := time.Now()
		if _, err := f.ListContainers(t.Context(), nil); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

func TestDownEngineLosesCallsAndStreams(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id := startOne(t, f)
		lost := make(chan error, 2)
		go func() { lost <- f.Events(t.Context(), time.Time{}, nil, func() {}, func(dockerx.Event) {}) }()
		f.Delay(dockerx.OpInfo, time.Minute)
		go func() {
			_, err := f.Info(t.Context())
			lost <- err
		}()
		synctest.Wait()
		start := time.Now()
		f.Down(true)
		for range 2 {
			wantUnavailable(t, <-lost)
		}
		if time.Since(start) != 0 {
			t.Errorf("%s passed", time.Since(start))
		}
		wantUnavailable(t, f.StopContainer(t.Context(), id, 0))
		if !state(t, f, id).Running {
			t.Error("the container does not run on")
		}
		f.ExitContainer(id, 3, false)
		f.Down(false)
		if d, err := f.InspectContainer(t.Context(), id); err != nil || d.Running || d.ExitCode != 3 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func TestRestartOfTheEngine(t *testing.T) {
	for _, live := range []bool{true, false} {
		bubble(t, func(t *testing.T, f *Fake) {
			id := startOne(t, f)
			before, _ := f.Info(t.Context())
			begin := time.Now()
			time.Sleep(time.Second)
			f.RestartEngine(live)
			after, err := f.Info(t.Context())
			if err != nil || after.Run == before.Run || after.LiveRestore != live || !after.StartedAt.Equal(before.StartedAt.Add(time.Second)) {
				t.Errorf("%+v after %+v, %v", after, before, err)
			}
			d := state(t, f, id)
			if d.Running != live || !live && (d.ExitCode != 137 || !d.FinishedAt.Equal(time.Now())) {
				t.Errorf("live-restore %t: %+v", live, d)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = f.Events(ctx, begin, nil, func() {}, func(e dockerx.Event) { t.Errorf("event of a former life: %+v", e) })
		})
	}
}

func TestReplacedEngineIsEmpty(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		startOne(t, f)
		if _, err := f.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "n"}); err != nil {
			t.Fatal(err)
		}
		if err := f.CreateVolume(t.Context(), "v", nil); err != nil {
			t.Fatal(err)
		}
		before, _ := f.Info(t.Context())
		f.Replace()
		after, _ := f.Info(t.Context())
		there, err := f.VolumeExists(t.Context(), "v")
		if len(f.Containers())+len(f.Networks()) != 0 || there || err != nil {
			t.Error("something is left")
		}
		if before.EngineID != after.EngineID || before.Run == after.Run {
			t.Errorf("%+v after %+v", after, before)
		}
	})
}

func TestStopWaitsForTheContainer(t *testing.T) {
	for _, tc := range []struct {
		takes, grace, want time.Duration
		code               int
	}{
		{0, 10 * time.Second, 0, 143},
		{3 * time.Second, 10 * time.Second, 3 * time.Second, 143},
		{time.Minute, 10 * time.Second, 10 * time.Second, 137},
		{time.Minute, 1500 * time.Millisecond, 2 * time.Second, 137}, // whole seconds
		{time.Minute, 0, 0, 137},
	} {
		bubble(t, func(t *testing.T, f *Fake) {
			f.StopBehavior = func(string) time.Duration { return tc.takes }
			id := startOne(t, f)
			start := time.Now()
			if err := f.StopContainer(t.Context(), id, tc.grace); err != nil {
				t.Error(err)
			}
			if took, d := time.Since(start), state(t, f, id); took != tc.want || d.Running || d.ExitCode != tc.code {
				t.Errorf("%+v: took %s, exit code %d", tc, took, d.ExitCode)
			}
		})
	}
}

func TestKillOfAnEngineDuringAStop(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.StopBehavior = func(string) time.Duration { return time.Hour }
		id := startOne(t, f)
		time.AfterFunc(time.Second, func() { f.RestartEngine(true) })
		wantUnavailable(t, f.StopContainer(t.Context(), id, 10*time.Second))
		time.Sleep(time.Minute)
		if !state(t, f, id).Running {
			t.Error("a dead engine has sent a KILL")
		}
	})
}

func TestHooksSeeEveryStartAndEndInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		var seen []string
		f.OnStart(func(d dockerx.ContainerDetail) {
			seen = append(seen, "start")
			if d.StartedAt.IsZero() || !d.Running {
				t.Errorf("start of %+v", d)
			}
			f.ExitContainer(d.ID, 7, true) // a hook may call
		})
		f.OnStop(func(d dockerx.ContainerDetail) {
			seen = append(seen, "stop")
			if d.ExitCode != 7 || !d.OOMKilled || d.Running {
				t.Errorf("stop of %+v", d)
			}
		})
		id := startOne(t, f)
		if err := f.StartOutside(id); err != nil {
			t.Error(err)
		}
		if want := []string{"start", "stop", "start", "stop"}; !slices.Equal(seen, want) {
			t.Errorf("saw %v, want %v", seen, want)
		}
	})
}

// startedOnNetwork returns the IDs of a new network and of a running container on it.
func startedOnNetwork(t *testing.T, f *Fake) (network, container string) {
	t.Helper()
	n, err := f.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "n", Labels: running.Labels})
	if err != nil {
		t.Fatal(err)
	}
	spec := running
	spec.NetworkID = n.ID
	if container, err = f.CreateOutside(spec); err != nil {
		t.Fatal(err)
	}
	if err := f.StartOutside(container); err != nil {
		t.Fatal(err)
	}
	return n.ID, container
}

// As with Docker 20.10: containers of another driver keep running, are not visible, and do not block a network's removal.
func TestSwapStorage(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		ctx := t.Context()
		n, id := startedOnNetwork(t, f)
		if err := f.RemoveNetwork(ctx, n); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("removing a network that is used: %v", err)
		}
		f.SwapStorage("vfs")
		if _, err := f.InspectContainer(ctx, id); !errdefs.IsNotFound(err) {
			t.Errorf("another driver's container: %v", err)
		}
		if err := f.RemoveNetwork(ctx, n); err != nil {
			t.Errorf("removing its network: %v", err)
		}
		f.SwapStorage("overlay2")
		if d := state(t, f, id); !d.Running {
			t.Errorf("%+v", d)
		}
	})
}

func TestAHiddenContainerKeepsItsName(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		id, err := f.CreateOutside(running)
		if err != nil {
			t.Fatal(err)
		}
		f.HideContainer(id, true)
		if _, err := f.InspectContainer(t.Context(), id); !errdefs.IsNotFound(err) {
			t.Errorf("a hidden container: %v", err)
		}
		if _, err := f.CreateOutside(running); !errdefs.IsAlreadyExists(err) {
			t.Errorf("another container of its name: %v", err)
		}
	})
}
