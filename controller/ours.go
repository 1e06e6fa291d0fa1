package controller

import (
	"context"
	"slices"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// Ours are the objects whose label names this store or a former one of its data directory; others are never seen, so they
// can't be touched. There is one list for each, and there is hardly ever more than one.

// listContainers lists our containers, of one sandbox unless that is empty.
func (c *Config) listContainers(ctx context.Context, sandboxID string) ([]dockerx.Container, error) {
	return listOurs(ctx, c.Store.InstanceIDs(), sandboxID, c.Engine.ListContainers)
}

// listNetworks lists our networks, of one sandbox unless that is empty.
func (c *Config) listNetworks(ctx context.Context, sandboxID string) ([]dockerx.Network, error) {
	return listOurs(ctx, c.Store.InstanceIDs(), sandboxID, c.Engine.ListNetworks)
}

func listOurs[T any](ctx context.Context, instances []string, sandboxID string, list func(context.Context, map[string]string) ([]T, error)) ([]T, error) {
	var all []T
	for _, instance := range instances {
		labels := map[string]string{naming.Instance: instance}
		if sandboxID != "" {
			labels[naming.SandboxID] = sandboxID
		}
		some, err := list(ctx, labels)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// eventLabels select the events of our objects. The engine can't be asked for one of several instances: then it is asked
// for those of any, and the rest is dropped. A rebuild may find more of them while the events are followed.
func (c *Config) eventLabels() map[string]string {
	pending := c.Store.RebuildPending() // before the instances: they are on record when it ends
	if ids := c.Store.InstanceIDs(); len(ids) == 1 && !pending {
		return map[string]string{naming.Instance: ids[0]}
	}
	return map[string]string{naming.Instance: ""}
}

func (c *Config) isOurs(labels map[string]string) bool {
	return slices.Contains(c.Store.InstanceIDs(), labels[naming.Instance])
}
