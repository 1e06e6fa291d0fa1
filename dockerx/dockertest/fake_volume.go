package dockertest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// fakeVolume is one volume.
type fakeVolume struct {
	labels  map[string]string
	created time.Time
}

// addVolume creates a volume unless one of that name exists. Called with mu held.
func (f *Fake) addVolume(name string, labels map[string]string) {
	if _, ok := f.volumes[name]; !ok {
		f.volumes[name] = fakeVolume{labels, f.clock().UTC()}
	}
}

// VolumeExists implements Subject.
func (f *Fake) VolumeExists(ctx context.Context, name string) (bool, error) {
	return ask(ctx, f, dockerx.OpInspectVolume, func() (bool, error) {
		_, exists := f.volumes[name]
		return exists, nil
	})
}

// CreateVolume implements Subject.
func (f *Fake) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	labels = maps.Clone(labels)
	return f.call(ctx, dockerx.OpCreateVolume, func() error {
		if name == "" {
			return fmt.Errorf("volume without a name: %w", errdefs.ErrInvalidArgument)
		}
		f.addVolume(name, labels)
		return nil
	})
}

// ListVolumes implements Subject.
func (f *Fake) ListVolumes(ctx context.Context, labels map[string]string) ([]dockerx.Volume, error) {
	return ask(ctx, f, dockerx.OpListVolumes, func() (out []dockerx.Volume, err error) {
		for name, v := range f.volumes {
			if dockerx.LabelsMatch(v.labels, labels) {
				out = append(out, dockerx.Volume{Name: name, Labels: maps.Clone(v.labels), Created: v.created})
			}
		}
		slices.SortFunc(out, func(a, b dockerx.Volume) int { return strings.Compare(a.Name, b.Name) })
		return out, nil
	})
}

// RemoveVolume implements Subject.
func (f *Fake) RemoveVolume(ctx context.Context, name string) error {
	return f.call(ctx, dockerx.OpRemoveVolume, func() error {
		if users := f.usersOf(name); len(users) > 0 {
			return fmt.Errorf("remove volume %s: volume is in use - [%s]: %w", name, users[0].ID, errdefs.ErrFailedPrecondition)
		}
		delete(f.volumes, name)
		return nil
	})
}

// ListVolumeUsers implements Subject.
func (f *Fake) ListVolumeUsers(ctx context.Context, name string) ([]dockerx.Container, error) {
	return ask(ctx, f, dockerx.OpListVolumeUsers, func() ([]dockerx.Container, error) { return f.usersOf(name), nil })
}

// usersOf returns the containers that mount a volume. Called with mu held.
func (f *Fake) usersOf(name string) (out []dockerx.Container) {
	for _, c := range f.containers {
		mounts := func(v dockerx.VolumeMount) bool { return v.Name == name }
		if f.sees(c) && slices.ContainsFunc(c.spec.Volumes, mounts) {
			out = append(out, c.listed(f.ListLag))
		}
	}
	return out
}
