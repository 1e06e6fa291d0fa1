package dockertest

import (
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

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
