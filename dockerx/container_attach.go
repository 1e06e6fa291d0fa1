package dockerx

import (
	"context"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// detachingVersion is the API version from which on an engine may detach a container from its network when a start fails, such
// as by a host port in use (seen with 1.56), and let the next start succeed without a network and without ports. 20.10 keeps
// both.
const detachingVersion = "1.44"

// startAttached starts a container on the network that it was created on, and leaves it there when the start fails. Where the
// process dies between the two, the next start attaches it again, without further DNS names: the engine has forgotten them.
func startAttached(ctx context.Context, c *client.Client, id string) error {
	if versions.LessThan(c.ClientVersion(), detachingVersion) {
		return c.ContainerStart(ctx, id, container.StartOptions{})
	}
	mode, end, err := attachment(ctx, c, id)
	if err != nil {
		return err
	}
	if err := attachAgain(ctx, c, id, mode, end); err != nil {
		return err
	}
	err = c.ContainerStart(ctx, id, container.StartOptions{})
	if err == nil || !mode.IsUserDefined() {
		return err
	}
	_, after, inspectErr := attachment(ctx, c, id)
	if inspectErr != nil || after != nil {
		return err // the next start looks again
	}
	_ = c.NetworkConnect(ctx, string(mode), id, end) // as above
	return err
}

// attachment returns the network mode of a container and how it is attached, nil when it is on no network.
func attachment(ctx context.Context, c *client.Client, id string) (container.NetworkMode, *network.EndpointSettings, error) {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil || raw.HostConfig == nil || raw.NetworkSettings == nil {
		return "", nil, err
	}
	for _, end := range raw.NetworkSettings.Networks {
		return raw.HostConfig.NetworkMode, &network.EndpointSettings{Aliases: end.Aliases}, nil
	}
	return raw.HostConfig.NetworkMode, nil, nil
}

func attachAgain(ctx context.Context, c *client.Client, id string, mode container.NetworkMode, end *network.EndpointSettings) error {
	if end != nil || !mode.IsUserDefined() {
		return nil
	}
	return c.NetworkConnect(ctx, string(mode), id, &network.EndpointSettings{})
}
