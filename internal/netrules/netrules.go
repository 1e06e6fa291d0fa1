// Package netrules turns the network policy of a sandbox and facts of its network into packet filter rules. It is pure.
package netrules

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
)

// The modes of a policy.
const (
	Open     = "open"     // no rules but those of deny
	Internet = "internet" // public addresses, and what allow names
	Internal = "internal" // the sandbox's own network, and what allow names
	None     = "none"     // nothing, in either direction
)

// ModeOf returns the mode of a sandbox: that of its policy, or the one on record for an absent policy. Of a sandbox without either, which is
// older than policies, it is Open.
func ModeOf(policy *agboxv1.NetworkSpec, recorded string) string {
	return cmp.Or(policy.GetMode(), recorded, Open)
}

// Confines reports whether a policy needs rules.
func Confines(mode string, policy *agboxv1.NetworkSpec) bool {
	return mode != Open || len(policy.GetDeny()) > 0
}

// Facts are what rules depend on beside the policy.
type Facts struct {
	// Bridge is the name of the network's interface on the host: the key of the rules. It exists before them or after.
	Bridge string
	// Pool are the blocks from which the networks of all sandboxes are taken.
	Pool []netip.Prefix
	// Resolvers are the addresses that the engine's DNS server asks from within the sandbox's network namespace.
	Resolvers []netip.Addr
	// Forwarder is the port of the host on which the forwarder of DNS answers the sandboxes whose policies name domains. 0: there is none.
	Forwarder uint16
	// Injected are the destinations to whose requests headers are added, each a domain with a port of TCP. They count in the modes Internet and Internal.
	Injected []netentry.Entry
}

// Rules are the rules of one bridge, in lists: the first rule of a list that matches a packet decides, and a packet that none matches
// passes. Equal compares them.
type Rules struct {
	Bridge string
	// From is for forwarded packets that enter through the bridge, To for those that leave through it.
	From, To []Rule
	// Input is for packets from the bridge to the host itself, Output for packets of the host to the bridge.
	Input, Output []Rule
	// Redirect is for packets from the bridge, before they are routed. It drops none.
	Redirect []Rule
}

// Empty reports whether the rules let everything pass.
func (r Rules) Empty() bool {
	return len(r.From)+len(r.To)+len(r.Input)+len(r.Output)+len(r.Redirect) == 0
}

// Rule matches packets that meet all of its conditions; the zero conditions match every packet.
type Rule struct {
	// Drop: matching packets are dropped; otherwise they pass.
	Drop bool
	// Record: the destination of matching packets is recorded, as a denied one or as one that was reached.
	Record bool
	// OwnBridge: the packet's other interface is the bridge too, as br_netfilter shows frames between containers of one bridge.
	OwnBridge bool
	// Established: the packet belongs to a connection that was let through, or is an error message about one.
	Established bool
	// Neighbour: the packet is of IPv6's neighbour discovery, without which no IPv6 address can be reached.
	Neighbour bool
	// To and From are sorted disjoint ranges with the destination and the source address; nil is any address.
	To, From []Range
	// Protocol is "tcp" or "udp", or empty for any; Ports are destination ports, and need a protocol.
	Protocol string
	Ports    netentry.Ports
	// Names is the ID of a set of destination addresses that the forwarder fills, see NameSet; "" is any address.
	Names string
	// Redirect is the port of the host to which matching packets go instead; 0: they pass. With Record, they are recorded as reached. Redirected: the packet was sent there by such a
	// rule, and not by its sender.
	Redirect   uint16
	Redirected bool
}

// Equal reports whether two rules are the same.
func (r Rule) Equal(o Rule) bool {
	return r.Drop == o.Drop && r.Record == o.Record && r.OwnBridge == o.OwnBridge && r.Established == o.Established && r.Neighbour == o.Neighbour &&
		slices.Equal(r.To, o.To) && slices.Equal(r.From, o.From) && r.Protocol == o.Protocol && r.Ports == o.Ports &&
		r.Names == o.Names && r.Redirect == o.Redirect && r.Redirected == o.Redirected
}

