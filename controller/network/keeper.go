// Package network keeps the packet filter rules of sandboxes' networks as their policies say.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/inject"
	"github.com/agbox/agbox/internal/host/authority"
	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/wait"
	"github.com/agbox/agbox/store"
)

// Firewall holds packet filter rules: *firewall.Firewall. What it holds outlives this process.
type Firewall interface {
	Check() error
	Holds(r netrules.Rules) (bool, error)
	Enforce(r netrules.Rules) error
	Remove(bridge string) error
	Exists(bridge string) (bool, error)
	Sweep(kept func(bridge string) bool) (removed []string, err error)
	Watch(ctx context.Context, changed func()) error
	Denied() ([]firewall.Record, error)
	Reached() ([]firewall.Record, error)
}

// Names answers the DNS of sandboxes whose policies name domains: dnsfilter.Dir. What it knows, and the process that answers, outlive this one.
type Names interface {
	Write(p dnsfilter.Policy) error
	Serves(p dnsfilter.Policy) (bool, error)
	Await(ctx context.Context, p dnsfilter.Policy) error
	Remove(bridge string) error
	Bridges() ([]string, error)
	Asked(bridge string) ([]dnsfilter.Asked, error)
}

// Options are the dependencies of a Keeper.
type Options struct {
	// Firewall is nil where there is none: then only policies that need no rules hold.
	Firewall Firewall
	// Pool is the block from which the networks of all sandboxes are taken.
	Pool netip.Prefix
	// Resolvers returns the addresses that the engine's DNS server asks. Nil: there are none.
	Resolvers func() []netip.Addr
	// Names answers at the port NamesPort of the host. Nil: policies that name domains cannot be enforced.
	Names     Names
	NamesPort uint16
	// Foreign returns why the engine's bridges are not of this network namespace, as the rest of a sentence about the engine; empty: they may
	// be. An error: it is unknown. Nil: they are.
	Foreign func(ctx context.Context) (string, error)
	// Authority returns the authority that signs for hosts to whose requests of a sandbox headers are added, and InjectedSecret the path of the value of a
	// secret for them, from a source on the host.
	Authority      func(sandboxID string) (*authority.Authority, error)
	InjectedSecret func(sandboxID, name, source string) string
	// Others returns the subnets of other sandboxes than one, of any daemon.
	Others func(ctx context.Context, sandboxID string) ([]netip.Prefix, error)
	// Host reads what Targets needs of this host; nil: nothing.
	Host func() (HostFacts, error)
	// Recorded returns the networks that records of live sandboxes name.
	Recorded func() map[string]bool
	// Live returns the records of live sandboxes that can be read. Sandbox, Newest and Report are Sandbox, NewestEvents and Report of the store.
	Live    func() []store.Sandbox
	Sandbox func(ctx context.Context, sandboxID string) (store.Sandbox, error)
	Newest  func(ctx context.Context, sandboxID string, limit int) ([]*agboxv1.SandboxEvent, error)
	Report  func(ctx context.Context, sandboxID string, r store.Report) error
	// Denials counts denials.
	Denials func(n uint64)
	// Changed is called when rules may have been changed by others. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Keeper compares, sets and removes rules, and reads what they record. Its methods may be called concurrently, but for ReportDenials.
type Keeper struct {
	o       Options
	problem atomic.Pointer[string]
	// setting is a slot that is taken while rules are set or removed, by a repair also while it reads what they are made of: so none sets older rules than
	// a pass did. No mutex: simulated time does not go on while one is waited for.
	setting chan struct{}

	// Of ReportDenials: what it has counted of each destination of a sandbox, nil before the first call, and what events have said. Both are
	// of the sandboxes that were denied something within the hour.
	counted map[string]map[string]uint64
	said    map[string]*said
}

// New returns a Keeper.
func New(o Options) *Keeper {
	k := &Keeper{o: o, setting: make(chan struct{}, 1)}
	k.problem.Store(new(string))
	return k
}

// Problem returns in one sentence why no rules can be set on this host, as far as is known; empty: they can.
func (k *Keeper) Problem() string { return *k.problem.Load() }

// Refresh checks again whether rules can be set. If the engine does not answer, a known problem stays.
func (k *Keeper) Refresh(ctx context.Context) {
	text, known := k.check(ctx)
	if !known {
		return
	}
	if text != k.Problem() {
		k.o.Logger.Warn("whether network policies can be enforced has changed", "problem", text)
	}
	k.problem.Store(&text)
}

// check returns why no rules can be set; known is false if that is as it was.
func (k *Keeper) check(ctx context.Context) (problem string, known bool) {
	if k.o.Firewall == nil {
		return "agboxd has no packet filter", true
	}
	if k.o.Foreign != nil {
		why, err := k.o.Foreign(ctx)
		if err != nil && k.Problem() != "" {
			return "", false
		}
		if why != "" {
			return "the engine " + why + ", where agboxd sets no rules", true
		}
	}
	if err := k.o.Firewall.Check(); err != nil {
		return "agboxd cannot set packet filter rules: " + err.Error(), true
	}
	return "", true
}

// Mode returns the mode of a sandbox's policy.
func Mode(sb store.Sandbox) string {
	return netrules.ModeOf(sb.Spec.GetNetwork(), sb.Desired.GetConfinement().GetNetworkMode())
}

// rules returns the rules for a network of a sandbox.
func (k *Keeper) rules(sb store.Sandbox, networkID string) (netrules.Rules, error) {
	f := netrules.Facts{Bridge: naming.Bridge(networkID), Injected: inject.Hosts(sb.Spec)}
	if k.o.Names != nil {
		f.Forwarder = k.o.NamesPort
	}
	if k.o.Pool.IsValid() {
		f.Pool = []netip.Prefix{k.o.Pool}
	}
	if k.o.Resolvers != nil {
		f.Resolvers = k.o.Resolvers()
	}
	for _, text := range sb.Desired.GetConfinement().GetDnsServers() { // its containers ask these, whatever the host asks by now
		if a, err := netip.ParseAddr(text); err == nil && !slices.Contains(f.Resolvers, a) {
			f.Resolvers = append(slices.Clone(f.Resolvers), a)
		}
	}
	r, err := netrules.Make(Mode(sb), sb.Spec.GetNetwork(), f)
	if err != nil {
		return r, fmt.Errorf("the network policy: %w: %w", err, errdefs.ErrInternal)
	}
	return r, nil
}

// Holds reports whether the rules for a network of a sandbox are as its policy says. If that is unknown, they are not.
func (k *Keeper) Holds(sb store.Sandbox, networkID string) bool {
	r, err := k.rules(sb, networkID)
	if err != nil {
		return false
	}
	if k.Problem() != "" || k.o.Firewall == nil {
		return r.Empty()
	}
	if held, err := k.o.Firewall.Holds(r); err != nil || !held {
		return false
	}
	p, filtered, err := k.names(sb, r.Bridge)
	if err != nil || !filtered {
		return err == nil
	}
	served, err := k.o.Names.Serves(p)
	return err == nil && served
}

// Enforce sets the rules for a network of a sandbox, with all or nothing of it done. Errors: ErrFailedPrecondition, no rules can be set on this
// host, or the network is not of this host; those of the kernel.
func (k *Keeper) Enforce(sb store.Sandbox, networkID string) error {
	r, err := k.rules(sb, networkID)
	if err != nil {
		return err
	}
	if p := k.Problem(); p != "" || k.o.Firewall == nil {
		return fmt.Errorf("the network policy cannot be enforced: %s: %w", p, errdefs.ErrFailedPrecondition)
	}
	if !r.Empty() {
		// Rules for a bridge of another host, or of another namespace, would hold nothing back.
		if exists, err := k.o.Firewall.Exists(r.Bridge); err != nil || !exists {
			return fmt.Errorf("the network policy cannot be enforced: the bridge %s is no interface of agboxd's network namespace; an engine behind a proxy, or elsewhere, needs "+
				"runtime.network_mode = \"open\", or the policy {mode: open}: %w", r.Bridge, cmp.Or[error](err, errdefs.ErrFailedPrecondition))
		}
	}
	if err := k.set(func() error { return k.o.Firewall.Enforce(r) }); err != nil {
		return err
	}
	return k.answer(sb, r)
}

func (k *Keeper) set(do func() error) error {
	k.setting <- struct{}{}
	defer func() { <-k.setting }()
	return do()
}

// names returns what the filter of names has to know of a sandbox; see dnsfilter.PolicyOf.
func (k *Keeper) names(sb store.Sandbox, bridge string) (dnsfilter.Policy, bool, error) {
	in, err := k.injection(sb)
	if err != nil {
		return dnsfilter.Policy{}, false, err
	}
	return dnsfilter.PolicyOf(sb.ID, bridge, Mode(sb), sb.Spec.GetNetwork(), in)
}

// injection returns what the filter of names needs to add headers to the requests of a sandbox; nil: it adds none.
func (k *Keeper) injection(sb store.Sandbox) (*dnsfilter.Inject, error) {
	if !inject.Has(sb.Spec) {
		return nil, nil
	}
	a, err := k.o.Authority(sb.ID)
	if err != nil {
		return nil, err
	}
	in := &dnsfilter.Inject{Authority: string(a.Encode())}
	for _, s := range sb.Spec.GetSecrets() {
		for _, r := range s.GetInject() {
			in.Headers = append(in.Headers, dnsfilter.Injected{
				Secret: s.GetName(), Host: r.GetHost(), Header: r.GetHeader(), Value: k.o.InjectedSecret(sb.ID, s.GetName(), s.GetFile()),
			})
		}
	}
	return in, nil
}

// namesPatience bounds the wait for a filter that is being started. Without the filter no name resolves.
const namesPatience = 3 * time.Second

// answer has the DNS of a sandbox answered by its policy, if that names domains. The rules must be set.
func (k *Keeper) answer(sb store.Sandbox, r netrules.Rules) error {
	p, filtered, err := k.names(sb, r.Bridge)
	switch {
	case err != nil, k.o.Names == nil: // then rules of a policy that names domains could not be made
		return err
	case !filtered:
		return k.o.Names.Remove(r.Bridge)
	}
	if err := k.o.Names.Write(p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), namesPatience)
	defer cancel()
	if err := k.o.Names.Await(ctx, p); err != nil {
		k.o.Logger.Warn("no name resolves in a sandbox until the filter of DNS runs", "sandbox_id", sb.ID, "err", err)
	}
	return nil
}

