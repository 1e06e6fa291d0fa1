package network_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/network"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/store"
)

// filter is a packet filter with the interfaces of its host.
type filter struct {
	held       map[string]netrules.Rules
	interfaces []string
	broken     error
	asked      func() // is called before Exists answers

	denied, reached []firewall.Record
}

func (f *filter) Check() error { return f.broken }

func (f *filter) Holds(r netrules.Rules) (bool, error) {
	held, ok := f.held[r.Bridge]
	return ok == !r.Empty() && (!ok || held.Equal(r)), f.broken
}

func (f *filter) Enforce(r netrules.Rules) error {
	delete(f.held, r.Bridge)
	if !r.Empty() {
		f.held[r.Bridge] = r
	}
	return f.broken
}

func (f *filter) Remove(bridge string) error { return f.Enforce(netrules.Rules{Bridge: bridge}) }

func (f *filter) Exists(bridge string) (bool, error) {
	if f.asked != nil {
		f.asked()
	}
	return slices.Contains(f.interfaces, bridge), nil
}

func (f *filter) Sweep(kept func(string) bool) (removed []string, err error) {
	for bridge := range f.held {
		if exists, _ := f.Exists(bridge); !exists && !kept(bridge) {
			removed = append(removed, bridge)
			delete(f.held, bridge)
		}
	}
	return removed, f.broken
}

func (f *filter) Denied() ([]firewall.Record, error) { return slices.Clone(f.denied), f.broken }

func (f *filter) Reached() ([]firewall.Record, error) { return slices.Clone(f.reached), f.broken }