// Equal reports whether two sets of rules are the same.
func (r Rules) Equal(o Rules) bool {
	return r.Bridge == o.Bridge && slices.EqualFunc(r.From, o.From, Rule.Equal) && slices.EqualFunc(r.To, o.To, Rule.Equal) &&
		slices.EqualFunc(r.Input, o.Input, Rule.Equal) && slices.EqualFunc(r.Output, o.Output, Rule.Equal) &&
		slices.EqualFunc(r.Redirect, o.Redirect, Rule.Equal)
}

// passes are the rules in front of all others, except in the mode none. Established comes first where it can: most packets are of connections
// that exist, and a rule that compares names of interfaces costs more.
var (
	passEstablished = Rule{Established: true}
	passOwn         = Rule{OwnBridge: true}
	passNeighbour   = Rule{Neighbour: true}
	dropOwn         = Rule{Drop: true, OwnBridge: true}
	dropNeighbour   = Rule{Drop: true, Neighbour: true}
	dropAll         = Rule{Drop: true}
	// passRest and refuseRest are the last rules for packets that a sandbox sends. Rules that do not record match packets between its
	// containers, of connections that exist, and to its DNS servers.
	passRest   = Rule{Record: true}
	refuseRest = Rule{Drop: true, Record: true}
)

// Make returns the rules of a policy that validate accepts, in a mode that is not empty. policy may be nil. deny beats allow. Errors: an
// entry does not parse, the mode is none of ours, or no forwarder runs that the policy needs: nothing may run then.
func Make(mode string, policy *agboxv1.NetworkSpec, f Facts) (Rules, error) {
	allow, err := parse(policy.GetAllow())
	if err != nil {
		return Rules{}, err
	}
	deny, err := parse(policy.GetDeny())
	if err != nil {
		return Rules{}, err
	}
	filtered, err := filtersNames(mode, allow, deny, f.Injected)
	if err != nil {
		return Rules{}, err
	}
	if filtered && f.Forwarder == 0 {
		return Rules{}, errors.New("the policy names domains, and no forwarder of DNS runs")
	}
	r := Rules{Bridge: f.Bridge}
	switch mode {
	case Open:
		if len(deny) > 0 {
			r.From = slices.Concat(outward(false), destinations(deny, false, true), []Rule{passRest})
			r.Input = slices.Concat([]Rule{passEstablished, passNeighbour}, destinations(deny, true, true), destinations(deny, false, true), []Rule{passRest})
		}
	case None:
		r.From, r.Input = []Rule{dropOwn, refuseRest}, []Rule{dropNeighbour, refuseRest}
		r.To, r.Output = []Rule{dropAll}, []Rule{dropAll}
	case Internet:
		servers := resolvers(f.Resolvers)
		if filtered {
			servers = nil
		}
		r.From = slices.Concat(outward(filtered), servers, destinations(deny, false, true), others(f.Pool), destinations(allow, false, false),
			[]Rule{{Drop: true, Record: true, To: notPublic}, passRest})
		r.To, r.Input = inward(f.Pool), input(servers, allow, deny)
	case Internal:
		opened := resolved(NameSets(allow, deny))
		if policy.GetVerifyNames() {
			opened = nil
		}
		r.From = slices.Concat(outward(filtered), destinations(deny, false, true), others(f.Pool), destinations(allow, false, false),
			opened, []Rule{refuseRest})
		r.To, r.Input = inward(f.Pool), input(nil, allow, deny)
	default:
		return Rules{}, fmt.Errorf("unknown network mode %q", mode)
	}
	if filtered {
		r.Redirect = redirect(f)
		if policy.GetVerifyNames() || len(f.Injected) > 0 {
			r.Redirect = append(r.Redirect, proxied(f, allow, deny, policy.GetVerifyNames())...)
		}
		r.Input = slices.Concat(forwarder(f.Forwarder), r.Input)
	}
	r.From, r.Input = joined(r.From), joined(r.Input)
	return r, nil
}

