package dockertest

import (
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// frozen returns a frozen container.
func (w *world) frozen(name string) string {
	w.Helper()
	id := w.create(w.spec(name, ""))
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(w.e.PauseContainer(w.ctx, id))
	return id
}

func checkPause(w *world) {
	f := w.follow(time.Time{})
	defer w.stop(f)
	n := w.network(w.name)
	id := w.create(w.spec("", n.ID))
	w.ok(w.e.StartContainer(w.ctx, id))
	before := w.inspect(id)

	w.ok(w.e.PauseContainer(w.ctx, id))
	w.ok(w.e.PauseContainer(w.ctx, id)) // already frozen
	w.wantState(id, dockerx.StatePaused)
	w.wantNetworks(id, n.ID)
	d := w.inspect(id)
	if !d.Running || !d.Paused || d.Pid != before.Pid || !d.StartedAt.Equal(before.StartedAt) || d.EndedWell || w.listed(id).EndedWell {
		w.Errorf("frozen: %+v", d)
	}
	w.refused(w.e.StartContainer(w.ctx, id), errdefs.ErrFailedPrecondition)
	w.ok(w.e.UpdateContainer(w.ctx, id, dockerx.Limits{Pids: 20}))
	w.refused(w.e.RemoveNetwork(w.ctx, n.ID), errdefs.ErrFailedPrecondition)

	w.ok(w.e.UnpauseContainer(w.ctx, id))
	w.ok(w.e.UnpauseContainer(w.ctx, id))
	w.wantState(id, dockerx.StateRunning)
	if d := w.inspect(id); !d.Running || d.Paused || d.Pid != before.Pid || !d.StartedAt.Equal(before.StartedAt) {
		w.Errorf("thawed: %+v", d)
	}
	w.wantStories(f, map[string][]string{id: {"container create", "container start", "container pause", "container unpause"}})
	w.kill(id)
}

func checkEndOfFrozen(w *world) {
	f := w.follow(time.Time{})
	defer w.stop(f)
	ended := func(id string) {
		w.Helper()
		w.eventually("the container exits", func() bool { return w.inspect(id).State == dockerx.StateExited })
		d := w.inspect(id)
		if d.Running || d.Paused || d.Pid != 0 || d.EndedWell || d.ExitCode != 137 && d.ExitCode != 143 || w.listed(id).EndedWell {
			w.Errorf("ended: %+v", d)
		}
		w.ok(w.e.StartContainer(w.ctx, id))
		w.wantState(id, dockerx.StateRunning) // and not frozen
	}
	stopped := w.frozen("stopped")
	start := time.Now()
	w.ok(w.e.StopContainer(w.ctx, stopped, time.Second))
	if took := time.Since(start); took > 10*time.Second {
		w.Errorf("a stop with a grace period of 1 s took %s", took)
	}
	ended(stopped)

	killed := w.frozen("killed")
	w.e.KillOutside(killed)
	ended(killed)
	if die := w.dieOf(f, killed); die.ExitCode != 137 {
		w.Errorf("killed: %+v", die)
	}

	removed := w.frozen("removed")
	w.ok(w.e.RemoveContainer(w.ctx, removed))
	w.refused(errOf(w.e.InspectContainer(w.ctx, removed)), errdefs.ErrNotFound)
	w.dieOf(f, removed)
}

// dieOf waits for the die event of a container's first run.
func (w *world) dieOf(f *follower, id string) dockerx.Event {
	w.Helper()
	var die dockerx.Event
	w.eventually("the die event arrives", func() bool {
		for _, e := range f.events() {
			if e.ID == id && e.Action == dockerx.ActionDie {
				die = e
				return true
			}
		}
		return false
	})
	return die
}

func checkPauseRefusals(w *world) {
	id := w.create(w.spec("", ""))
	refused := func(class error) {
		w.Helper()
		w.refused(w.e.PauseContainer(w.ctx, id), class)
		w.refused(w.e.UnpauseContainer(w.ctx, id), class)
	}
	refused(errdefs.ErrFailedPrecondition) // never started
	w.ok(w.e.StartContainer(w.ctx, id))
	w.ok(w.e.UnpauseContainer(w.ctx, id)) // never frozen
	w.ok(w.e.StopContainer(w.ctx, id, 0))
	refused(errdefs.ErrFailedPrecondition)
	w.ok(w.e.RemoveContainer(w.ctx, id))
	refused(errdefs.ErrNotFound)
}

// checkFrozenHealth: the engine reports another verdict for a frozen container, until the next probe.
func checkFrozenHealth(w *world) {
	f := w.follow(time.Time{})
	defer w.stop(f)
	for name, tc := range map[string]struct {
		test    string
		verdict dockerx.Health
	}{"well": {wellTest, dockerx.HealthHealthy}, "sick": {sickTest, dockerx.HealthUnhealthy}} {
		id := w.create(w.checkedSpec(name, tc.test))
		w.ok(w.e.StartContainer(w.ctx, id))
		w.eventually("a verdict on "+name, func() bool { return w.inspect(id).Health == tc.verdict })
		stands := func(when string) {
			w.Helper()
			if d := w.inspect(id); d.Health != tc.verdict {
				w.Errorf("%s, %s: %q", name, when, d.Health)
			}
		}
		w.ok(w.e.PauseContainer(w.ctx, id))
		stands("frozen")
		if h := w.listed(id).Health; h != dockerx.HealthNone {
			w.Errorf("%s, frozen, in a list: %q", name, h)
		}
		w.ok(w.e.UnpauseContainer(w.ctx, id))
		stands("thawed")
		w.eventually("the list has the verdict again", func() bool { return w.listed(id).Health == tc.verdict })
		stands("after the next probe")
		story := []string{"container create", "container start", "container health_status", "container pause", "container unpause"}
		if tc.verdict == dockerx.HealthHealthy { // the engine treats it as unhealthy before
			story = append(story, "container health_status")
		}
		w.wantStories(f, map[string][]string{id: story})
	}
}
