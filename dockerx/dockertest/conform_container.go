package dockertest

import (
	"reflect"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func checkInfo(w *world) {
	one := must(w.e.Info(w.ctx))(w)
	two := must(w.e.Info(w.ctx))(w)
	if apart := two.StartedAt.Sub(one.StartedAt).Abs(); apart > time.Second || one.StartedAt.After(time.Now()) {
		w.Errorf("started at %s, then at %s", one.StartedAt, two.StartedAt)
	}
	two.StartedAt = one.StartedAt // StartedAt is derived from the wall clock and varies slightly
	if !reflect.DeepEqual(one, two) || one.Run == "" || one.Version == "" || one.APIVersion == "" || one.EngineID == "" {
		w.Errorf("info %+v, then %+v", one, two)
	}
}

func checkLifecycle(w *world) {
	n := w.network(w.name)
	spec := w.spec("", n.ID)
	spec.Mounts = []dockerx.Mount{{Source: w.TempDir(), Target: "/m"}}
	id := w.create(spec)
	w.wantState(id, dockerx.StateCreated)
	w.wantNetworks(id, n.ID)
	if d := w.inspect(id); !d.StartedAt.IsZero() || !d.FinishedAt.IsZero() || d.Name != spec.Name || !slices.Equal(d.Mounts, spec.Mounts) {
		w.Errorf("created: %+v", d)
	}
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(w.e.StartContainer(w.ctx, id)) // already running
	w.wantState(id, dockerx.StateRunning)
	w.wantNetworks(id, n.ID)
	first := w.inspect(id)
	if !first.Running || first.Paused || first.OOMKilled || first.Pid <= 0 || first.StartedAt.IsZero() {
		w.Errorf("running: %+v", first)
	}
	start := time.Now()
	w.ok(w.e.StopContainer(w.ctx, id, time.Second))
	if took := time.Since(start); took > 10*time.Second {
		w.Errorf("a stop with a grace period of 1 s took %s", took)
	}
	w.wantState(id, dockerx.StateExited)
	if d := w.inspect(id); d.Running || d.Pid != 0 || d.FinishedAt.Before(first.StartedAt) || d.ExitCode != 143 && d.ExitCode != 137 {
		w.Errorf("stopped: %+v", d)
	}
	w.ok(w.e.StartContainer(w.ctx, id))
	w.wantState(id, dockerx.StateRunning)
	if d := w.inspect(id); !d.StartedAt.After(first.StartedAt) {
		w.Errorf("started at %s, and again at %s", first.StartedAt, d.StartedAt)
	}
	w.kill(id)
	if d := w.inspect(id); d.ExitCode != 137 || d.EndedWell || w.listed(id).EndedWell {
		w.Errorf("killed: %+v", d)
	}
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.refused(errOf(w.e.InspectContainer(w.ctx, id)), errdefs.ErrNotFound)
}

// wantState checks list and inspection.
func (w *world) wantState(id string, want dockerx.State) {
	w.Helper()
	if d := w.inspect(id); d.State != want || d.ID != id {
		w.Errorf("inspection of %s says %s of %s, want %s", id, d.State, d.ID, want)
	}
	if c := w.listed(id); c.State != want {
		w.Errorf("list says %s, want %s", c.State, want)
	}
}

func (w *world) wantNetworks(id string, want ...string) {
	w.Helper()
	if d := w.inspect(id); !slices.Equal(d.Networks, want) {
		w.Errorf("inspection says networks %v, want %v", d.Networks, want)
	}
	if c := w.listed(id); !slices.Equal(c.Networks, want) {
		w.Errorf("list says networks %v, want %v", c.Networks, want)
	}
}

func (w *world) listed(id string) dockerx.Container {
	w.Helper()
	list := must(w.e.ListContainers(w.ctx, w.labels))(w)
	for _, c := range list {
		if c.ID == id {
			return c
		}
	}
	w.Fatalf("container %s is not in the list", id)
	return dockerx.Container{}
}

// kill kills a running container and waits for its exit.
func (w *world) kill(id string) {
	w.Helper()
	w.e.KillOutside(id)
	w.eventually("the killed container has exited", func() bool { return w.inspect(id).State == dockerx.StateExited })
}

// eventually waits for a state that the engine reports shortly after the call that caused it.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	for range 500 {
		if cond() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.Fatalf("never: %s", what)
}

func checkGone(w *world) {
	id := w.create(w.spec("", ""))
	w.ok(w.e.StopContainer(w.ctx, id, 0)) // never ran
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(w.e.RemoveContainer(w.ctx, id)) // running
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.ok(w.e.StopContainer(w.ctx, id, 0))
	w.refused(w.e.StartContainer(w.ctx, id), errdefs.ErrNotFound)
}

func checkNameTaken(w *world) {
	id := w.create(w.spec("", ""))
	w.refused(errOf(w.e.CreateContainer(w.ctx, w.spec("", ""))), errdefs.ErrAlreadyExists)
	w.ok(w.e.RemoveContainer(w.ctx, id))
	if again := w.create(w.spec("", "")); again == id {
		w.Errorf("a new container has the ID of the old one, %s", id)
	}
}

func checkRefusals(w *world) {
	spec := w.spec("", "")
	spec.Image = "agbox-conform-no-such-image:1"
	w.refused(errOf(w.e.CreateContainer(w.ctx, spec)), errdefs.ErrNotFound)

	missing := w.TempDir() + "/missing"
	if f, fake := w.e.(*Fake); fake {
		f.HideSource(missing, true)
	}
	spec = w.spec("", "")
	spec.Mounts = []dockerx.Mount{{Source: missing, Target: "/m"}}
	w.refused(errOf(w.e.CreateContainer(w.ctx, spec)), errdefs.ErrInvalidArgument)

	for _, id := range []string{"host", "bridge", "container:x", "abcd"} {
		w.refused(errOf(w.e.CreateContainer(w.ctx, w.spec("", id))), errdefs.ErrInvalidArgument)
	}
}

func checkNoNetwork(w *world) {
	id := w.create(w.spec("", ""))
	w.wantNetworks(id)
	w.ok(w.e.StartContainer(w.ctx, id))
	w.wantNetworks(id)
}

func checkLabels(w *world) {
	spec := w.spec("a", "")
	spec.Labels["kind"] = "x"
	a := w.create(spec)
	b := w.create(w.spec("b", ""))
	for _, tc := range []struct {
		labels map[string]string
		want   []string
	}{
		{map[string]string{worldLabel: w.name}, []string{a, b}},
		{map[string]string{worldLabel: w.name, "kind": "x"}, []string{a}},
		{map[string]string{worldLabel: w.name, "kind": ""}, []string{a}},
		{map[string]string{worldLabel: w.name, "kind": "y"}, nil},
		{map[string]string{worldLabel: w.name + "-other"}, nil},
	} {
		list := must(w.e.ListContainers(w.ctx, tc.labels))(w)
		var got []string
		for _, c := range list {
			got = append(got, c.ID)
			c.Labels[worldLabel] = "the caller's own"
		}
		slices.Sort(got)
		slices.Sort(tc.want)
		if !slices.Equal(got, tc.want) {
			w.Errorf("containers with %v: %v, want %v", tc.labels, got, tc.want)
		}
	}
}
