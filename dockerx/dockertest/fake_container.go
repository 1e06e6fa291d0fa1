package dockertest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// fakeContainer is one container of a Fake.
type fakeContainer struct {
	detail dockerx.ContainerDetail
	spec   dockerx.ContainerSpec
	// anonymous are its volumes that are removed with it.
	anonymous []string
	// driver is the storage driver that stores it.
	driver string
	hidden bool
	// lostSight and inSight are when the engine last started and stopped hiding it, by the test's own clock; zero: never.
	lostSight, inSight time.Time
	// network is, as in Docker 20.10, the name of the network that it was created on, not the ID.
	network string
	// ended is closed when the present run ends; nil when not running.
	ended chan struct{}
	// endedAt is when the last run ended by the test's own clock, not Fake.Now.
	endedAt time.Time
	files   tree
	// written is how much its processes have written, in bytes, beside files.
	written int64
	// logs is what it has printed.
	logs []dockerx.LogRecord
	// due is a verdict that came during a freeze, for the first probe afterwards; thaws counts the thaws. listedSick: no
	// probe has run since the last thaw.
	due        dockerx.Health
	thaws      int
	listedSick bool
}

func (c *fakeContainer) copy() dockerx.ContainerDetail {
	d := c.detail
	d.Labels = maps.Clone(d.Labels)
	d.Networks = slices.Clone(d.Networks)
	d.Mounts, d.Ports = slices.Clone(d.Mounts), slices.Clone(d.Ports)
	d.Env, d.Entrypoint, d.Cmd = slices.Clone(d.Env), slices.Clone(d.Entrypoint), slices.Clone(d.Cmd)
	d.Healthcheck = copyHealthcheck(d.Healthcheck)
	d.EndedWell = d.State == dockerx.StateExited && d.ExitCode == 0
	return d
}

// listed returns the container as a list shows it, which lags behind its exit.
func (c *fakeContainer) listed(lag time.Duration) dockerx.Container {
	ct := c.copy().Container
	if ct.State == dockerx.StateExited && time.Since(c.endedAt) < lag {
		ct.State, ct.EndedWell = dockerx.StateRunning, false
	}
	if ct.State != dockerx.StateRunning {
		ct.Health = dockerx.HealthNone
	} else if c.listedSick {
		ct.Health = dockerx.HealthUnhealthy
	}
	return ct
}

// ListContainers implements Subject.
func (f *Fake) ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error) {
	return ask(ctx, f, dockerx.OpListContainers, func() (out []dockerx.Container, err error) {
		for _, c := range f.containers {
			if f.sees(c) && !f.emptied[dockerx.OpListContainers] && dockerx.LabelsMatch(c.detail.Labels, labels) {
				out = append(out, c.listed(f.ListLag))
			}
		}
		slices.SortFunc(out, func(a, b dockerx.Container) int {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) // newest first
		})
		return out, nil
	})
}

// InspectContainer implements Subject.
func (f *Fake) InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error) {
	return askOf(ctx, f, dockerx.OpInspectContainer, id, func(c *fakeContainer) (dockerx.ContainerDetail, error) {
		return c.copy(), nil
	})
}

// MeasureContainer implements Subject. A file that differs from the image's counts with its length, as does what Fill set.
func (f *Fake) MeasureContainer(ctx context.Context, id string) (int64, error) {
	return askOf(ctx, f, dockerx.OpMeasureContainer, id, func(c *fakeContainer) (int64, error) {
		size, image := c.written, f.filesOf(c.detail.Image)
		for name, n := range c.files {
			if !bytes.Equal(n.content, image[name].content) {
				size += int64(len(n.content))
			}
		}
		return size, nil
	})
}

// CreateContainer implements Subject.
func (f *Fake) CreateContainer(ctx context.Context, spec dockerx.ContainerSpec) (string, error) {
	spec = copySpec(spec)
	err := spec.Check()
	var id string
	if err == nil {
		id, err = ask(ctx, f, dockerx.OpCreateContainer, func() (string, error) { return f.create(spec) })
	}
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", spec.Name, err)
	}
	return id, nil
}