func (f *filter) Watch(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

const (
	networkID = "0123456789abcdef"
	bridge    = "br-0123456789ab"
)

func sandbox(mode string, recorded string) store.Sandbox {
	sb := store.Sandbox{Spec: &agboxv1.CreateSpec{}, Desired: &storev1.Desired{Confinement: &storev1.Confinement{NetworkMode: recorded}}}
	if mode != "" {
		sb.Spec.Network = &agboxv1.NetworkSpec{Mode: mode}
	}
	return sb
}

func keeper(o network.Options) *network.Keeper {
	o.Logger = slog.New(slog.DiscardHandler)
	if o.Recorded == nil {
		o.Recorded = func() map[string]bool { return nil }
	}
	k := network.New(o)
	k.Refresh(context.Background())
	return k
}

func TestEnforce(t *testing.T) {
	f := &filter{held: map[string]netrules.Rules{}, interfaces: []string{bridge}}
	k := keeper(network.Options{Firewall: f, Pool: netip.MustParsePrefix("10.213.0.0/16"), Resolvers: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.2")} }})
	closed, open := sandbox("", "internet"), sandbox("open", "internet")
	if k.Holds(closed, networkID) || !k.Holds(open, networkID) || !k.Holds(sandbox("", ""), networkID) {
		t.Error("without rules only what needs none holds")
	}
	if err := k.Enforce(closed, networkID); err != nil || !k.Holds(closed, networkID) || k.Holds(open, networkID) {
		t.Error("rules that are set do not hold, or hold for another policy:", err)
	}
	if len(f.held[bridge].From) == 0 {
		t.Errorf("rules of another bridge: %v", f.held)
	}
	if err := k.Enforce(open, networkID); err != nil || len(f.held) > 0 {
		t.Errorf("an open policy leaves rules: %v, %v", err, f.held)
	}
	if err := k.Enforce(sandbox("nonsense", ""), networkID); err == nil || k.Holds(sandbox("nonsense", ""), networkID) {
		t.Error("a policy that is none holds")
	}
	if err := k.Enforce(closed, "fedcba9876543210"); !errdefs.IsFailedPrecondition(err) {
		t.Error("rules are set for a bridge that does not exist here:", err)
	}
}

// Where no rules can be set, only an open policy holds, and Problem names the reason.
func TestProblems(t *testing.T) {
	foreign, answer := "", error(nil)
	o := network.Options{Firewall: &filter{held: map[string]netrules.Rules{}, interfaces: []string{bridge}}, Foreign: func(context.Context) (string, error) { return foreign, answer }}
	for _, tt := range []struct {
		name    string
		change  func()
		problem string
	}{
		{"fine", func() {}, ""},
		{"a remote engine", func() { foreign = "is reached over tcp" }, "the engine is reached over tcp"},
		{"it does not answer now", func() { answer = errors.New("no answer") }, "the engine is reached over tcp"},
		{"it is not remote any more", func() { foreign, answer = "", nil }, ""},
		{"it does not answer", func() { answer = errors.New("no answer") }, ""},
		{"no privilege", func() { o.Firewall.(*filter).broken = errors.New("operation not permitted") }, "operation not permitted"},
	} {
		tt.change()
		k := keeper(o)
		if tt.name == "it does not answer now" { // what it said before is remembered by the same keeper only
			answer = nil
			k = keeper(o)
			answer = errors.New("no answer")
			k.Refresh(t.Context())
		}
		if got := k.Problem(); got == "" != (tt.problem == "") || !strings.Contains(got, tt.problem) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.problem)
		}
		closed := sandbox("internal", "")
		if err := k.Enforce(closed, networkID); err == nil != (tt.problem == "") || tt.problem != "" && (!errdefs.IsFailedPrecondition(err) || k.Holds(closed, networkID)) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.problem != "" && !k.Holds(sandbox("open", ""), networkID) {
			t.Errorf("%s: an open policy does not hold", tt.name)
		}
		_ = o.Firewall.Remove(bridge)
	}
	if k := keeper(network.Options{}); k.Problem() == "" || k.Holds(sandbox("none", ""), networkID) || k.Sweep(t.Context()) != nil {
		t.Error("without a packet filter:", k.Problem())
	}
}

func TestSweepAndRelease(t *testing.T) {
	f := &filter{held: map[string]netrules.Rules{}, interfaces: []string{"br-exists"}}
	for _, name := range []string{bridge, "br-exists", "br-gone", "br-released"} {
		f.held[name] = netrules.Rules{Bridge: name}
	}
	k := keeper(network.Options{Firewall: f, Recorded: func() map[string]bool { return map[string]bool{networkID: true, "": true} }})
	k.Release("released")
	if err := k.Sweep(t.Context()); err != nil || len(f.held) != 2 || f.held[bridge].Bridge == "" || f.held["br-exists"].Bridge == "" {
		t.Error(err, f.held)
	}
}

// A repair never sets rules that are older than those that a pass has set, whenever the pass does it: after the repair has listed the sandboxes, or
// while it repairs this one.
func TestRepairIsNoOlderThanAPass(t *testing.T) {
	const id = "box"
	for _, when := range []string{"listed", "checked"} {
		t.Run(when, func(t *testing.T) {
			f := &filter{held: map[string]netrules.Rules{}, interfaces: []string{bridge}}
			was, is := sandbox("internet", ""), sandbox("none", "")
			var mu sync.Mutex
			now := was
			for _, sb := range []*store.Sandbox{&was, &is} {
				sb.ID, sb.Desired.Objects = id, &storev1.Objects{NetworkId: networkID}
			}
			var k *network.Keeper
			pass := func() {
				mu.Lock()
				now = is
				mu.Unlock()
				if err := k.Enforce(is, networkID); err != nil {
					t.Error(err)
				}
			}
			record := func() store.Sandbox {
				mu.Lock()
				defer mu.Unlock()
				return now
			}
			repaired, passed := make(chan struct{}), make(chan struct{})
			k = keeper(network.Options{
				Firewall: f, Changed: func() {}, Sandbox: func(context.Context, string) (store.Sandbox, error) { return record(), nil },
				Live: func() []store.Sandbox {
					all := []store.Sandbox{record()}
					if when == "listed" {
						pass()
						close(passed)
					}
					return all
				},
			})
			if when != "listed" {
				f.asked = func() {
					f.asked = nil
					go func() {
						defer close(passed)
						pass()
					}()
					select {
					case <-passed:
					case <-time.After(100 * time.Millisecond): // the repair holds it back
					}
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer close(repaired)
				k.Run(ctx)
			}()
			<-passed
			cancel()
			<-repaired
			if !k.Holds(is, networkID) {
				t.Errorf("the rules of the former policy are set again: %v", f.held)
			}
		})
	}
}
