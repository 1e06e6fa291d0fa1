package dockertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// ListNetworks implements Subject.
func (f *Fake) ListNetworks(ctx context.Context, labels map[string]string) ([]dockerx.Network, error) {
	return ask(ctx, f, dockerx.OpListNetworks, func() (out []dockerx.Network, err error) {
		for _, n := range f.networks {
			if !f.emptied[dockerx.OpListNetworks] && dockerx.LabelsMatch(n.Labels, labels) {
				out = append(out, copyNetwork(n))
			}
		}
		slices.SortFunc(out, func(a, b dockerx.Network) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		return out, nil
	})
}

func copyNetwork(n *dockerx.Network) dockerx.Network {
	c := *n
	c.Labels = maps.Clone(n.Labels)
	return c
}

// InspectNetwork implements Subject.
func (f *Fake) InspectNetwork(ctx context.Context, id string) (dockerx.Network, error) {
	return ask(ctx, f, dockerx.OpInspectNetwork, func() (out dockerx.Network, err error) {
		if n, ok := f.networks[id]; ok {
			return copyNetwork(n), nil
		}
		found := 0
		for _, n := range f.networks {
			if n.Name == id {
				out = copyNetwork(n)
				found++
			}
		}
		switch found {
		case 0:
			return out, fmt.Errorf("network %s: %w", id, errdefs.ErrNotFound)
		case 1:
			return out, nil
		}
		return out, fmt.Errorf("%d networks have the name %s: %w", found, id, errdefs.ErrInvalidArgument)
	})
}

// ConnectNetwork implements Subject. As with Docker 20.10, a stopped container has no ID of the network before its next start.
func (f *Fake) ConnectNetwork(ctx context.Context, networkID, containerID string, _ []string) error {
	return f.call(ctx, dockerx.OpConnectNetwork, func() error {
		n, ok := f.networks[networkID]
		if !ok {
			return fmt.Errorf("network %s: %w", networkID, errdefs.ErrNotFound)
		}
		c, err := f.find(containerID)
		if err != nil {
			return err
		}
		if slices.Contains(c.detail.Networks, n.ID) {
			return nil
		}
		if c.network == n.Name {
			f.emitNetwork(n.ID, dockerx.ActionDisconnect) // for the endpoint that the container kept under this name
		}
		c.network, c.detail.Networks = n.Name, []string{n.ID}
		return nil
	})
}

// CreateNetwork implements Subject. Subnets are invented and never exhausted.
func (f *Fake) CreateNetwork(ctx context.Context, spec dockerx.NetworkSpec) (dockerx.Network, error) {
	labels := maps.Clone(spec.Labels)
	return ask(ctx, f, dockerx.OpCreateNetwork, func() (out dockerx.Network, err error) {
		if spec.Name == "" {
			return out, fmt.Errorf("network without a name: %w", errdefs.ErrInvalidArgument)
		}
		if f.RefuseDoubledNames && f.nameTaken(spec.Name) {
			return out, fmt.Errorf("network with name %s: %w", spec.Name, errdefs.ErrAlreadyExists)
		}
		n := &dockerx.Network{ID: f.newID(), Name: spec.Name, Labels: labels, Created: time.Now().UTC()}
		n.Subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(f.lastID >> 12), byte(f.lastID >> 4), byte(f.lastID << 4)}), 28)
		f.networks[n.ID] = n
		return copyNetwork(n), nil
	})
}

func (f *Fake) nameTaken(name string) bool {
	for _, n := range f.networks {
		if n.Name == name {
			return true
		}
	}
	return false
}

// RemoveNetwork implements Subject.
func (f *Fake) RemoveNetwork(ctx context.Context, id string) error {
	return f.call(ctx, dockerx.OpRemoveNetwork, func() error {
		for _, c := range f.containers {
			// A starting engine drops the endpoints of containers that it does not know.
			if c.driver == f.driver && c.detail.Running && slices.Contains(c.detail.Networks, id) {
				return fmt.Errorf("network %s is used by %s: %w", id, c.detail.Name, errdefs.ErrFailedPrecondition)
			}
		}
		f.removeNetwork(id)
		return nil
	})
}

// removeNetwork is called with mu held.
func (f *Fake) removeNetwork(id string) {
	f.emitNetwork(id, dockerx.ActionDestroy)
	delete(f.networks, id)
}

// emitNetwork sends an event of an existing network. Called with mu held.
func (f *Fake) emitNetwork(id, action string) {
	if n, ok := f.networks[id]; ok {
		f.emit(dockerx.Event{Type: dockerx.TypeNetwork, Action: action, ID: id, Labels: maps.Clone(n.Labels), Time: time.Now().UTC()})
	}
}

// emitDisconnects sends the event of each network that c leaves. Called with mu held.
func (f *Fake) emitDisconnects(c *fakeContainer) {
	for _, id := range c.detail.Networks {
		f.emitNetwork(id, dockerx.ActionDisconnect)
	}
}
