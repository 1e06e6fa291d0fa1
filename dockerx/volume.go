package dockerx

import (
	"context"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

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
