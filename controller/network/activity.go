package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/hostnet"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/store"
)

const (
	// named is how long a destination that an event has named is in no other, and the time in which a sandbox has at most mostEvents of them.
	named      = time.Hour
	mostEvents = 4
	// mostNamed bounds the destinations in one event.
	mostNamed = 10
	// looked is how many events a daemon that has just started reads of a sandbox, to know what has been said.
	looked = 256
)

// said is what events have said about denials of a sandbox: when, and of which destinations. It is derived from the newest events.
type said struct {
	events       []time.Time
	destinations map[string]time.Time
}

// forget drops what is older than named.
func (s *said) forget(now time.Time) {
	s.events = slices.DeleteFunc(s.events, func(at time.Time) bool { return now.Sub(at) > named })
	for d, at := range s.destinations {
		if now.Sub(at) > named {
			delete(s.destinations, d)
		}
	}
}

func (s *said) add(e *agboxv1.SandboxEvent, at time.Time) {
	if e.GetEventType() != agboxv1.EventType_NETWORK_DENIED {
		return
	}
	s.events = append(s.events, at)
	for _, d := range e.GetNetworkDenied().GetDenials() {
		s.destinations[d.GetDestination()] = at
	}
}

// ReportDenials records an event for each live sandbox that was denied something no event has named within the hour, and counts denials. The
// kernel keeps a destination for as long, so a daemon that was dead misses none unless its host was restarted. One caller at a time.
func (k *Keeper) ReportDenials(ctx context.Context) error {
	if k.Problem() != "" || k.o.Firewall == nil {
		return nil
	}
	records, err := k.o.Firewall.Denied()
	if err != nil {
		return err
	}
	var filtered []string
	if k.o.Names != nil {
		if filtered, err = k.o.Names.Bridges(); err != nil {
			return err
		}
	}
	if len(records)+len(filtered) == 0 {
		k.counted, k.said = map[string]map[string]uint64{}, nil
		return nil
	}
	host, err := hostAddresses()
	if err != nil {
		return err
	}
	counts, reported := map[string]map[string]uint64{}, map[string]*said{}
	for _, one := range k.denied(records, filtered) {
		id := one.sandbox.ID
		asked, askedErr := k.asked(one.bridge)
		if askedErr != nil { // without the names the next call would count them again
			err = errors.Join(err, askedErr)
			counts[id], reported[id] = k.counted[id], k.said[id]
			continue
		}
		list := destinations(one.records, asked, host, true)
		if len(list) == 0 {
			continue
		}
		counts[id] = k.count(id, list)
		s, reportErr := k.reportDenials(ctx, one.sandbox, list)
		err = errors.Join(err, reportErr)
		if s != nil {
			reported[id] = s
		}
	}
	k.counted, k.said = counts, reported
	return err
}

type deniedSandbox struct {
	sandbox store.Sandbox
	bridge  string
	records []firewall.Record
}

// denied returns the live sandboxes of records, and those whose bridges are filtered.
func (k *Keeper) denied(records []firewall.Record, filtered []string) (list []deniedSandbox) {
	by := map[string][]firewall.Record{}
	for _, r := range records {
		by[r.Bridge] = append(by[r.Bridge], r)
	}
	for _, sb := range k.o.Live() {
		id := sb.Desired.GetObjects().GetNetworkId()
		if bridge := naming.Bridge(id); id != "" && (len(by[bridge]) > 0 || slices.Contains(filtered, bridge)) {
			list = append(list, deniedSandbox{sb, bridge, by[bridge]})
		}
	}
	return list
}

// asked returns the names that the sandbox of a bridge asked for, as far as its policy has them filtered.
func (k *Keeper) asked(bridge string) ([]dnsfilter.Asked, error) {
	if k.o.Names == nil {
		return nil, nil
	}
	return k.o.Names.Asked(bridge)
}

// count counts the denials since the last call, and returns what it counted of each destination.
func (k *Keeper) count(sandboxID string, list []*agboxv1.NetworkDestination) map[string]uint64 {
	counts := map[string]uint64{}
	for _, d := range list {
		key := d.GetAddress() + " " + netentry.Destination(d) // the host has several addresses
		before := k.counted[sandboxID][key]
		if before > d.GetCount() { // the kernel has forgotten it in between
			before = 0
		}
		if counts[key] = d.GetCount(); k.counted != nil { // what was denied before the daemon started is not counted again
			k.o.Denials(d.GetCount() - before)
		}
	}
	return counts
}

