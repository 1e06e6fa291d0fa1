package dockerx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// A stale endpoint belongs to no container. An engine leaves one in a network whose record it could not write when a container ended or did
// not start: its disk was full. The endpoint keeps the container's name, so each later start of the container and the removal of the network
// are refused until the engine restarts.

// staleKey is the prefix of the keys of endpoints without a container in an inspected network.
const staleKey = "ep-"

// staleEnds returns the names of the stale endpoints of a network.
func staleEnds(ctx context.Context, c *client.Client, networkID string) (names []string, err error) {
	raw, err := c.NetworkInspect(ctx, networkID, network.InspectOptions{})
	for key, end := range raw.Containers {
		if strings.HasPrefix(key, staleKey) {
			names = append(names, end.Name)
		}
	}
	return names, ignore(err, errdefs.IsNotFound)
}

// dropStale removes the stale endpoints of a network, and returns how many there were. It leaves one alone whose name is that of a container:
// the container may be starting, and the engine would detach it.
func dropStale(ctx context.Context, c *client.Client, networkID string) (dropped int, err error) {
	names, err := staleEnds(ctx, c, networkID)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if _, err := c.ContainerInspect(ctx, name); !errdefs.IsNotFound(err) {
			continue
		}
		if err := ignore(c.NetworkDisconnect(ctx, networkID, name, true), errdefs.IsNotFound); err != nil {
			return dropped, fmt.Errorf("drop the stale endpoint %s: %w", name, err)
		}
		dropped++
	}
	return dropped, nil
}

// dropOwnStale removes the stale endpoints that have the name of a container which does not run. The engine looks for an endpoint of a given
// name only if no container has the name, so the container is renamed meanwhile. If agboxd dies before the container has its name again, it
// keeps the other one: agboxd finds it by ID and labels.
func dropOwnStale(ctx context.Context, c *client.Client, id string) (dropped int, err error) {
	ct, err := inspect(ctx, c, id)
	if err != nil || ct.State.Running {
		return 0, err
	}
	name := strings.TrimPrefix(ct.Name, "/")
	for _, end := range ct.NetworkSettings.Networks {
		names, err := staleEnds(ctx, c, end.NetworkID)
		if err != nil {
			return dropped, err
		}
		if !slices.Contains(names, name) {
			continue
		}
		if err := c.ContainerRename(ctx, ct.ID, name+"-starting"); err != nil {
			return dropped, err
		}
		n, err := dropStale(ctx, c, end.NetworkID)
		dropped += n
		if err := errors.Join(err, c.ContainerRename(ctx, ct.ID, name)); err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}
