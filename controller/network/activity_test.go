package network_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/netentry"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/store"
)

// world is a store with one sandbox, and a packet filter that records.
type world struct {
	t       *testing.T
	filter  *filter
	sb      store.Sandbox
	events  []*agboxv1.SandboxEvent
	refused error // by the store
	counted uint64
	names   names
	k       *network.Keeper
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, filter: &filter{held: map[string]netrules.Rules{}}, sb: sandbox("internal", "")}
	w.sb.ID, w.sb.Desired.Generation, w.sb.Desired.Objects = "box", 7, &storev1.Objects{NetworkId: networkID}
	w.restart()
	return w
}

// restart begins with a keeper that knows nothing.
func (w *world) restart() {
	o := network.Options{
		Firewall: w.filter, Live: func() []store.Sandbox { return []store.Sandbox{w.sb} }, Denials: func(n uint64) { w.counted += n },
		Newest: func(_ context.Context, _ string, limit int) ([]*agboxv1.SandboxEvent, error) {
			newest := slices.Clone(w.events[max(0, len(w.events)-limit):])
			slices.Reverse(newest)
			return newest, nil
		},
		Report: func(_ context.Context, id string, r store.Report) error {
			if id != "box" || r.Generation != 7 {
				w.t.Errorf("a report on %s of generation %d", id, r.Generation)
			}
			if w.refused != nil {
				return w.refused
			}
			for _, e := range r.Events {
				e = proto.CloneOf(e)
				e.OccurredAt = timestamppb.Now()
				w.events = append(w.events, e)
			}
			return nil
		},
	}
	if w.names != nil {
		o.Names = w.names
	}
	w.k = keeper(o)
}

// deny records packets to addresses of a block, and forgets what is older than an hour.
func (w *world) deny(bridge string, first, n int) {
	w.filter.denied = slices.DeleteFunc(w.filter.denied, func(r firewall.Record) bool { return time.Since(r.Last) >= firewall.RecordedFor })
	for i := first; i < first+n; i++ {
		addr := netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
		at := slices.IndexFunc(w.filter.denied, func(r firewall.Record) bool { return r.Addr == addr && r.Bridge == bridge })
		if at < 0 {
			at = len(w.filter.denied)
			w.filter.denied = append(w.filter.denied, firewall.Record{Bridge: bridge, Addr: addr, Protocol: 6, Port: 443})
		}
		w.filter.denied[at].Packets++
		w.filter.denied[at].Last = time.Now()
	}
}

// report reports, and returns the events since the last call.
func (w *world) report() (texts []string) {
	w.t.Helper()
	before := len(w.events)
	if err := w.k.ReportDenials(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range w.events[before:] {
		text := ""
		for _, d := range e.GetNetworkDenied().GetDenials() {
			text += fmt.Sprintf("%s %d, ", d.GetDestination(), d.GetCount())
		}
		texts = append(texts, fmt.Sprintf("%smore %d", text, e.GetNetworkDenied().GetMore()))
	}
	return texts
}

func (w *world) wantEvents(what string, want ...string) {
	w.t.Helper()
	if got := w.report(); !slices.Equal(got, want) {
		w.t.Errorf("%s: events %q, want %q", what, got, want)
	}
}

func TestDenialsAreReportedOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.wantEvents("nothing is denied")
		w.deny("br-elsewhere", 1, 1)
		w.wantEvents("another daemon's sandbox is denied something")
		w.deny(bridge, 1, 1)
		w.refused = errdefs.ErrAborted
		w.wantEvents("the sandbox changes")
		w.refused = nil
		w.wantEvents("the first denial", "203.0.113.1:443/tcp 1, more 0")
		for range 5 {
			time.Sleep(time.Minute)
			w.deny(bridge, 1, 1)
			w.wantEvents("the same again")
		}
		w.restart()
		w.wantEvents("the daemon has died")
		time.Sleep(30 * time.Minute)
		w.deny(bridge, 2, 1)
		w.wantEvents("another destination", "203.0.113.2:443/tcp 1, more 0")
		time.Sleep(25*time.Minute + time.Second)
		w.deny(bridge, 2, 0)
		w.wantEvents("an hour after the first event, and nothing since", "203.0.113.1:443/tcp 6, more 0")
		time.Sleep(2 * time.Hour)
		w.deny(bridge, 2, 0)
		w.wantEvents("nothing for hours")
		w.deny(bridge, 2, 1)
		w.wantEvents("denied again", "203.0.113.2:443/tcp 1, more 0")
	})
}

// A flood of destinations makes four events an hour, with ten of them each.
func TestAFloodOfDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for hour := range 3 {
			for range 60 {
				w.deny(bridge, 0, 200)
				w.report()
				time.Sleep(time.Minute)
			}
			if len(w.events) > 4*(hour+1) {
				t.Fatalf("%d events in %d hours", len(w.events), hour+1)
			}
			if hour == 1 {
				w.restart()
			}
		}
		if len(w.events) != 12 || len(w.events[0].GetNetworkDenied().GetDenials()) != 10 || w.events[0].GetNetworkDenied().GetMore() != 190 {
			t.Errorf("%d events, the first one: %v", len(w.events), w.events[0])
		}
	})
}

