package dockerx

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// Network is one bridge network. Names are not unique: see CreateNetwork.
type Network struct {
	ID, Name string
	Labels   map[string]string
	Subnet   netip.Prefix // zero when it has no IPv4 subnet, or several
	Created  time.Time
}

// ListNetworks returns all networks that have all the labels; an empty value matches the key alone. Errors:
// ErrUnavailable.
func (e *Engine) ListNetworks(ctx context.Context, labels map[string]string) ([]Network, error) {
	raw, err := e.listNetworks(ctx, labelFilter(labels))
	if err != nil {
		return nil, err
	}
	out := make([]Network, len(raw))
	for i := range raw {
		out[i] = fromNetwork(&raw[i])
		e.networks.add(out[i].ID, out[i].Labels)
	}
	return out, nil
}

func (e *Engine) listNetworks(ctx context.Context, f filters.Args) ([]network.Inspect, error) {
	return ask(ctx, e, OpListNetworks, "list networks", func(ctx context.Context, c *client.Client) ([]network.Inspect, error) {
		return c.NetworkList(ctx, network.ListOptions{Filters: f})
	})
}

// RemoveNetwork removes a network by ID. One that does not exist is a success. Errors: ErrFailedPrecondition when a running
// container is attached to it (a stopped one does not block the removal, and cannot start without it); ErrUnavailable. Stale endpoints are
// dropped.
func (e *Engine) RemoveNetwork(ctx context.Context, id string) error {
	err := e.do(ctx, OpRemoveNetwork, "remove network "+id, func(ctx context.Context, c *client.Client) error {
		err := removeNetwork(ctx, c, id)
		if !errdefs.IsFailedPrecondition(err) {
			return err
		}
		if dropped, dropErr := dropStale(ctx, c, id); dropErr != nil || dropped == 0 {
			return cmp.Or(dropErr, err)
		}
		return removeNetwork(ctx, c, id)
	})
	if err == nil {
		e.networks.removed(id)
	}
	return err
}

func removeNetwork(ctx context.Context, c *client.Client, id string) error {
	err := ignore(c.NetworkRemove(ctx, id), errdefs.IsNotFound)
	err = reclass(err, errdefs.IsPermissionDenied, errdefs.ErrFailedPrecondition) // 403: active endpoints
	return reclass(err, errdefs.IsConflict, errdefs.ErrFailedPrecondition)        // the same from later engines
}

func fromNetwork(raw *network.Inspect) Network {
	n := Network{ID: raw.ID, Name: raw.Name, Labels: raw.Labels, Created: raw.Created.UTC()}
	if p := subnetsOf(raw); len(p) == 1 {
		n.Subnet = p[0]
	}
	return n
}

// subnetsOf returns the IPv4 blocks of a network.
func subnetsOf(raw *network.Inspect) []netip.Prefix {
	var out []netip.Prefix
	for _, c := range raw.IPAM.Config {
		if p, err := netip.ParsePrefix(c.Subnet); err == nil && p.Addr().Is4() {
			out = append(out, p.Masked())
		}
	}
	return out
}

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
		ct, err := inspect(ctx, c, containerID)
		if err != nil {
			return err
		}
		if end := ct.NetworkSettings.Networks[raw.Name]; end != nil {
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
