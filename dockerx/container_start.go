package dockerx

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// StartContainer starts a container that was created or has exited; a running one is a success.
//
// Errors: ErrNotFound when the container, or the network it was created on, does not exist; ErrFailedPrecondition when it is
// paused or being removed, when one of its fixed host ports is in use (by any process or container: try again when the port
// is free), or when its network shares its name with another one (20.10 keeps the name, not the ID, and refuses: remove the
// duplicate and try again); ErrInvalidArgument when it cannot run as specified: the program or a mount source does not exist
// (a user missing in the image, and GPUs missing in the engine, are ErrInternal on 20.10); ErrUnavailable.
//
// A port in use is recognized where the engine is on this host and this process may bind the port; otherwise it is
// ErrInternal.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	return e.do(ctx, OpStartContainer, "start container "+id, func(ctx context.Context, c *client.Client) error {
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
}

// onDoubledNetwork reports whether a container that did not start is on a network whose name another network has, too. The
// refusal has the same status as that of a bad command, so it asks the engine; an error counts as false.
func onDoubledNetwork(ctx context.Context, c *client.Client, id string) bool {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil || raw.NetworkSettings == nil {
		return false
	}
	for name := range raw.NetworkSettings.Networks {
		f := filters.NewArgs(filters.Arg("name", name))
		networks, err := c.NetworkList(ctx, network.ListOptions{Filters: f})
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
