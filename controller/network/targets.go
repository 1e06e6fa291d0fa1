package network

import (
	"context"
	"net/netip"
	"slices"

	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/netrules"
)

// HostFacts are addresses of this host and of what is around it.
type HostFacts struct{ Addresses, Routers, Resolvers []netip.Addr }

// Bounds of the targets of one kind.
const (
	mostHost    = 16
	mostRouters = 4
	mostServers = 4
	mostOthers  = 8 // networks, with two addresses each
)

// Targets returns what a sandbox should not reach: addresses of the host and its router, DNS servers, and the first two addresses
// behind the gateway in networks of other sandboxes, of any daemon. Where the engine's networks are not of this host, it returns the latter
// only. Errors: of the engine, or the host's addresses can't be read.
func (k *Keeper) Targets(ctx context.Context, sandboxID string) ([]attack.Target, error) {
	others, err := k.o.Others(ctx, sandboxID)
	if err != nil {
		return nil, err
	}
	var facts HostFacts
	if k.o.Foreign != nil {
		why, err := k.o.Foreign(ctx)
		if err != nil || why != "" {
			return targets(others, facts), err
		}
	}
	if k.o.Host != nil {
		if facts, err = k.o.Host(); err != nil {
			return nil, err
		}
	}
	return targets(others, facts), nil
}

func targets(others []netip.Prefix, h HostFacts) (all []attack.Target) {
	add := func(kind string, most int, addresses []netip.Addr) {
		for _, a := range addresses[:min(most, len(addresses))] {
			all = append(all, attack.Target{Kind: kind, Address: a})
		}
	}
	local := func(a netip.Addr) bool { return a.IsLoopback() || a.IsLinkLocalUnicast() }
	add(attack.Host, mostHost, slices.DeleteFunc(slices.Clone(h.Addresses), local))
	// Public addresses are open in the default mode, those of a router, too.
	add(attack.LAN, mostRouters, slices.DeleteFunc(slices.Clone(h.Routers), netrules.Public))
	add(attack.DNS, mostServers, h.Resolvers)
	var containers []netip.Addr
	for _, subnet := range others {
		gateway := subnet.Masked().Addr().Next()
		containers = append(containers, gateway.Next(), gateway.Next().Next())
	}
	add(attack.Sandbox, 2*mostOthers, containers)
	return all
}