// joined makes one rule of those that differ in their destinations alone and stand among rules of one verdict: a packet costs a lookup less, and a
// create a set less. Among rules of one verdict it makes no difference which of them matches.
func joined(rules []Rule) (list []Rule) {
	run := 0 // the first rule of list that has the verdict of the last
	for _, r := range rules {
		if n := len(list); n > 0 && (list[n-1].Drop != r.Drop || list[n-1].Record != r.Record || list[n-1].Redirect > 0 || r.Redirect > 0) {
			run = n
		}
		same := slices.IndexFunc(list[run:], func(o Rule) bool {
			o.To = r.To
			return o.Equal(r)
		})
		if same < 0 || r.To == nil || list[run+same].To == nil {
			list = append(list, r)
			continue
		}
		list[run+same].To = join(slices.Concat(list[run+same].To, r.To))
	}
	return list
}

func parse(texts []string) ([]netentry.Entry, error) {
	list := make([]netentry.Entry, len(texts))
	for i, text := range texts {
		e, err := netentry.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		list[i] = e
	}
	return list, nil
}

// input are the rules for the host's own services. An address that allow names opens none of them, even if the host has that address: only
// the word host does.
func input(servers []Rule, allow, deny []netentry.Entry) []Rule {
	return slices.Concat([]Rule{passEstablished, passNeighbour}, servers, destinations(deny, true, true), destinations(deny, false, true),
		destinations(allow, true, false), []Rule{refuseRest})
}

// inward are the rules for packets to the sandbox: other sandboxes reach it neither, whatever their own policies are.
func inward(pool []netip.Prefix) []Rule {
	if len(pool) == 0 {
		return nil
	}
	return []Rule{passEstablished, passOwn, {Drop: true, From: Ranges(pool)}}
}

// others drops packets to other sandboxes. No entry of a policy opens them.
func others(pool []netip.Prefix) []Rule {
	if len(pool) == 0 {
		return nil
	}
	return []Rule{{Drop: true, Record: true, To: Ranges(pool)}}
}

func resolvers(addrs []netip.Addr) []Rule {
	var blocks []netip.Prefix
	for _, a := range addrs {
		if a = a.Unmap().WithZone(""); !a.IsLoopback() { // the engine asks its host's loopback addresses from the host
			blocks = append(blocks, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	to := Ranges(blocks)
	return []Rule{{To: to, Protocol: "udp", Ports: dns}, {To: to, Protocol: "tcp", Ports: dns}}
}

// destinations returns the rules of the entries for the host, or of all others. Entries with the same ports share a rule: there is one for
// each combination of protocol and ports, in sorted order.
func destinations(entries []netentry.Entry, host, drop bool) (rules []Rule) {
	type key struct {
		protocol string
		ports    netentry.Ports
	}
	groups := map[key][]netip.Prefix{}
	for _, e := range entries {
		if e.Host != host || e.Domain != "" {
			continue
		}
		for _, p := range protocols(e.Protocol, e.Ports) {
			k := key{p, e.Ports}
			groups[k] = append(groups[k], e.Prefix)
		}
	}
	for k, blocks := range groups {
		r := Rule{Drop: drop, Record: true, Protocol: k.protocol, Ports: k.ports}
		if !host {
			r.To = Ranges(blocks)
		}
		rules = append(rules, r)
	}
	slices.SortFunc(rules, func(a, b Rule) int {
		return slices.Compare(
			[]int{len(a.Protocol), int(byteOf(a.Protocol)), int(a.Ports.First), int(a.Ports.Last)},
			[]int{len(b.Protocol), int(byteOf(b.Protocol)), int(b.Ports.First), int(b.Ports.Last)})
	})
	return rules
}

// protocols returns the protocols of the rules of an entry: only these two have ports.
func protocols(protocol string, ports netentry.Ports) []string {
	if protocol == "" && ports.First > 0 {
		return []string{"tcp", "udp"}
	}
	return []string{protocol}
}

func byteOf(protocol string) byte {
	if protocol == "" {
		return 0
	}
	return protocol[0]
}