// Release removes the rules of a network that has been removed. What it cannot remove now, Sweep does.
func (k *Keeper) Release(networkID string) {
	if k.Problem() != "" || k.o.Firewall == nil {
		return
	}
	err := k.set(func() error { return k.o.Firewall.Remove(naming.Bridge(networkID)) })
	if k.o.Names != nil {
		err = errors.Join(err, k.o.Names.Remove(naming.Bridge(networkID)))
	}
	if err != nil {
		k.o.Logger.Warn("rules of a removed network are left for the next resync", "network", networkID, "err", err)
	}
}

// Sweep removes rules that belong to nothing: their bridge does not exist, and no record of a live sandbox names its network.
func (k *Keeper) Sweep(context.Context) error {
	if k.Problem() != "" || k.o.Firewall == nil {
		return nil
	}
	recorded := sync.OnceValue(func() map[string]bool { // it reads every record, and there is rarely a question
		bridges := map[string]bool{}
		for id := range k.o.Recorded() {
			bridges[naming.Bridge(id)] = true
		}
		return bridges
	})
	kept := func(bridge string) bool { return recorded()[bridge] }
	removed, err := k.o.Firewall.Sweep(kept)
	if len(removed) > 0 {
		k.o.Logger.Info("packet filter rules of networks that are gone are removed", "bridges", removed)
	}
	if k.o.Names == nil || err != nil {
		return err
	}
	answered, err := k.o.Names.Bridges()
	for _, bridge := range answered {
		if exists, existsErr := k.o.Firewall.Exists(bridge); existsErr != nil || exists || kept(bridge) {
			err = errors.Join(err, existsErr)
			continue
		}
		err = errors.Join(err, k.o.Names.Remove(bridge))
	}
	return err
}

