package dockertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func checkNetwork(w *world) {
	n := w.network(w.name)
	if n.ID == "" || n.Name != w.name || n.Subnet.Bits() != 28 || !n.Subnet.Addr().Is4() || n.Created.IsZero() {
		w.Errorf("created %+v", n)
	}
	list := must(w.e.ListNetworks(w.ctx, map[string]string{worldLabel: w.name}))(w)
	if len(list) != 1 || list[0].ID != n.ID || list[0].Subnet != n.Subnet || !maps.Equal(list[0].Labels, n.Labels) {
		w.Errorf("listed %+v, want %+v", list, n)
	}
	id := w.create(w.spec("", n.ID))
	w.ok(w.e.StartContainer(w.ctx, id))
	w.refused(w.e.RemoveNetwork(w.ctx, n.ID), errdefs.ErrFailedPrecondition)
	w.ok(w.e.StopContainer(w.ctx, id, 0))
	w.ok(w.e.RemoveNetwork(w.ctx, n.ID)) // a stopped container does not block the removal
	w.ok(w.e.RemoveNetwork(w.ctx, n.ID))
	w.refused(w.e.StartContainer(w.ctx, id), errdefs.ErrNotFound)
	w.wantState(id, dockerx.StateExited)
	if list := must(w.e.ListNetworks(w.ctx, w.labels))(w); len(list) != 0 {
		w.Errorf("after the removal: %v", list)
	}
}

// checkDoubledNetworks creates several networks of one name concurrently. How many succeed depends on the engine; the check
// is about what a caller can do then.
func checkDoubledNetworks(w *world) {
	var wg sync.WaitGroup
	made := make(chan dockerx.Network, 8)
	for range cap(made) {
		wg.Go(func() {
			n, err := w.e.CreateNetwork(w.ctx, dockerx.NetworkSpec{Name: w.name, Labels: maps.Clone(w.labels)})
			if err == nil {
				made <- n
			} else if !errdefs.IsAlreadyExists(err) {
				w.Error(err)
			}
		})
	}
	wg.Wait()
	close(made)
	var networks []dockerx.Network
	for n := range made {
		networks = append(networks, n)
	}
	list := must(w.e.ListNetworks(w.ctx, w.labels))(w)
	if len(networks) == 0 || len(list) != len(networks) {
		w.Fatalf("%d networks created, %d listed", len(networks), len(list))
	}
	w.Logf("8 concurrent creates of one name created %d networks", len(networks))
	keep := networks[len(networks)-1]
	id := w.create(w.spec("", keep.ID))
	w.wantNetworks(id, keep.ID)
	if err := w.e.StartContainer(w.ctx, id); err != nil {
		w.refused(err, errdefs.ErrFailedPrecondition)
	}
	for _, n := range networks[:len(networks)-1] {
		w.ok(w.e.RemoveNetwork(w.ctx, n.ID))
	}
	w.ok(w.e.StartContainer(w.ctx, id))
	w.wantNetworks(id, keep.ID)
}

func checkImages(w *world) {
	img := must(w.e.InspectImage(w.ctx, ConformImage))(w)
	if img.ID == "" || img.User != "nobody" {
		w.Errorf("image %+v", img)
	}
	byID := must(w.e.InspectImage(w.ctx, img.ID))(w)
	there := must(w.e.EnsureImage(w.ctx, ConformImage, dockerx.PullOptions{}))(w)
	if byID.ID != img.ID || there.ID != img.ID {
		w.Errorf("by ID %s, ensured %s, want %s", byID.ID, there.ID, img.ID)
	}
	w.refused(errOf(w.e.InspectImage(w.ctx, "agbox-conform-no-such-image:1")), errdefs.ErrNotFound)
	same := must(w.e.EnsureImage(w.ctx, img.ID, dockerx.PullOptions{Always: true}))(w)
	if same.ID != img.ID {
		w.Errorf("an ID, always: %s, want %s", same.ID, img.ID)
	}
	for _, always := range []bool{false, true} {
		w.refused(errOf(w.e.EnsureImage(w.ctx, "Not A Reference", dockerx.PullOptions{Always: always})), errdefs.ErrInvalidArgument)
	}
}

