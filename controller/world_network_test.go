package controller_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/store"
)

// fakeFirewall is the kernel's packet filter of the engine's host. It outlives daemons, and a reboot empties it.
type fakeFirewall struct {
	engine *dockertest.Fake

	mu      sync.Mutex
	held    map[string]netrules.Rules
	once    map[string]bool // bridges that have had rules since the last boot
	fails   int             // so many changes fail from now on
	changed func()
	records []firewall.Record
}

func newFakeFirewall(engine *dockertest.Fake) *fakeFirewall {
	return &fakeFirewall{engine: engine, held: map[string]netrules.Rules{}, once: map[string]bool{}}
}

func (f *fakeFirewall) Check() error { return nil }

func (f *fakeFirewall) Holds(r netrules.Rules) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held, ok := f.held[r.Bridge]
	return ok == !r.Empty() && (!ok || held.Equal(r)), nil
}

func (f *fakeFirewall) Enforce(r netrules.Rules) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return errors.New("netlink receive: device or resource busy")
	}
	delete(f.held, r.Bridge)
	if !r.Empty() {
		f.held[r.Bridge], f.once[r.Bridge] = r, true
	}
	return nil
}

func (f *fakeFirewall) Remove(bridge string) error { return f.Enforce(netrules.Rules{Bridge: bridge}) }

func (f *fakeFirewall) Exists(bridge string) (bool, error) {
	for _, n := range f.engine.Networks() {
		if naming.Bridge(n.ID) == bridge {
			return true, nil
		}
	}
	return false, nil
}

func (f *fakeFirewall) bridges() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.held))
}

func (f *fakeFirewall) Sweep(kept func(bridge string) bool) (removed []string, err error) {
	for _, bridge := range f.bridges() {
		if exists, _ := f.Exists(bridge); kept(bridge) || exists {
			continue
		}
		if err := f.Remove(bridge); err != nil {
			return removed, err
		}
		removed = append(removed, bridge)
	}
	return removed, nil
}

func (f *fakeFirewall) Denied() ([]firewall.Record, error) { return f.records, nil }

func (f *fakeFirewall) Reached() ([]firewall.Record, error) { return nil, nil }

func (f *fakeFirewall) Watch(ctx context.Context, changed func()) error {
	f.mu.Lock()
	f.changed = changed
	f.mu.Unlock()
	<-ctx.Done()
	return nil
}

// flush removes all rules, as a reload of the host's firewall does; told: a watch sees it.
func (f *fakeFirewall) flush(told bool) {
	f.mu.Lock()
	clear(f.held)
	changed := f.changed
	f.mu.Unlock()
	if told && changed != nil {
		changed()
	}
}

// reboot empties the packet filter.
func (f *fakeFirewall) reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.held)
	clear(f.once)
	f.fails = 0
}

func (f *fakeFirewall) fail(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = n
}

// confined reports whether a bridge has had rules since the last boot.
func (f *fakeFirewall) confined(bridge string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.once[bridge]
}

// fusedFirewall is the packet filter of a daemon that is killed at any moment.
type fusedFirewall struct {
	*fakeFirewall
	f *fuseBox
}

func (f *fusedFirewall) Enforce(r netrules.Rules) error {
	return f.f.guard(func() error { return f.fakeFirewall.Enforce(r) })
}

func (f *fusedFirewall) Remove(bridge string) error {
	return f.f.guard(func() error { return f.fakeFirewall.Remove(bridge) })
}

// simFirewall is the packet filter of a simulated daemon.
type simFirewall struct {
	*fakeFirewall
	simPort
}

func (f *simFirewall) Enforce(r netrules.Rules) error {
	return f.effect("Firewall.Enforce "+r.Bridge, func() error { return f.fakeFirewall.Enforce(r) })
}

func (f *simFirewall) Remove(bridge string) error {
	return f.effect("Firewall.Remove "+bridge, func() error { return f.fakeFirewall.Remove(bridge) })
}

// networkOf is the network policy of a spec. An open one stays without a mode, so that closed ones are closed from the start.
func networkOf(n int) *agboxv1.NetworkSpec {
	switch n % 4 {
	case 1:
		return &agboxv1.NetworkSpec{Mode: "internet"}
	case 2:
		return &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"192.0.2.1"}}
	}
	return nil
}

// changedNetwork is the policy after an update: closed ones stay closed.
func changedNetwork(old *agboxv1.NetworkSpec, n int) *agboxv1.NetworkSpec {
	switch {
	case old.GetMode() == "" || old.GetMode() == "open":
		return &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"198.51.100.0/24"}[:n%2]}
	case n%2 == 0:
		return &agboxv1.NetworkSpec{Mode: "internal"}
	}
	return &agboxv1.NetworkSpec{Mode: "internet", Deny: []string{fmt.Sprintf("192.0.2.%d", n)}}
}

// startsConfined checks that a container starts only after the rules of its networks were set.
func (w *witness) startsConfined(sb store.Sandbox, networks []string) {
	if !netrules.Confines(network.Mode(sb), nil) {
		return
	}
	for _, id := range networks {
		if !w.w.firewall.confined(naming.Bridge(id)) {
			w.breaks("a container of %s starts, and nothing has set the rules of its network", sb.ID)
		}
	}
}

// checkRules compares the packet filter with the policies: each network of a sandbox that is not deleted has its rules.
func (p *player) checkRules(sb store.Sandbox) error {
	for _, n := range p.engine.Networks() {
		if n.Labels[naming.SandboxID] != sb.ID || sb.State == deleted {
			continue
		}
		bridge := naming.Bridge(n.ID)
		want, err := netrules.Make(network.Mode(sb), sb.Spec.GetNetwork(), netrules.Facts{Bridge: bridge})
		if err != nil {
			return err
		}
		if held, _ := p.firewall.Holds(want); !held {
			return fmt.Errorf("is %s, and the rules of its network are not those of its policy", sb.State)
		}
	}
	return nil
}

// checkNoRulesLeft: rules belong to networks that exist or are on record.
func (p *player) checkNoRulesLeft() error {
	for _, bridge := range p.firewall.bridges() {
		if exists, _ := p.firewall.Exists(bridge); exists {
			continue
		}
		recorded := slices.ContainsFunc(p.boxes, func(id string) bool {
			sb, err := p.store.Sandbox(context.Background(), id)
			return err == nil && sb.State != deleted && naming.Bridge(sb.Desired.GetObjects().GetNetworkId()) == bridge
		})
		if !recorded {
			return fmt.Errorf("rules of %s are left", bridge)
		}
	}
	return nil
}
