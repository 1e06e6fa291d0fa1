package dockertest

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func TestActionsOutsideOfAgbox(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var told []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = f.Events(ctx, time.Time{}, map[string]string{"ours": ""}, func() {}, func(e dockerx.Event) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, e.Action)
			})
		}()
		n, id := startedOnNetwork(t, f)
		f.MarkOOM(id)
		if d := state(t, f, id); !d.Running || !d.OOMKilled {
			t.Errorf("%+v", d)
		}
		f.PauseOutside(id, true)
		if d := state(t, f, id); !d.Running || !d.Paused || d.State != dockerx.StatePaused {
			t.Errorf("%+v", d)
		}
		if err := f.StartContainer(ctx, id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("start of a paused container: %v", err)
		}
		f.PauseOutside(id, false)
		f.RemoveNetworkOutside(n)
		if d := state(t, f, id); !d.Running || len(d.Networks) != 0 {
			t.Errorf("%+v", d)
		}
		f.ExitContainer(id, 137, true)
		f.RemoveContainerOutside(id)
		if len(f.Containers())+len(f.Networks()) != 0 {
			t.Error("something is left")
		}
		time.Sleep(time.Second)
		cancel()
		<-done
		want := []string{"create", "start", "oom", "pause", "unpause", "disconnect", "destroy", "oom", "die", "destroy"}
		if !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

func TestEventHistoryHasDockersLength(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		begin := time.Now()
		id := startOne(t, f)
		for range 200 {
			f.ExitContainer(id, 0, false)
			if err := f.StartOutside(id); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		_ = f.Events(ctx, begin, nil, func() {}, func(dockerx.Event) { n++ })
		if n != historyLimit {
			t.Errorf("%d events replayed", n)
		}
	})
}

func TestDoubledNetworkNames(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		one, err := f.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "n"}); err != nil {
			t.Errorf("the second: %v", err)
		}
		f.RefuseDoubledNames = true
		if _, err := f.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: "n"}); !errdefs.IsAlreadyExists(err) {
			t.Errorf("the third: %v", err)
		}
		spec := running
		spec.NetworkID = one.ID
		id, err := f.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.StartContainer(t.Context(), id); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("start: %v", err)
		}
	})
}

func TestPullsAreSharedAndTakePullDelay(t *testing.T) {
	bubble(t, func(t *testing.T, f *Fake) {
		f.PullDelay = time.Minute
		f.AddRemoteImage("r:1", dockerx.Image{User: "u"})
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if img, err := f.EnsureImage(t.Context(), "r:1", dockerx.PullOptions{}); err != nil || img.User != "u" {
					t.Errorf("%+v, %v", img, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != time.Minute || f.Calls(dockerx.OpPullImage) != 1 {
			t.Errorf("%d pulls in %s", f.Calls(dockerx.OpPullImage), took)
		}
		if _, err := f.EnsureImage(t.Context(), "r:2", dockerx.PullOptions{}); !errdefs.IsNotFound(err) {
			t.Errorf("what is not offered: %v", err)
		}
		f.RemoveImageOutside("r:1")
		f.Fail(dockerx.OpPullImage, 1, nil, false)
		if _, err := f.EnsureImage(t.Context(), "r:1", dockerx.PullOptions{}); !errdefs.IsUnavailable(err) {
			t.Errorf("a failing pull: %v", err)
		}
	})
}

// Many concurrent goroutines, for the race detector.
func TestFakeUnderLoad(t *testing.T) {
	f := conformFake(t)
	f.OnStart(func(d dockerx.ContainerDetail) { f.ExitContainer(d.ID, 0, false) })
	f.Late(dockerx.OpCreateContainer, 3, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = f.Events(ctx, time.Time{}, nil, func() {}, func(e dockerx.Event) { e.Labels["mine"] = "1" })
	})
	var load sync.WaitGroup
	for i := range 8 {
		load.Go(func() {
			for range 50 {
				spec := running
				spec.Name = strconv.Itoa(i)
				id, err := f.CreateContainer(ctx, spec)
				if err != nil {
					f.RemoveContainerOutside(spec.Name)
					continue
				}
				_ = f.StartContainer(ctx, id)
				list, _ := f.ListContainers(ctx, map[string]string{"ours": "1"})
				for _, c := range list {
					c.Labels["mine"] = "1"
				}
				_ = f.RemoveContainer(ctx, id)
			}
		})
	}
	load.Wait()
	cancel()
	wg.Wait()
}
