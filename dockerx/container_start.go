package dockerx

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
)

// StartContainer starts a container that was created or has ended; one that runs is left as it is.
//
// Errors: ErrNotFound when the container, or the network it was created on, is gone; ErrFailedPrecondition when it is
// paused or being removed, when a fixed host port of its is in use (by whatever, also another container: try again when it
// is free), or when its network shares its name with another one (20.10 keeps the name, not the ID, and refuses: remove
// the double and try again); ErrInvalidArgument when it can't run as specified: no such program, a mount source that is
// gone (a user that the image does not have, and GPUs that the engine does not have, are ErrInternal on 20.10);
// ErrUnavailable.
//
// A port in use is told from other trouble where the engine is on this host and we may bind that port; otherwise it is
// ErrInternal.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpStartContainer, func(ctx context.Context, c *client.Client) error {
		err := reclass(startAttached(ctx, c, id), errdefs.IsConflict, errdefs.ErrFailedPrecondition)
		if errdefs.IsInvalidArgument(err) && onDoubledNetwork(ctx, c, id) {
			return reclass(err, errdefs.IsInvalidArgument, errdefs.ErrFailedPrecondition)
		}
		if !errdefs.IsInternal(err) {
			return err
		}
		if p, inUse := e.portInUse(ctx, c, id); inUse {
			return fmt.Errorf("host port %s:%d/%s is in use: %w", publishIP, p.HostPort, p.Protocol,
				reclass(err, errdefs.IsInternal, errdefs.ErrFailedPrecondition))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	return nil
}

// onDoubledNetwork reports whether a container that did not start is on a network whose name another network has. The
// refusal has the same status as that of a bad command, so the engine is asked. False when it does not say.
func onDoubledNetwork(ctx context.Context, c *client.Client, id string) bool {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil || raw.NetworkSettings == nil {
		return false
	}
	for name := range raw.NetworkSettings.Networks {
		f := filters.NewArgs(filters.Arg("name", name))
		networks, err := c.NetworkList(ctx, listNetworks(f))
		same := 0
		for i := range networks { // the filter matches parts of names
			if networks[i].Name == name {
				same++
			}
		}
		if err == nil && same > 1 {
			return true
		}
	}
	return false
}