func copySpec(s dockerx.ContainerSpec) dockerx.ContainerSpec {
	s.Entrypoint, s.Cmd, s.Env = slices.Clone(s.Entrypoint), slices.Clone(s.Cmd), slices.Clone(s.Env)
	s.Labels, s.Mounts, s.NetworkAliases = maps.Clone(s.Labels), slices.Clone(s.Mounts), slices.Clone(s.NetworkAliases)
	s.Volumes = slices.Clone(s.Volumes)
	s.Ports, s.Healthcheck = slices.Clone(s.Ports), copyHealthcheck(s.Healthcheck)
	return s
}

// create returns the container's ID. Called with mu held.
func (f *Fake) create(spec dockerx.ContainerSpec) (string, error) {
	image, ok := f.image(spec.Image)
	if !ok {
		return "", fmt.Errorf("no such image: %s: %w", spec.Image, errdefs.ErrNotFound)
	}
	for _, c := range f.containers {
		if c.driver == f.driver && c.detail.Name == spec.Name {
			return "", fmt.Errorf("the name %s is in use by %s: %w", spec.Name, c.detail.ID, errdefs.ErrAlreadyExists)
		}
	}
	if err := f.checkSpec(&spec); err != nil {
		return "", err
	}
	if err := f.checkSources(spec.Mounts); err != nil {
		return "", err
	}
	c := &fakeContainer{spec: spec, driver: f.driver, network: spec.NetworkID, detail: dockerx.ContainerDetail{
		Container: dockerx.Container{
			ID: f.newID(), Name: spec.Name, Labels: maps.Clone(spec.Labels), State: dockerx.StateCreated, Created: f.clock().UTC(),
		},
		Image:  image.ID,
		Mounts: slices.Clone(spec.Mounts),
		Limits: spec.Limits.Rounded(),

		ReadOnlyRoot: spec.Security.ReadOnlyRoot, Unconfined: spec.Security.Unconfined,
	}, files: f.filesOf(image.ID)}
	for i, v := range spec.Volumes {
		if v.Name == "" {
			v.Name = f.newID()
			c.spec.Volumes[i] = v
			c.anonymous = append(c.anonymous, v.Name)
		}
		f.addVolume(v.Name, v.Labels)
		c.detail.Mounts = append(c.detail.Mounts, dockerx.Mount{Source: "/volumes/" + v.Name, Target: v.Target, Writable: true, Volume: v.Name})
	}
	c.configure(image)
	if spec.NetworkID != "" {
		c.detail.Networks = []string{spec.NetworkID}
	}
	if n, ok := f.networks[spec.NetworkID]; ok {
		c.network = n.Name
	}
	f.containers[c.detail.ID] = c
	f.emitContainer(c, dockerx.ActionCreate)
	return c.detail.ID, nil
}

func (f *Fake) checkSources(mounts []dockerx.Mount) error {
	for _, m := range mounts {
		if f.missing[m.Source] {
			return fmt.Errorf("bind source path does not exist: %s: %w", m.Source, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// find returns a container by ID or name. Called with mu held.
func (f *Fake) find(id string) (*fakeContainer, error) {
	if c, ok := f.containers[id]; ok && f.sees(c) {
		return c, nil
	}
	for _, c := range f.containers {
		if f.sees(c) && c.detail.Name == id {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no such container: %s: %w", id, errdefs.ErrNotFound)
}

// sees reports whether the engine's present storage driver stores c, and c is not hidden. Called with mu held.
func (f *Fake) sees(c *fakeContainer) bool { return c.driver == f.driver && !c.hidden }

// RemoveContainer implements Subject.
func (f *Fake) RemoveContainer(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpRemoveContainer, func() error {
		if c, err := f.find(id); err == nil {
			f.remove(c)
		}
		return nil
	})
}

// remove is called with mu held.
func (f *Fake) remove(c *fakeContainer) {
	f.end(c, 137, false, true)
	delete(f.containers, c.detail.ID)
	for _, name := range c.anonymous {
		delete(f.volumes, name)
	}
	f.emitContainer(c, dockerx.ActionDestroy)
}
