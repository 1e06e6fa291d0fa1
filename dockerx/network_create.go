package dockerx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/prometheus/procfs"

	"github.com/agbox/agbox/dockerx/internal/subnet"
)

const (
	// defaultPrefixBits leaves a network 13 addresses for containers.
	defaultPrefixBits = 28
	// maxSubnetTries bounds the subnets that one creation offers. A refusal takes the engine a millisecond; more than a few in
	// a row mean that the engine has leaked addresses.
	maxSubnetTries = 64
)

// NetworkSpec describes a network to create.
type NetworkSpec struct {
	Name   string
	Labels map[string]string
	// PrefixBits is the size of the subnet, 16 to 28. 0: 28, which has room for 13 containers.
	PrefixBits int
}

// CreateNetwork creates a bridge network with a subnet from Options.SubnetPool.
//
// The engine checks whether the name is in use before it creates the network, and then answers ErrAlreadyExists; but it
// does not lock: concurrent creates all succeed, and so does the retry of one whose reply was lost. So find networks by
// label and address them by ID.
//
// The subnet overlaps no network and no route of the host. When the engine refuses it, the next one is tried. Created is
// this process's clock at the time of the answer. Other errors: ErrFailedPrecondition when the subnet pool is exhausted;
// ErrInvalidArgument; ErrUnavailable.
func (e *Engine) CreateNetwork(ctx context.Context, spec NetworkSpec) (Network, error) {
	if spec.PrefixBits == 0 {
		spec.PrefixBits = defaultPrefixBits
	}
	n, err := e.createNetwork(ctx, spec)
	if err != nil {
		return Network{}, fmt.Errorf("create network %s: %w", spec.Name, err)
	}
	e.networks.add(n.ID, n.Labels)
	return n, nil
}

func (e *Engine) createNetwork(ctx context.Context, spec NetworkSpec) (Network, error) {
	if spec.PrefixBits < 16 || spec.PrefixBits > defaultPrefixBits || spec.PrefixBits < e.o.SubnetPool.Bits() {
		return Network{}, fmt.Errorf("cannot allocate a subnet of /%d from the pool %s; want a length from 16 to 28 that fits the pool: %w", spec.PrefixBits, e.o.SubnetPool, errdefs.ErrInvalidArgument)
	}
	if !e.subnets.Known() {
		if err := e.learnSubnets(ctx); err != nil {
			return Network{}, err
		}
	}
	var refusal error
	for try := range maxSubnetTries {
		p, err := e.pickSubnet(ctx, spec.PrefixBits)
		if err != nil {
			return Network{}, err
		}
		n, err := e.createWithSubnet(ctx, spec, p)
		if err == nil || !isSubnetRefusal(err) {
			return n, err
		}
		refusal = err
		if try == 0 { // another client created networks, or the cache is stale
			if err := e.learnSubnets(ctx); err != nil {
				return Network{}, err
			}
		}
	}
	return Network{}, fmt.Errorf("the engine refused %d subnets of %s; see the last reason: %w", maxSubnetTries, e.o.SubnetPool, refusal)
}

// isSubnetRefusal reports whether another subnet may help. An overlap is 403 (20.10, and 28 by its source); the other causes
// of that status, the predefined names, do not occur here. Not every overlap is visible in the list of networks
// (the engine can leak addresses), so the status is all there is.
func isSubnetRefusal(err error) bool { return errdefs.IsPermissionDenied(err) }

func hostRoutes() ([]netip.Prefix, error) { return subnet.Routes(procfs.DefaultMountPoint) }

// pickSubnet picks a free subnet; when none seems free it first lists the engine's networks.
func (e *Engine) pickSubnet(ctx context.Context, bits int) (netip.Prefix, error) {
	routes, err := e.routes()
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := e.subnets.Pick(bits, routes, time.Now())
	if !errors.Is(err, subnet.ErrExhausted) {
		return p, err
	}
	if err := e.learnSubnets(ctx); err != nil {
		return netip.Prefix{}, err
	}
	p, err = e.subnets.Pick(bits, routes, time.Now())
	if err != nil {
		return p, fmt.Errorf("docker.subnet_pool is exhausted; remove networks or configure a larger pool: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	return p, nil
}

// learnSubnets lists the engine's networks. It is called before the first creation and when the cache was wrong, not for
// each creation: with 200 networks a list takes some 20 ms, a third of the creation itself.
func (e *Engine) learnSubnets(ctx context.Context) error {
	raw, err := e.listNetworks(ctx, filters.NewArgs())
	if err != nil {
		return err
	}
	var all []netip.Prefix
	for i := range raw {
		all = append(all, subnetsOf(&raw[i])...)
	}
	e.subnets.Reset(all)
	return nil
}

// createWithSubnet creates the network and releases or holds the subnet.
func (e *Engine) createWithSubnet(ctx context.Context, spec NetworkSpec, p netip.Prefix) (Network, error) {
	var id string
	err := e.doWithin(ctx, OpCreateNetwork, Deadline(OpCreateNetwork), func(ctx context.Context, c *client.Client) error {
		resp, err := c.NetworkCreate(ctx, spec.Name, network.CreateOptions{
			Driver: network.NetworkBridge,
			Labels: spec.Labels,
			IPAM:   &network.IPAM{Driver: network.NetworkDefault, Config: []network.IPAMConfig{{Subnet: p.String()}}},
		})
		id = resp.ID
		return reclass(err, errdefs.IsConflict, errdefs.ErrAlreadyExists)
	})
	if err != nil && !errdefs.IsAlreadyExists(err) {
		e.subnets.Suspect(p, time.Now()) // refused, or the answer was lost and the network may still appear
		return Network{}, err
	}
	e.subnets.Release(p)
	return Network{ID: id, Name: spec.Name, Labels: maps.Clone(spec.Labels), Subnet: p, Created: time.Now().UTC()}, err
}