// Each denial is counted once, those before the daemon started not at all.
func TestDenialsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deny(bridge, 1, 2)
		w.report()
		if w.counted != 0 {
			t.Errorf("%d are counted that are older than the daemon", w.counted)
		}
		w.deny(bridge, 1, 3)
		w.deny(bridge, 3, 1)
		w.report()
		w.report()
		if w.counted != 4 {
			t.Errorf("%d are counted, want 4", w.counted)
		}
		time.Sleep(2 * time.Hour)
		w.deny(bridge, 1, 1)
		w.report()
		if w.counted != 5 {
			t.Errorf("%d are counted, want 5", w.counted)
		}
	})
}

func TestActivity(t *testing.T) {
	w := newWorld(t)
	now := time.Now()
	w.filter.denied = []firewall.Record{
		{Bridge: bridge, Addr: netip.MustParseAddr("10.0.0.9"), Protocol: 1, Packets: 1, Last: now.Add(-time.Minute)},
		{Bridge: bridge, Addr: netip.MustParseAddr("127.0.0.1"), Protocol: 17, Port: 53, Packets: 2, Last: now},
		{Bridge: "br-other", Addr: netip.MustParseAddr("10.0.0.8"), Protocol: 6, Port: 1, Last: now},
	}
	w.filter.reached = []firewall.Record{{Bridge: bridge, Addr: netip.MustParseAddr("2001:db8::1"), Protocol: 6, Port: 443, Last: now}, {Bridge: bridge, Addr: netip.MustParseAddr("10.0.0.7"), Protocol: 132, Port: 9, Last: now.Add(-time.Hour)}}
	list, problem, err := w.k.Activity(w.sb)
	var got []string
	for _, d := range list {
		got = append(got, fmt.Sprint(d.GetDenied(), " ", netentry.Destination(d), " ", d.GetCount()))
	}
	if want := []string{"true host:53/udp 2", "true 10.0.0.9/icmp 1", "false [2001:db8::1]:443/tcp 0", "false 10.0.0.7:9/132 0"}; err != nil || problem != "" || !slices.Equal(got, want) {
		t.Errorf("%q, %q, %v; want %q", got, problem, err, want)
	}
	w.sb.Spec.Network.Mode = netrules.Open
	if _, problem, err := w.k.Activity(w.sb); problem == "" || err != nil {
		t.Error("an open policy records:", problem, err)
	}
	if list, problem, err := keeper(network.Options{}).Activity(w.sb); problem == "" || err != nil || len(list) > 0 {
		t.Error("without a packet filter:", list, problem, err)
	}
}

// names are the names that sandboxes asked for, by bridge.
type names map[string][]dnsfilter.Asked

func (names) Write(dnsfilter.Policy) error                     { return nil }
func (names) Serves(dnsfilter.Policy) (bool, error)            { return true, nil }
func (names) Await(context.Context, dnsfilter.Policy) error    { return nil }
func (names) Remove(string) error                              { return nil }
func (n names) Bridges() ([]string, error)                     { return slices.Sorted(maps.Keys(n)), nil }
func (n names) Asked(bridge string) ([]dnsfilter.Asked, error) { return n[bridge], nil }

// A refused name is reported like a denied address, and an address has the names that were answered with it.
func TestNamesAreShown(t *testing.T) {
	w, now := newWorld(t), time.Now()
	addr := netip.MustParseAddr("203.0.113.1")
	w.names = names{"br-other": {{Name: "other.example", Refused: true, Count: 1, Last: now}}}
	w.restart()
	w.wantEvents("another daemon's sandbox asks for a name")
	w.names[bridge] = []dnsfilter.Asked{
		{Name: "evil.example", Refused: true, Count: 3, Last: now}, {Name: "a.example", Addrs: []netip.Addr{addr}, Count: 1, Last: now}, {Name: "b.example", Addrs: []netip.Addr{addr}, Count: 1, Last: now},
	}
	w.wantEvents("a name is refused", "evil.example 3, more 0")
	w.wantEvents("the same again")
	if w.counted != 3 {
		t.Errorf("%d are counted, want 3", w.counted)
	}
	w.filter.reached = []firewall.Record{{Bridge: bridge, Addr: addr, Protocol: 6, Port: 443, Packets: 1, Last: now}}
	list, _, err := w.k.Activity(w.sb)
	if err != nil || len(list) != 2 || netentry.Destination(list[0]) != "evil.example" || !list[0].GetDenied() || !slices.Equal(list[1].GetNames(), []string{"a.example", "b.example"}) || list[1].GetDenied() {
		t.Errorf("%v, %v", list, err)
	}
}
