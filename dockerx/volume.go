package dockerx

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// Volume is a named volume.
type Volume struct {
	Name   string
	Labels map[string]string
	// Created is zero if the engine does not know it.
	Created time.Time
}

// VolumeMount mounts a named volume, or without a Name a new one with the name of the engine's choice, which is removed with the container.
// Creating the container also creates a missing volume, with these labels and with the image's files of the target; an existing one keeps its
// labels and its content. The engine creates no volume at a start.
type VolumeMount struct {
	Name, Target string
	Labels       map[string]string
}

// VolumeExists reports whether a volume of that name exists. Errors: ErrUnavailable.
func (e *Engine) VolumeExists(ctx context.Context, name string) (bool, error) {
	return ask(ctx, e, OpInspectVolume, "inspect volume "+name, func(ctx context.Context, c *client.Client) (bool, error) {
		_, err := c.VolumeInspect(ctx, name)
		return err == nil, ignore(err, errdefs.IsNotFound)
	})
}

// CreateVolume creates a local volume. An existing one is a success and keeps its labels. Errors:
// ErrInvalidArgument, ErrUnavailable.
func (e *Engine) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	return e.do(ctx, OpCreateVolume, "create volume "+name, func(ctx context.Context, c *client.Client) error {
		_, err := c.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
		return err
	})
}

// ListVolumes returns all volumes that have all the labels; an empty value matches the key alone. It is one engine call. Errors:
// ErrUnavailable.
func (e *Engine) ListVolumes(ctx context.Context, labels map[string]string) ([]Volume, error) {
	return ask(ctx, e, OpListVolumes, "list volumes", func(ctx context.Context, c *client.Client) ([]Volume, error) {
		resp, err := c.VolumeList(ctx, volume.ListOptions{Filters: labelFilter(labels)})
		var out []Volume
		for _, raw := range resp.Volumes {
			created, _ := time.Parse(time.RFC3339, raw.CreatedAt)
			out = append(out, Volume{Name: raw.Name, Labels: raw.Labels, Created: created.UTC()})
		}
		return out, err
	})
}

// RemoveVolume removes a volume with its content. One that does not exist is a success. Errors: ErrFailedPrecondition while a container, in
// any state, mounts it; ErrUnavailable.
func (e *Engine) RemoveVolume(ctx context.Context, name string) error {
	return e.do(ctx, OpRemoveVolume, "remove volume "+name, func(ctx context.Context, c *client.Client) error {
		err := ignore(c.VolumeRemove(ctx, name, false), errdefs.IsNotFound)
		return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
}

// ListVolumeUsers returns the containers, in any state and of any client, that mount the volume of that name. Errors: ErrUnavailable.
func (e *Engine) ListVolumeUsers(ctx context.Context, name string) ([]Container, error) {
	return ask(ctx, e, OpListVolumeUsers, "list containers with volume "+name, func(ctx context.Context, c *client.Client) ([]Container, error) {
		raw, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("volume", name))})
		out := make([]Container, len(raw))
		for i := range raw {
			out[i] = fromSummary(&raw[i])
		}
		return out, err
	})
}