// reportDenials records an event about a sandbox, if one is due. It returns what events have said.
func (k *Keeper) reportDenials(ctx context.Context, sb store.Sandbox, list []*agboxv1.NetworkDestination) (*said, error) {
	s, now := k.said[sb.ID], time.Now()
	if s == nil {
		s = &said{destinations: map[string]time.Time{}}
		events, err := k.o.Newest(ctx, sb.ID, looked)
		if err != nil {
			return nil, fmt.Errorf("read which denials of sandbox %s were reported: %w", sb.ID, err)
		}
		for _, e := range events {
			s.add(e, e.GetOccurredAt().AsTime())
		}
	}
	s.forget(now)
	fresh := map[string]*agboxv1.NetworkDenial{}
	details := &agboxv1.NetworkDeniedDetails{}
	for _, d := range list {
		name := netentry.Destination(d)
		if _, ok := s.destinations[name]; ok {
			continue
		}
		if fresh[name] == nil {
			fresh[name] = &agboxv1.NetworkDenial{Destination: name}
			if len(details.Denials) < mostNamed {
				details.Denials = append(details.Denials, fresh[name])
			}
		}
		fresh[name].Count += d.GetCount()
	}
	if len(fresh) == 0 || len(s.events) >= mostEvents {
		return s, nil
	}
	details.More = uint32(len(fresh) - len(details.Denials))
	e := &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_NETWORK_DENIED, Details: &agboxv1.SandboxEvent_NetworkDenied{NetworkDenied: details},
	}
	err := k.o.Report(ctx, sb.ID, store.Report{Generation: sb.Desired.GetGeneration(), Events: []*agboxv1.SandboxEvent{e}})
	if errdefs.IsAborted(err) || errdefs.IsNotFound(err) {
		return s, nil // the sandbox changes, or is gone; the next call tries again
	}
	if err != nil {
		return s, fmt.Errorf("report denials of sandbox %s: %w", sb.ID, err)
	}
	s.add(e, now)
	return s, nil
}

// Activity returns what a sandbox reached and was denied in the last hour: denied destinations before reached ones, newest first. problem says why nothing
// is recorded.
func (k *Keeper) Activity(sb store.Sandbox) (list []*agboxv1.NetworkDestination, problem string, err error) {
	if problem = k.Problem(); problem != "" || k.o.Firewall == nil {
		return nil, cmp.Or(problem, "agboxd has no packet filter"), nil
	}
	if !netrules.Confines(Mode(sb), sb.Spec.GetNetwork()) {
		problem = "the mode open without deny has no rules that could record; the mode internet has"
	}
	id := sb.Desired.GetObjects().GetNetworkId()
	if id == "" {
		return nil, problem, nil
	}
	host, err := hostAddresses()
	if err != nil {
		return nil, problem, err
	}
	asked, err := k.asked(naming.Bridge(id))
	if err != nil {
		return nil, problem, err
	}
	for _, of := range []struct {
		read   func() ([]firewall.Record, error)
		denied bool
	}{{k.o.Firewall.Denied, true}, {k.o.Firewall.Reached, false}} {
		records, err := of.read()
		if err != nil {
			return nil, problem, err
		}
		records = slices.DeleteFunc(records, func(r firewall.Record) bool { return r.Bridge != naming.Bridge(id) })
		list = append(list, destinations(records, asked, host, of.denied)...)
	}
	return list, problem, nil
}

// destinations returns records as the API shows them, with the names that were answered with their addresses, the last first. If denied they
// include the names that were refused.
func destinations(records []firewall.Record, asked []dnsfilter.Asked, host map[netip.Addr]bool, denied bool) (list []*agboxv1.NetworkDestination) {
	names := map[netip.Addr][]string{}
	for _, a := range asked {
		for _, addr := range a.Addrs {
			names[addr] = append(names[addr], a.Name)
		}
		if a.Refused && denied {
			list = append(list, &agboxv1.NetworkDestination{Denied: true, Names: []string{a.Name}, Count: a.Count, LastAt: timestamppb.New(a.Last)})
		}
	}
	for _, r := range records {
		list = append(list, &agboxv1.NetworkDestination{
			Denied: denied, Address: r.Addr.String(), Protocol: protocol(r.Protocol), Port: uint32(r.Port), Host: host[r.Addr], Names: names[r.Addr], Count: r.Packets,
			LastAt: timestamppb.New(r.Last),
		})
	}
	slices.SortFunc(list, func(a, b *agboxv1.NetworkDestination) int {
		return cmp.Or(b.GetLastAt().AsTime().Compare(a.GetLastAt().AsTime()), cmp.Compare(netentry.Destination(a), netentry.Destination(b)))
	})
	return list
}

// hostAddresses returns the addresses of the host.
func hostAddresses() (map[netip.Addr]bool, error) {
	all, err := hostnet.Addresses()
	addrs := map[netip.Addr]bool{}
	for _, a := range all {
		addrs[a] = true
	}
	return addrs, err
}

// protocol returns the name of a protocol, or its number.
func protocol(number uint8) string {
	switch number {
	case 1:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 58:
		return "ipv6-icmp"
	}
	return strconv.Itoa(int(number))
}
