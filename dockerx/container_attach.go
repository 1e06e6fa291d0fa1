package dockerx

import (
	"cmp"
	"context"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

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
	a, err := attachmentOf(ctx, c, id)
	if err != nil {
		return err
	}
	if !a.mode.IsUserDefined() || a.running {
		return c.ContainerStart(ctx, id, container.StartOptions{})
	}
	if len(a.ends) == 0 {
		err = c.NetworkConnect(ctx, string(a.mode), id, &network.EndpointSettings{})
	} else {
		err = a.moveToMode(ctx, c)
	}
	if err != nil {
		return err
	}
	if err = c.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		a.connectAgain(ctx, c)
		return err
	}
	a.tidy(ctx, c)
	return nil
}

// attachment describes how a container is connected.
type attachment struct {
	id      string
	mode    container.NetworkMode // the network that it was created on, by name or by ID
	running bool
	ends    map[string]*network.EndpointSettings // usually by the network's name
	moved   bool                                 // an end is stored under the mode, which is the ID of a removed network
}

func attachmentOf(ctx context.Context, c *client.Client, id string) (*attachment, error) {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil {
		return nil, err
	}
	a := &attachment{id: raw.ID}
	if raw.HostConfig != nil {
		a.mode = raw.HostConfig.NetworkMode
	}
	if raw.State != nil {
		a.running = raw.State.Running
	}
	if raw.NetworkSettings != nil {
		a.ends = raw.NetworkSettings.Networks
	}
	return a, nil
}

// moveToMode makes a container startable that was created on the ID of a network that was removed since, and is connected to
// another network now. A start looks up the network named by the mode, unless an endpoint is stored under that key; the
// endpoint's network is looked up by the ID in it. An interrupted call is completed by the next one.
func (a *attachment) moveToMode(ctx context.Context, c *client.Client) error {
	mode := string(a.mode)
	if !isFullID(mode) {
		return nil
	}
	for _, end := range a.ends {
		if end.NetworkID == mode {
			return nil // when the network was removed, the start reports it
		}
	}
	if there, err := networkID(ctx, c, mode); err != nil || there != "" {
		return err
	}
	again, err := a.liveEnd(ctx, c)
	if err != nil || again == nil {
		return err
	}
	if err := c.NetworkConnect(ctx, mode, a.id, again); err != nil {
		return err
	}
	for key := range a.ends {
		if key == mode {
			continue
		}
		if err := c.NetworkDisconnect(ctx, key, a.id, true); err != nil {
			return err
		}
	}
	a.moved = true
	return nil
}

// liveEnd returns an endpoint whose network exists, with that network's ID; nil when there is none.
func (a *attachment) liveEnd(ctx context.Context, c *client.Client) (*network.EndpointSettings, error) {
	for key, end := range a.ends {
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

// tidy removes the endpoint that moveToMode stored under the mode. The start has created another one under the network's
// name; a client's disconnect would leave the first in place.
func (a *attachment) tidy(ctx context.Context, c *client.Client) {
	if a.moved {
		_ = c.NetworkDisconnect(ctx, string(a.mode), a.id, true) // the container runs, and the next start tolerates the leftover
	}
}

// connectAgain restores the connections of a container whose start failed. When that fails, the next start connects it.
func (a *attachment) connectAgain(ctx context.Context, c *client.Client) {
	after, err := attachmentOf(ctx, c, a.id)
	if err != nil || len(after.ends) > 0 {
		return
	}
	for key, end := range a.ends {
		id := cmp.Or(end.NetworkID, key)
		_ = c.NetworkConnect(ctx, id, a.id, &network.EndpointSettings{NetworkID: end.NetworkID, Aliases: end.Aliases})
	}
}

// networkID returns the ID of the network with that ID or name; empty when there is none.
func networkID(ctx context.Context, c *client.Client, key string) (string, error) {
	raw, err := c.NetworkInspect(ctx, key, network.InspectOptions{})
	return raw.ID, ignore(err, errdefs.IsNotFound)
}
