package dockertest

import (
	"maps"
	"slices"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// fault is what goes wrong with one call.
type fault struct {
	err   error
	after bool          // the effect takes place, its reply is lost
	late  time.Duration // > 0: the reply is lost at once, the effect takes place this much later
}

// Fail has the next n calls of op, a name of dockerx.Ops, return err: before they have an effect, or, with after, when
// they have had it: a lost reply. A nil err is ErrUnavailable. Faults of one op are used up in the order they were given.
func (f *Fake) Fail(op string, n int, err error, after bool) {
	if err == nil {
		err = errUnreachable()
	}
	f.addFaults(op, n, fault{err: err, after: after})
}

// Late has the next n calls of op return ErrUnavailable at once and take effect d later, unless the engine is restarted,
// replaced or closed before. A caller that has given up knows nothing of it.
func (f *Fake) Late(op string, n int, d time.Duration) {
	f.addFaults(op, n, fault{err: errUnreachable(), late: d})
}

func (f *Fake) addFaults(op string, n int, one fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.faults[op] = append(f.faults[op], one)
	}
}

// Heal drops all faults and delays that were ordered and not yet used. Late operations that began go on.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.faults)
	clear(f.delays)
}

// Delay has every call of op take d before it takes effect; 0 ends that. A caller whose context ends meanwhile leaves;
// the effect takes place all the same.
func (f *Fake) Delay(op string, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays[op] = d
}

// Down makes the engine unreachable, or reachable again: calls return ErrUnavailable and event streams end. Containers
// run on, and what happens to them leaves no event.
func (f *Fake) Down(down bool) {
	_ = f.locked(func() error {
		f.down = down
		if down {
			f.cutConnections()
		}
		return nil
	})
}

// RestartEngine kills the engine's process and starts it again, with or without live-restore. Calls under way are lost,
// streams end, past events are forgotten, Info.Run and Info.StartedAt change. Without live-restore all running containers,
// frozen ones too, end with exit code 137, and no event tells of it.
func (f *Fake) RestartEngine(liveRestore bool) {
	_ = f.locked(func() error {
		f.life, f.begun = f.life+1, f.clock().UTC()
		f.live = liveRestore
		f.cutConnections()
		f.history, f.untold = nil, nil
		if liveRestore {
			return nil
		}
		for _, id := range slices.Sorted(maps.Keys(f.containers)) {
			f.end(f.containers[id], 137, false, false)
		}
		return nil
	})
}

// Replace puts another engine behind the same socket: nothing of the old one is there. What AddRemoteImage offered is
// still offered.
func (f *Fake) Replace() {
	_ = f.locked(func() error {
		f.life, f.begun = f.life+1, f.clock().UTC()
		f.cutConnections()
		for _, id := range slices.Sorted(maps.Keys(f.containers)) {
			f.end(f.containers[id], 137, false, false)
		}
		f.empty()
		return nil
	})
}

// SwapStorage restarts the engine with another storage driver, with live-restore: containers that another driver keeps run on
// and are not seen until it is back; networks and volumes are.
func (f *Fake) SwapStorage(driver string) {
	_ = f.locked(func() error {
		f.life, f.begun = f.life+1, f.clock().UTC()
		for _, c := range f.containers {
			f.shows(c, driver, c.hidden)
		}
		f.driver, f.history, f.untold = driver, nil, nil
		f.cutConnections()
		return nil
	})
}

// HideContainer has a container run on and not be seen, by ID, name or list; or be seen again. It keeps its name.
func (f *Fake) HideContainer(id string, hidden bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.containers[id]; ok {
		f.shows(c, f.driver, hidden)
		c.hidden = hidden
	}
}

// shows notes whether the engine shows c once the driver is in use and c is hidden or not. Called with mu held, before the change.
func (f *Fake) shows(c *fakeContainer, driver string, hidden bool) {
	was, is := f.sees(c), c.driver == driver && !hidden
	switch {
	case was && !is:
		c.lostSight = time.Now()
	case !was && is:
		c.inSight = time.Now()
	}
}

// Kept is a container that exists, whether or not the engine shows it.
type Kept struct {
	dockerx.ContainerDetail
	// Shown: the engine shows it now.
	Shown bool
	// Denied and Seen are when the engine last began and ceased to deny it, by time.Now; zero: never.
	Denied, Seen time.Time
}

// Keeps returns all containers that exist, by ID, whatever the engine says of them: for the checks of a test.
func (f *Fake) Keeps() map[string]Kept {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]Kept{}
	for id, c := range f.containers {
		all[id] = Kept{c.copy(), f.sees(c), c.lostSight, c.inSight}
	}
	return all
}

// EmptyLists has every call of the given list operations answer that there is nothing, until it is called again.
func (f *Fake) EmptyLists(ops ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.emptied)
	for _, op := range ops {
		f.emptied[op] = true
	}
}

// Calls returns how often op was called, failed calls included.
func (f *Fake) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// OnStart has hook called after each start of a container, by whomever. Hooks are called one at a time, in order, without
// locks; a hook may call the Fake, and should leave anything long to a goroutine of its own.
func (f *Fake) OnStart(hook func(dockerx.ContainerDetail)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onStart = hook
}

// OnStop is the same for each end of a container.
func (f *Fake) OnStop(hook func(dockerx.ContainerDetail)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onStop = hook
}
