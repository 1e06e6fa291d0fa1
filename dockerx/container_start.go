package dockerx

import (
	"cmp"
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// StartContainer starts a container that was created or has exited; a running one is a success.
//
// Errors: ErrNotFound when the container, or the network it was created on, does not exist; ErrFailedPrecondition when it is
// paused or being removed, when one of its fixed host ports is in use (by any process or container: try again when the port
// is free), or when its network shares its name with another one (20.10 keeps the name, not the ID, and refuses: remove the
// duplicate and try again); ErrPermissionDenied when another endpoint in its network has its name (see stale.go for one that belongs to no
// container: it is dropped first); ErrInvalidArgument when it cannot run as specified: the program or a mount source does not exist
// (a user missing in the image, and GPUs missing in the engine, are ErrInternal on 20.10); ErrUnavailable.
//
// A port in use is recognized where the engine is on this host and this process may bind the port; otherwise it is
// ErrInternal.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	return e.do(ctx, OpStartContainer, "start container "+id, func(ctx context.Context, c *client.Client) error {
		err := reclass(startAttached(ctx, c, id), errdefs.IsConflict, errdefs.ErrFailedPrecondition)
		if errdefs.IsPermissionDenied(err) { // 403: the name of the endpoint is taken
			if dropped, dropErr := dropOwnStale(ctx, c, id); dropErr != nil {
				return dropErr
			} else if dropped > 0 {
				err = reclass(startAttached(ctx, c, id), errdefs.IsConflict, errdefs.ErrFailedPrecondition)
			}
		}
		if errdefs.IsInvalidArgument(err) && onDoubledNetwork(ctx, c, id) {
			return reclass(err, errdefs.IsInvalidArgument, errdefs.ErrFailedPrecondition)
		}
		if !errdefs.IsInternal(err) {
			return err
		}
		if p, inUse := e.portInUse(ctx, c, id); inUse {
			return fmt.Errorf("host port %s:%d/%s is in use by another program; free it, or choose another: %w", publishIP, p.HostPort, p.Protocol, errdefs.ErrFailedPrecondition)
		}
		return err
	})
}

// onDoubledNetwork reports whether a container that did not start is on a network whose name another network has, too. The
// refusal has the same status as that of a bad command, so it asks the engine; an error counts as false.
func onDoubledNetwork(ctx context.Context, c *client.Client, id string) bool {
	raw, err := inspect(ctx, c, id)
	if err != nil {
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

// looseVersion is the first API version whose engines (observed with 1.56) lose a container's network in two cases that 20.10
// handles: a failed start, such as one with a host port in use, detaches the container, and the next start succeeds without
// network and ports; and a container created on a network's ID cannot be started once that network was removed, even when
// it is connected to another network of the same name.
const looseVersion = "1.44"

func isLoose(version string) bool { return versions.GreaterThanOrEqualTo(version, looseVersion) }

// startAttached starts a container on the network that it is connected to, and keeps it connected when the start fails. When
// agboxd dies between a failed start and the reconnection, the next start reconnects the container without its aliases,
// which the engine has dropped.
func startAttached(ctx context.Context, c *client.Client, id string) error {
	if !isLoose(c.ClientVersion()) {
		return c.ContainerStart(ctx, id, container.StartOptions{})
	}
	ct, err := inspect(ctx, c, id)
	if err != nil {
		return err
	}
	mode, moved := ct.HostConfig.NetworkMode, false
	if !mode.IsUserDefined() || ct.State.Running {
		return c.ContainerStart(ctx, id, container.StartOptions{})
	}
	if len(ct.NetworkSettings.Networks) == 0 {
		err = c.NetworkConnect(ctx, string(mode), id, &network.EndpointSettings{})
	} else {
		moved, err = moveToMode(ctx, c, ct)
	}
	if err != nil {
		return err
	}
	if err = c.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		connectAgain(ctx, c, ct)
		return err
	}
	if moved {
		// The start has created another endpoint under the network's name; a client's disconnect would leave this one in place.
		_ = c.NetworkDisconnect(ctx, string(mode), id, true) // the container runs, and the next start tolerates the leftover
	}
	return nil
}

// moveToMode makes a container startable that was created on the ID of a network that was removed since, and is connected to
// another network now. A start looks up the network named by the mode, unless an endpoint is stored under that key; the
// endpoint's network is looked up by the ID in it. An interrupted call is completed by the next one. moved reports whether an
// endpoint is now stored under the mode.
func moveToMode(ctx context.Context, c *client.Client, ct *container.InspectResponse) (moved bool, err error) {
	mode, ends := string(ct.HostConfig.NetworkMode), ct.NetworkSettings.Networks
	if !isFullID(mode) {
		return false, nil
	}
	for _, end := range ends {
		if end.NetworkID == mode {
			return false, nil // when the network was removed, the start reports it
		}
	}
	if there, err := networkID(ctx, c, mode); err != nil || there != "" {
		return false, err
	}
	again, err := liveEnd(ctx, c, ends)
	if err != nil || again == nil {
		return false, err
	}
	if err := c.NetworkConnect(ctx, mode, ct.ID, again); err != nil {
		return false, err
	}
	for key := range ends {
		if key == mode {
			continue
		}
		if err := c.NetworkDisconnect(ctx, key, ct.ID, true); err != nil {
			return false, err
		}
	}
	return true, nil
}

// liveEnd returns an endpoint whose network exists, with that network's ID; nil when there is none.
func liveEnd(ctx context.Context, c *client.Client, ends map[string]*network.EndpointSettings) (*network.EndpointSettings, error) {
	for key, end := range ends {
		live, err := networkID(ctx, c, cmp.Or(end.NetworkID, key))
		if err != nil {
			return nil, err
		}
		if live != "" {
			return &network.EndpointSettings{NetworkID: live, Aliases: end.Aliases}, nil
		}
	}
	return nil, nil
}

// connectAgain restores the connections that a container had before its start failed. When that fails, the next start connects it.
func connectAgain(ctx context.Context, c *client.Client, before *container.InspectResponse) {
	after, err := inspect(ctx, c, before.ID)
	if err != nil || len(after.NetworkSettings.Networks) > 0 {
		return
	}
	for key, end := range before.NetworkSettings.Networks {
		id := cmp.Or(end.NetworkID, key)
		_ = c.NetworkConnect(ctx, id, before.ID, &network.EndpointSettings{NetworkID: end.NetworkID, Aliases: end.Aliases})
	}
}

// networkID returns the ID of the network with that ID or name; empty when there is none.
func networkID(ctx context.Context, c *client.Client, key string) (string, error) {
	raw, err := c.NetworkInspect(ctx, key, network.InspectOptions{})
	return raw.ID, ignore(err, errdefs.IsNotFound)
}
