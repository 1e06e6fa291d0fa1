package dockertest

import (
	"maps"
	"slices"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// fault is an injected failure of one call.
type fault struct {
	err   error
	after bool          // the effect happens, its reply is lost
	late  time.Duration // > 0: the reply is lost at once, the effect happens this much later
}

// Fail makes the next n calls of op, a name of dockerx.Ops, return err: before their effect or, with after, after it, as with
// a lost reply. A nil err is ErrUnavailable. Faults of one op apply in the order of the Fail calls.
func (f *Fake) Fail(op string, n int, err error, after bool) {
	if err == nil {
		err = errUnreachable()
	}
	f.addFaults(op, n, fault{err: err, after: after})
}

// Late makes the next n calls of op return ErrUnavailable at once and take effect d later, unless the engine is restarted,
// replaced or closed before. The caller does not learn about the effect.
func (f *Fake) Late(op string, n int, d time.Duration) {
	f.addFaults(op, n, fault{err: errUnreachable(), late: d})
}

func (f *Fake) addFaults(op string, n int, one fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[op] = append(f.faults[op], slices.Repeat([]fault{one}, n)...)
}

// Heal drops all pending faults and delays. Late operations that were called continue.
func (f *Fake) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.faults)
	clear(f.delays)
}

// Delay makes every call of op take d before its effect; 0 removes the delay. A caller whose context ends meanwhile returns;
// the effect still happens.
func (f *Fake) Delay(op string, d time.Duration) {
	f.do(func() { f.delays[op] = d })
}

// Down makes the engine unreachable, or reachable again: calls return ErrUnavailable and event streams end. Containers
// keep running, and their changes leave no event.
func (f *Fake) Down(down bool) {
	f.do(func() {
		f.down = down
		if down {
			f.cutConnections()
		}
	})
}

// RestartEngine kills and restarts the engine's process, with or without live-restore. Calls in progress are lost,
// streams end, past events are dropped, Info.Run and Info.StartedAt change. Without live-restore all running containers,
// frozen ones too, exit with code 137, without an event.
func (f *Fake) RestartEngine(liveRestore bool) {
	f.do(func() {
		f.live = liveRestore
		f.restart(!liveRestore)
	})
}

// restart starts another run of the engine's process, and ends the containers on request. Called with mu held.
func (f *Fake) restart(endContainers bool) {
	f.startedAt = f.clock().UTC()
	f.cutConnections()
	f.link.life, f.link.log, f.pending = f.link.life+1, nil, nil
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		if endContainers {
			f.end(f.containers[id], 137, false, false)
		}
	}
}

// Replace replaces the engine behind the socket by an empty one. Images of AddRemoteImage can still be pulled.
func (f *Fake) Replace() {
	f.do(func() {
		f.restart(true)
		f.empty()
	})
}

// SwapStorage restarts the engine with another storage driver and live-restore: containers of another driver keep running,
// but are not visible until that driver is back; networks and volumes are.
func (f *Fake) SwapStorage(driver string) {
	f.do(func() {
		for _, c := range f.containers {
			f.shows(c, driver, c.hidden)
		}
		f.driver = driver
		f.restart(false)
	})
}

// HideContainer hides a running container from lookups by ID or name and from lists, or shows it again. It keeps its name.
func (f *Fake) HideContainer(id string, hidden bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, ok := f.containers[id]; ok {
		f.shows(c, f.driver, hidden)
		c.hidden = hidden
	}
}

// shows records whether c will be visible with the given driver and hidden flag. Called with mu held, before the change.
func (f *Fake) shows(c *fakeContainer, driver string, hidden bool) {
	was, is := f.sees(c), c.driver == driver && !hidden
	switch {
	case was && !is:
		c.lostSight = time.Now()
	case !was && is:
		c.inSight = time.Now()
	}
}

// Kept is an existing container, visible or not.
type Kept struct {
	dockerx.ContainerDetail
	// Shown: the container is visible now.
	Shown bool
	// Denied and Seen are when the engine last started and stopped hiding it, by time.Now; zero: never.
	Denied, Seen time.Time
}

// Keeps returns all existing containers by ID, visible or not, for the checks of a test.
func (f *Fake) Keeps() map[string]Kept {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]Kept{}
	for id, c := range f.containers {
		all[id] = Kept{c.copy(), f.sees(c), c.lostSight, c.inSight}
	}
	return all
}

// EmptyLists makes every call of the given list operations return an empty list, until EmptyLists is called again.
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

// OnStart registers hook, which is called after each start of a container, by any client. Hooks are called one at a time, in
// order, without locks; a hook may call the Fake, and should run anything slow in a goroutine of its own.
func (f *Fake) OnStart(hook func(dockerx.ContainerDetail)) {
	f.do(func() { f.onStart = hook })
}

// OnStop registers the same for each exit of a container.
func (f *Fake) OnStop(hook func(dockerx.ContainerDetail)) {
	f.do(func() { f.onStop = hook })
}
