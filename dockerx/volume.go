package dockerx

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// VolumeExists reports whether a volume of that name exists. Errors: ErrUnavailable.
func (e *Engine) VolumeExists(ctx context.Context, name string) (bool, error) {
	exists := false
	err := e.do(ctx, OpInspectVolume, func(ctx context.Context, c *client.Client) error {
		_, err := c.VolumeInspect(ctx, name)
		exists = err == nil
		return ignore(err, errdefs.IsNotFound)
	})
	if err != nil {
		return false, fmt.Errorf("inspect volume %s: %w", name, err)
	}
	return exists, nil
}

// CreateVolume creates a local volume. An existing one is a success and keeps its labels. Errors:
// ErrInvalidArgument, ErrUnavailable.
func (e *Engine) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	err := e.do(ctx, OpCreateVolume, func(ctx context.Context, c *client.Client) error {
		_, err := c.VolumeCreate(ctx, volume.CreateOptions{Name: name, Labels: labels})
		return err
	})
	if err != nil {
		return fmt.Errorf("create volume %s: %w", name, err)
	}
	return nil
}

// RemoveVolume removes a volume. One that does not exist is a success. Errors: ErrFailedPrecondition when a container, running
// or not, uses it; ErrUnavailable.
func (e *Engine) RemoveVolume(ctx context.Context, name string) error {
	err := e.do(ctx, OpRemoveVolume, func(ctx context.Context, c *client.Client) error {
		err := ignore(c.VolumeRemove(ctx, name, false), errdefs.IsNotFound)
		return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition)
	})
	if err != nil {
		return fmt.Errorf("remove volume %s: %w", name, err)
	}
	return nil
}
