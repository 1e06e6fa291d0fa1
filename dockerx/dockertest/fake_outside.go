package dockertest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// The methods of this file are actions outside of agbox: of operators with the docker command, of processes in containers,
// of the kernel. They work while the engine is down, need no reply, and injected faults don't apply.

// ExitContainer ends the PID 1 of a container with an exit code; oom marks it as killed by the OOM killer. It does nothing
// for a container that does not run.
func (f *Fake) ExitContainer(id string, code int, oom bool) {
	f.doTo(id, func(c *fakeContainer) { f.end(c, code, oom, true) })
}

// MarkOOM sets the flag of a container that keeps running: the OOM killer killed another of its processes.
func (f *Fake) MarkOOM(id string) {
	f.doTo(id, func(c *fakeContainer) {
		if c.detail.Running {
			c.detail.OOMKilled = true
			f.emitContainer(c, dockerx.ActionOOM)
		}
	})
}

// Fill makes the processes of a container have written so many bytes to files that the fake does not keep.
func (f *Fake) Fill(id string, written int64) {
	f.doTo(id, func(c *fakeContainer) { c.written = written })
}

// StartOutside is docker start. The error is Docker's refusal.
func (f *Fake) StartOutside(id string) error {
	return f.locked(func() error { return f.start(id) })
}

// StopOutside is docker stop.
func (f *Fake) StopOutside(id string, grace time.Duration) error {
	return f.stop(context.Background(), id, grace)
}

// KillOutside is docker kill.
func (f *Fake) KillOutside(id string) {
	f.doTo(id, func(c *fakeContainer) {
		if c.detail.Running {
			f.emitContainer(c, dockerx.ActionKill)
			f.end(c, 137, false, true)
		}
	})
}

// CreateOutside is docker create. The error is Docker's refusal.
func (f *Fake) CreateOutside(spec dockerx.ContainerSpec) (id string, err error) {
	err = f.locked(func() (err error) {
		id, err = f.create(copySpec(spec))
		return err
	})
	return id, err
}

// RemoveContainerOutside is docker rm -f, which keeps the container's volumes.
func (f *Fake) RemoveContainerOutside(id string) {
	f.doTo(id, func(c *fakeContainer) {
		c.anonymous = nil
		f.remove(c)
	})
}

// RemoveNetworkOutside is docker network rm, after docker network disconnect -f of all attached containers.
func (f *Fake) RemoveNetworkOutside(id string) {
	f.do(func() {
		for _, c := range f.containers {
			if c.detail.Running && slices.Contains(c.detail.Networks, id) {
				c.detail.Networks = slices.DeleteFunc(c.detail.Networks, func(n string) bool { return n == id })
				f.emitNetwork(id, dockerx.ActionDisconnect)
			}
		}
		f.removeNetwork(id)
	})
}

// DisconnectOutside is docker network disconnect -f of a container from all its networks.
func (f *Fake) DisconnectOutside(id string) {
	f.doTo(id, func(c *fakeContainer) {
		f.emitDisconnects(c)
		c.network, c.detail.Networks = "", nil
	})
}

// RenameOutside is docker rename.
func (f *Fake) RenameOutside(id, name string) {
	f.doTo(id, func(c *fakeContainer) { c.detail.Name = name })
}

// RemoveVolumeOutside is docker volume rm.
func (f *Fake) RemoveVolumeOutside(name string) {
	f.do(func() { delete(f.volumes, name) })
}

// HideSource makes a host path missing, or existing again, for mounts. All other paths exist.
func (f *Fake) HideSource(path string, hidden bool) {
	f.do(func() { f.missing[path] = hidden })
}

// Spec returns the spec of a container by ID or name.
func (f *Fake) Spec(id string) (dockerx.ContainerSpec, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.find(id)
	if err != nil {
		return dockerx.ContainerSpec{}, false
	}
	return copySpec(c.spec), true
}

// Containers returns all containers of the present storage driver, hidden ones too, and Networks all networks, without a
// call that could fail: for the checks of a test.
func (f *Fake) Containers() []dockerx.ContainerDetail {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []dockerx.ContainerDetail
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		if c := f.containers[id]; c.driver == f.driver {
			out = append(out, c.copy())
		}
	}
	return out
}

// Networks returns all networks: see Containers.
func (f *Fake) Networks() []dockerx.Network {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []dockerx.Network
	for _, id := range slices.Sorted(maps.Keys(f.networks)) {
		out = append(out, copyNetwork(f.networks[id]))
	}
	return out
}