func checkVolumes(w *world) {
	exists := func(want bool) {
		w.Helper()
		if got, err := w.e.VolumeExists(w.ctx, w.name); got != want || err != nil {
			w.Errorf("exists: %t, %v; want %t", got, err, want)
		}
	}
	exists(false)
	w.ok(w.e.CreateVolume(w.ctx, w.name, w.labels))
	w.ok(w.e.CreateVolume(w.ctx, w.name, w.labels))
	exists(true)
	w.e.RemoveVolumeOutside(w.name)
	exists(false)
}

func checkVolumeMounts(w *world) {
	names := func() (names []string) {
		w.Helper()
		for _, v := range must(w.e.ListVolumes(w.ctx, w.labels))(w) {
			names = append(names, v.Name)
			if v.Created.IsZero() || v.Labels[worldLabel] != w.name {
				w.Errorf("volume %v", v)
			}
		}
		return names
	}
	spec := w.spec("user", "")
	spec.Volumes = []dockerx.VolumeMount{{Name: w.name, Target: "/v", Labels: w.labels}}
	id := must(w.e.CreateContainer(w.ctx, spec))(w)
	if got := names(); !slices.Equal(got, []string{w.name}) {
		w.Errorf("the create made the volumes %q", got)
	}
	d := w.inspect(id)
	if len(d.Mounts) != 1 || d.Mounts[0].Volume != w.name || d.Mounts[0].Target != "/v" || !d.Mounts[0].Writable {
		w.Errorf("mounts %+v", d.Mounts)
	}
	if users := must(w.e.ListVolumeUsers(w.ctx, w.name))(w); len(users) != 1 || users[0].ID != id {
		w.Errorf("its users are %v", users)
	}
	w.refused(w.e.RemoveVolume(w.ctx, w.name), errdefs.ErrFailedPrecondition) // although the container never ran
	w.ok(w.e.RemoveContainer(w.ctx, id))
	if got := names(); !slices.Equal(got, []string{w.name}) {
		w.Errorf("the removal of the container left the volumes %q", got)
	}
	other := w.spec("other", "")
	other.Volumes = []dockerx.VolumeMount{{Name: w.name, Target: "/v", Labels: map[string]string{worldLabel: "another"}}}
	id = must(w.e.CreateContainer(w.ctx, other))(w)
	if got := names(); !slices.Equal(got, []string{w.name}) {
		w.Errorf("a second create changed the labels: %q", got)
	}
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.ok(w.e.RemoveVolume(w.ctx, w.name))
	w.ok(w.e.RemoveVolume(w.ctx, w.name))
	if users := must(w.e.ListVolumeUsers(w.ctx, w.name))(w); len(users)+len(names()) > 0 {
		w.Errorf("left: %v, %v", users, names())
	}
}

func checkContext(w *world) {
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.e.ListContainers(ctx, w.labels); !errors.Is(err, context.Canceled) {
		w.Errorf("list with a cancelled context: %v", err)
	}
	if _, err := w.e.EnsureImage(ctx, "agbox-conform-no-such-image:1", dockerx.PullOptions{}); !errors.Is(err, context.Canceled) {
		w.Errorf("pull with a cancelled context: %v", err)
	}
	ctx, cancel = context.WithDeadline(w.ctx, time.Now().Add(-time.Second))
	defer cancel()
	if _, err := w.e.Info(ctx); !errors.Is(err, context.DeadlineExceeded) {
		w.Errorf("info with an expired context: %v", err)
	}
}

func checkInspectNetwork(w *world) {
	n := w.network(w.name)
	for _, key := range []string{n.ID, n.Name} {
		got := must(w.e.InspectNetwork(w.ctx, key))(w)
		if got.ID != n.ID || got.Labels[worldLabel] != w.name {
			w.Errorf("%s is %+v", key, got)
		}
	}
	w.ok(w.e.RemoveNetwork(w.ctx, n.ID))
	w.refused(errOf(w.e.InspectNetwork(w.ctx, n.ID)), errdefs.ErrNotFound)
	w.refused(errOf(w.e.InspectNetwork(w.ctx, n.Name)), errdefs.ErrNotFound)
}

