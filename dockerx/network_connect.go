package dockerx

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// InspectNetwork returns one network by ID or name. Errors: ErrNotFound; ErrInvalidArgument when several have the name;
// ErrUnavailable.
func (e *Engine) InspectNetwork(ctx context.Context, id string) (Network, error) {
	return ask(ctx, e, OpInspectNetwork, "inspect network "+id, func(ctx context.Context, c *client.Client) (Network, error) {
		raw, err := c.NetworkInspect(ctx, id, network.InspectOptions{})
		return fromNetwork(&raw), err
	})
}

// ConnectNetwork attaches a container, running or not, to the network with the given full ID, under additional DNS names. A
// container that is attached already is a success. An endpoint of a removed network of the same name is dropped first: it
// would make every start fail. Errors: ErrNotFound when the network or the container does not exist; ErrUnavailable.
func (e *Engine) ConnectNetwork(ctx context.Context, networkID, containerID string, aliases []string) error {
	what := fmt.Sprintf("connect container %s to network %s", containerID, networkID)
	return e.do(ctx, OpConnectNetwork, what, func(ctx context.Context, c *client.Client) error {
		raw, err := c.NetworkInspect(ctx, networkID, network.InspectOptions{})
		if err != nil {
			return err
		}
		ct, err := c.ContainerInspect(ctx, containerID)
		if err != nil {
			return err
		}
		if end := endpointOn(ct, raw.Name); end != nil {
			if end.NetworkID == raw.ID {
				return nil
			}
			if err := c.NetworkDisconnect(ctx, raw.Name, containerID, true); err != nil && !errdefs.IsNotFound(err) {
				return err
			}
		}
		return c.NetworkConnect(ctx, raw.ID, containerID, &network.EndpointSettings{NetworkID: raw.ID, Aliases: aliases})
	})
}

// endpointOn returns the container's endpoint stored under the name of a network; nil when there is none.
func endpointOn(ct container.InspectResponse, name string) *network.EndpointSettings {
	if ct.NetworkSettings == nil {
		return nil
	}
	return ct.NetworkSettings.Networks[name]
}