// repair sets rules that records demand and the kernel does not have, without the engine, which may be away for long while containers run. Only
// packet filter rules: without its filter no name resolves, so a pass may start that. A pass of each sandbox has to follow if some is true: its policy may
// have changed meanwhile. If failed is true, some are missing still.
func (k *Keeper) repair() (some, failed bool) {
	if k.Problem() != "" {
		return false, false
	}
	var problems []error
	for _, sb := range k.o.Live() {
		set, err := k.repairOne(sb.ID)
		some, problems = some || set, append(problems, err)
	}
	err := errors.Join(problems...)
	if err != nil {
		k.o.Logger.Warn("packet filter rules are missing and cannot be set yet", "err", err)
	}
	return some, err != nil
}

func (k *Keeper) repairOne(sandboxID string) (set bool, err error) {
	k.setting <- struct{}{}
	defer func() { <-k.setting }()
	sb, err := k.o.Sandbox(context.Background(), sandboxID)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	networkID := sb.Desired.GetObjects().GetNetworkId()
	if networkID == "" {
		return false, nil
	}
	r, err := k.rules(sb, networkID)
	if err != nil || r.Empty() {
		return false, nil // a pass says why there are none
	}
	if held, err := k.o.Firewall.Holds(r); err != nil || held {
		return false, err
	}
	if exists, err := k.o.Firewall.Exists(r.Bridge); err != nil || !exists {
		return false, err
	}
	if err := k.o.Firewall.Enforce(r); err != nil {
		return false, err
	}
	k.o.Logger.Warn("packet filter rules were missing and are set again", "sandbox_id", sb.ID, "bridge", r.Bridge)
	return true, nil
}

// The delays before a watch that has failed is started again, and a repair.
const (
	watchRetry  = 10 * time.Second
	repairRetry = 5 * time.Second
)

// Run repairs what others have changed of the rules, at its start and after each change, until ctx ends. A change is also reported, for a pass of each
// sandbox. While Run cannot watch the rules, resyncs find changes.
func (k *Keeper) Run(ctx context.Context) {
	if k.o.Firewall == nil {
		return
	}
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default: // a repair is due already
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for told := false; ; {
			some, failed := k.repair()
			if some || told {
				k.o.Changed()
			}
			var again <-chan time.Time
			if failed {
				again = time.After(repairRetry)
			}
			select {
			case <-ctx.Done():
				return
			case <-changes:
				told = true
			case <-again:
				told = false
			}
		}
	})
	defer wg.Wait()
	for {
		if err := k.o.Firewall.Watch(ctx, changed); err != nil && k.Problem() == "" {
			k.o.Logger.Warn("changes of packet filter rules by others are found by resyncs only", "err", err)
		}
		if wait.For(ctx, watchRetry) != nil {
			return
		}
	}
}