// checkConnect removes a container's network while the container does not run, as `docker network prune` does.
func checkConnect(w *world) {
	old := w.network(w.name)
	id := w.create(w.spec("", old.ID))
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(w.e.ConnectNetwork(w.ctx, old.ID, id, nil)) // already connected
	w.wantNetworks(id, old.ID)
	w.ok(w.e.StopContainer(w.ctx, id, 0))
	w.ok(w.e.RemoveNetwork(w.ctx, old.ID))
	w.refused(w.e.ConnectNetwork(w.ctx, old.ID, id, nil), errdefs.ErrNotFound)

	made := w.network(w.name)
	w.ok(w.e.ConnectNetwork(w.ctx, made.ID, id, []string{"db"}))
	w.wantNetworks(id, made.ID) // also before its start
	w.ok(w.e.ConnectNetwork(w.ctx, made.ID, id, []string{"db"}))
	w.ok(w.e.StartContainer(w.ctx, id))
	w.wantNetworks(id, made.ID)
	w.ok(w.e.ConnectNetwork(w.ctx, made.ID, id, []string{"db"}))
	w.wantState(id, dockerx.StateRunning)
	w.refused(w.e.ConnectNetwork(w.ctx, made.ID, w.name+"-nobody", nil), errdefs.ErrNotFound)
}

// checkDisconnect disconnects a running container, and later stops it: the engine sends a disconnect for both. An inspection
// at the event distinguishes them.
func checkDisconnect(w *world) {
	n := w.network(w.name)
	id := w.create(w.spec("", n.ID))
	w.ok(w.e.StartContainer(w.ctx, id))
	var mu sync.Mutex
	var found []dockerx.ContainerDetail
	f := w.follow(time.Time{}, func(e dockerx.Event) {
		if e.Action != dockerx.ActionDisconnect {
			return
		}
		d, err := w.e.InspectContainer(w.ctx, id)
		if err != nil || e.Type != dockerx.TypeNetwork || e.ID != n.ID || e.Labels[worldLabel] != w.name || e.Time.IsZero() {
			w.Errorf("event %+v: %v", e, err)
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, d)
	})
	defer w.stop(f)
	// settled returns the inspections since the last call, once all earlier events were handled.
	settled := func(marker string) []dockerx.ContainerDetail {
		end := w.create(w.spec(marker, ""))
		w.eventually("the event of "+marker, func() bool { return stories(f.events())[end] != nil })
		mu.Lock()
		defer mu.Unlock()
		all := found
		found = nil
		return all
	}
	w.e.DisconnectOutside(id)
	all := settled("-disconnected")
	for _, d := range all {
		if !d.Running || slices.Contains(d.Networks, n.ID) {
			w.Errorf("at the disconnect: state %s, networks %v", d.State, d.Networks)
		}
	}
	w.ok(w.e.ConnectNetwork(w.ctx, n.ID, id, nil))
	w.wantNetworks(id, n.ID)
	w.kill(id)
	ends := settled("-ended")
	for _, d := range ends {
		if d.Running {
			w.Errorf("at the disconnect of an exited container: state %s, networks %v", d.State, d.Networks)
		}
	}
	if len(all) == 0 || len(ends) == 0 {
		w.Errorf("%d disconnects, and %d at the exit", len(all), len(ends))
	}
}

func checkOwnVolumes(w *world) {
	spec := w.spec("owner", "")
	spec.Volumes = []dockerx.VolumeMount{{Target: "/v", Labels: w.labels}, {Target: "/w", Labels: w.labels}}
	spec.Security.ReadOnlyRoot, spec.Security.Unconfined = true, true
	id := must(w.e.CreateContainer(w.ctx, spec))(w)
	made := must(w.e.ListVolumes(w.ctx, w.labels))(w)
	if d := w.inspect(id); len(made) != 2 || made[0].Name == made[1].Name || len(d.Mounts) != 2 || d.Mounts[0].Volume == "" || !d.ReadOnlyRoot || !d.Unconfined {
		w.Errorf("volumes %v, container %+v", made, d)
	}
	for _, v := range made {
		w.refused(w.e.RemoveVolume(w.ctx, v.Name), errdefs.ErrFailedPrecondition)
	}
	w.ok(w.e.RemoveContainer(w.ctx, id))
	if left := must(w.e.ListVolumes(w.ctx, w.labels))(w); len(left) > 0 {
		w.Errorf("the container left the volumes %v", left)
	}
}
