package dockertest

import (
	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func checkInspectNetwork(w *world) {
	n := w.network(w.name)
	for _, key := range []string{n.ID, n.Name} {
		got, err := w.e.InspectNetwork(w.ctx, key)
		w.ok(err)
		if got.ID != n.ID || got.Labels[worldLabel] != w.name {
			w.Errorf("%s is %+v", key, got)
		}
	}
	w.ok(w.e.RemoveNetwork(w.ctx, n.ID))
	_, err := w.e.InspectNetwork(w.ctx, n.ID)
	w.refused(err, errdefs.ErrNotFound)
	_, err = w.e.InspectNetwork(w.ctx, n.Name)
	w.refused(err, errdefs.ErrNotFound)
}

// checkConnect takes a container's network away while it does not run, as `docker network prune` does.
func checkConnect(w *world) {
	old := w.network(w.name)
	id := w.create(w.spec("", old.ID))
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(w.e.ConnectNetwork(w.ctx, old.ID, id, nil)) // it is
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
