package dockertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

const (
	// minMemoryBytes is the engine's minimum memory limit.
	minMemoryBytes = 6 << 20
	// firstChosenPort is where the search for a free host port starts.
	firstChosenPort = 32768
)

// SetInfo installs edit, which changes the result of Info from now on. The engine refuses accordingly: runtimes, GPUs,
// limits, start intervals. It is called each time, must only change its argument, and may be nil.
func (f *Fake) SetInfo(edit func(*dockerx.Info)) {
	f.do(func() { f.editInfo = edit })
}

// Usage implements Subject. Each running container uses CPU since its start, one process and 1 MiB.
func (f *Fake) Usage(ids []string) map[string]dockerx.Usage {
	out := map[string]dockerx.Usage{}
	f.do(func() {
		for _, id := range ids {
			if c, err := f.find(id); err == nil && c.detail.Running && c.detail.ID == id {
				l := c.detail.Limits
				out[id] = dockerx.Usage{
					CPU: f.clock().Sub(c.detail.StartedAt) + 1, MemoryBytes: 1 << 20, MemoryLimitBytes: uint64(l.MemoryBytes), Pids: 1, PidsLimit: uint64(l.Pids),
				}
			}
		}
	})
	return out
}

// info is called with mu held.
func (f *Fake) info() dockerx.Info {
	info := dockerx.Info{
		EngineID:       "FAKE",
		Version:        "20.10.24",
		APIVersion:     "1.41",
		LiveRestore:    f.live,
		Runtimes:       []string{"io.containerd.runc.v2", "runc"},
		DefaultRuntime: defaultRuntime,
		CPULimit:       true,
		MemoryLimit:    true,
		SwapLimit:      true,
		PidsLimit:      true,
		StorageDriver:  f.driver + " on extfs",
		Driver:         f.driver,
		DataRoot:       "/var/lib/docker",
		KernelVersion:  "6.1.0",
		System:         "Fake Linux 1",
		CgroupVersion:  "2",
		PrivateCgroups: true,
		Freezes:        true,
		SeccompProfile: "default",
		Run:            fmt.Sprintf("life %d", f.link.life),
		StartedAt:      f.startedAt,
	}
	if f.editInfo != nil {
		f.editInfo(&info)
	}
	return info
}

// checkSpec applies the engine's checks at the create. Called with mu held.
func (f *Fake) checkSpec(spec *dockerx.ContainerSpec) error {
	info := f.info()
	switch h := spec.Healthcheck; {
	case h != nil && h.StartInterval > 0 && !info.StartInterval:
		return fmt.Errorf("a start interval needs API 1.44: %w", errdefs.ErrInvalidArgument)
	case spec.Runtime != "" && !slices.Contains(info.Runtimes, spec.Runtime):
		return fmt.Errorf("unknown runtime %s: %w", spec.Runtime, errdefs.ErrInvalidArgument)
	case spec.DiskBytes > 0 && !info.DiskLimit:
		return fmt.Errorf("the storage driver has no size option: %w", errdefs.ErrInternal)
	}
	return checkMemory(spec.Limits)
}

func checkMemory(l dockerx.Limits) error {
	if l.MemoryBytes > 0 && l.MemoryBytes < minMemoryBytes {
		return fmt.Errorf("the minimum memory limit is 6MB: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// UpdateContainer implements Subject. Refusals of the kernel can be injected with Fail.
func (f *Fake) UpdateContainer(ctx context.Context, id string, limits dockerx.Limits) error {
	if err := limits.Check(); err != nil {
		return fmt.Errorf("update container %s: %w", id, err)
	}
	return f.call(ctx, dockerx.OpUpdateContainer, func() error {
		c, err := f.find(id)
		if err == nil {
			err = checkMemory(limits)
		}
		if err == nil {
			c.detail.Limits = limits.Rounded()
		}
		return err
	})
}

// TakePort binds a port of the host as a process outside of the engine would, or releases it.
func (f *Fake) TakePort(port uint16, protocol string, taken bool) {
	f.do(func() { f.taken[hostPort{port, protocol}] = taken })
}

type hostPort struct {
	port     uint16
	protocol string
}

// publish assigns c its ports for the run that starts. Called with mu held.
func (f *Fake) publish(c *fakeContainer) error {
	inUse := f.portsInUse()
	var ports []dockerx.Port
	for _, p := range c.spec.Ports {
		if p.HostPort != 0 && inUse[hostPort{p.HostPort, p.Protocol}] {
			return fmt.Errorf("host port 127.0.0.1:%d/%s is in use by another program; free it, or choose another: %w", p.HostPort, p.Protocol, errdefs.ErrFailedPrecondition)
		}
		if p.HostPort == 0 {
			p.HostPort = firstChosenPort
			for inUse[hostPort{p.HostPort, p.Protocol}] {
				p.HostPort++
			}
		}
		inUse[hostPort{p.HostPort, p.Protocol}] = true
		ports = append(ports, p)
	}
	slices.SortFunc(ports, dockerx.Port.Compare)
	c.detail.Ports = ports
	return nil
}

func (f *Fake) portsInUse() map[hostPort]bool {
	inUse := maps.Clone(f.taken)
	for _, c := range f.containers {
		for _, p := range c.detail.Ports {
			inUse[hostPort{p.HostPort, p.Protocol}] = true
		}
	}
	return inUse
}

// defaultRuntime is used for a container whose spec names none.
const defaultRuntime = "runc"

// configure sets the fields that an inspection shows from the spec, or from the image where the spec sets none.
func (c *fakeContainer) configure(image dockerx.Image) {
	d, s := &c.detail, copySpec(c.spec)
	d.ImageRef, d.DiskBytes, d.GPUs, d.Healthcheck = s.Image, s.DiskBytes, s.GPUs, s.Healthcheck
	d.Entrypoint, d.Cmd = command(s, image)
	d.Env = mergeEnv(s.Env, image.Env)
	d.User, d.WorkingDir = cmp.Or(s.User, image.User), cmp.Or(s.WorkingDir, image.WorkingDir)
	d.Hostname, d.Runtime = cmp.Or(s.Hostname, d.ID[:12]), cmp.Or(s.Runtime, defaultRuntime)
}

// command applies Docker's rule: a set entrypoint drops the image's command.
func command(s dockerx.ContainerSpec, image dockerx.Image) (entrypoint, cmd []string) {
	if len(s.Entrypoint) > 0 {
		return s.Entrypoint, s.Cmd
	}
	if len(s.Cmd) == 0 {
		return image.Entrypoint, image.Cmd
	}
	return image.Entrypoint, s.Cmd
}

// mergeEnv returns own, followed by the variables of image whose keys are not in own.
func mergeEnv(own, image []string) []string {
	keys := map[string]bool{}
	for _, e := range own {
		key, _, _ := strings.Cut(e, "=")
		keys[key] = true
	}
	merged := slices.Clone(own)
	for _, e := range image {
		if key, _, _ := strings.Cut(e, "="); !keys[key] {
			merged = append(merged, e)
		}
	}
	return merged
}

func copyHealthcheck(h *dockerx.Healthcheck) *dockerx.Healthcheck {
	if h == nil {
		return nil
	}
	c := *h
	c.Test = slices.Clone(h.Test)
	return &c
}
