// Package firewall owns the nftables table "inet agbox", which holds the rules of sandboxes, keyed by the bridges of their networks. It reads
// and changes nothing else. The table only drops: what passes it still has to pass the rules of others. The kernel keeps it while no process
// of ours runs; a reboot of the host removes it.
//
// For each hook there is a chain of all sandboxes, which looks the bridge of a packet up in a map and jumps to the chain of that bridge:
//
//	table inet agbox {
//		map from { type ifname : verdict; elements = { "br-0123456789ab" : jump from-br-0123456789ab } }
//		set br-0123456789ab.9f86d081884c7d65 { type ipv4_addr; flags interval; elements = { ... } }
//		chain forward { type filter hook forward priority -5; iifname vmap @from; oifname vmap @to }
//		chain input   { type filter hook input priority -5; iifname vmap @input }
//		chain output  { type filter hook output priority -5; oifname vmap @output }
//		chain from-br-0123456789ab { oifname "br-0123456789ab" return; ct state established,related return; ...; goto denied }
//	}
//
// Rules that decide what a sandbox reaches lead to two chains of all sandboxes, which record the destination; see Record. Packets of connections
// that exist meet no such rule.
//
//	set denied { type ifname . ipv6_addr . inet_proto . inet_service . nf_proto; size 32768; flags dynamic,timeout; timeout 1h }
//	chain denied {
//		ct direction reply drop
//		... iifname . ip daddr . meta l4proto . th dport . meta nfproto != @denied goto denied-new
//		... update @denied { iifname . ip daddr . meta l4proto . th dport . meta nfproto counter } drop
//		drop
//	}
//	chain denied-new {
//		meta pkttype != host drop
//		update @denied-quota { iifname limit rate over 512/hour burst 512 packets } drop
//		... update @denied { ... } drop
//		drop
//	}
//	chain reached and reached-new { the same without the direction, with return in the place of drop }
//
// Where a policy names domains, there are also sets of addresses with timeouts, which Admit fills, and a chain that redirects DNS:
//
//	set br-0123456789ab.names4.60303ae22b998861 { type ipv4_addr; flags timeout; elements = { 140.82.121.6 timeout 1h } }
//	chain prerouting { type nat hook prerouting priority -105; iifname vmap @redirect }
//	chain redirect-br-0123456789ab { tcp dport 53 redirect to :10053; udp dport 53 redirect to :10053 }
//
// Bridges are matched by name, so the rules can be there before the bridge, and the engine may make it again.
package firewall

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/netrules"
)

// TableName is the name of the table, in the family inet.
const TableName = "agbox"

// The priorities put the table before the filters of others, so that these do not see what it drops, and before their destination NAT, so
// that a port 53 that the engine publishes gets no question that is to be redirected.
const (
	priority    = -5
	priorityNAT = -105
)

// maxBridge is the length of the longest name of an interface: IFNAMSIZ without the final zero.
const maxBridge = 15

// Firewall changes the table in one network namespace. Its methods may be called concurrently, also by several processes: a change that
// meets one of another process fails as a whole, and succeeds when it is repeated.
type Firewall struct {
	netns int
	seen  memory

	mu sync.Mutex
	// kept is the connection to the kernel. It stays open, because the kernel waits at its end for what the removal of rules left to do.
	kept *nftables.Conn
}

// New returns the firewall of the network namespace of which netns is an open file, or for 0 of the calling process.
func New(netns int) *Firewall { return &Firewall{netns: netns} }

// Check creates the table if it is missing, and repairs what all bridges share. The error says why rules cannot be enforced: no privilege, or
// a kernel without nftables.
func (f *Firewall) Check() error {
	return f.with(func(c conn) error {
		s, err := c.observe("", false)
		if err != nil {
			return err
		}
		b := batch{conn: c, state: s}
		b.base(filterChains)
		return b.send("create the table")
	})
}

// CheckRedirect enforces and removes rules that redirect. The error says why such rules cannot be enforced, though others can: a kernel before
// 5.2, or without a module.
func (f *Firewall) CheckRedirect() error {
	const port = 9 // of no consequence: no interface has the name
	probe := netrules.Rules{Bridge: "agbox.probe", Redirect: []netrules.Rule{{Protocol: "udp", Redirect: port}}}
	return errors.Join(f.Enforce(probe), f.Remove(probe.Bridge))
}

// Enforce replaces the rules of one bridge, in one step: each packet meets the former rules or the new ones. Empty rules remove all that the
// table has of the bridge. It also repairs what all bridges share.
//
// The kernel replaces rules in one step, but not the elements of sets: for a moment new rules may find a new set empty, and former rules a
// set empty that is being removed. So new sets are complete before a rule names them, and former ones go after no packet can be at a rule
// that names them. What a kill leaves between these three changes is a set too many, which the next Enforce removes.
func (f *Firewall) Enforce(r netrules.Rules) error {
	if r.Bridge == "" || len(r.Bridge) > maxBridge {
		return fmt.Errorf("%q is not the name of a bridge", r.Bridge)
	}
	return f.with(func(c conn) error {
		f.seen.forget(r.Bridge, !r.Empty())
		since := f.seen.epoch()
		if err := c.enforce(r); err != nil {
			return err
		}
		f.seen.remember(r, since)
		return nil
	})
}

func (c conn) enforce(r netrules.Rules) error {
	want := compile(r)
	s, err := c.observe(r.Bridge, false)
	if err == nil && s.exists && (r.Empty() || !s.fresh(want)) {
		s, err = c.observe(r.Bridge, true)
	}
	if err != nil {
		return err
	}
	if !s.exists && r.Empty() {
		return nil
	}
	b := batch{conn: c, state: s}
	if !r.Empty() {
		b.base(want.baseChains())
	}
	if err := b.addSets(want); err != nil {
		return err
	}
	if !s.fresh(want) { // otherwise everything passes until then anyhow
		if err := fault.Around(fault.Rules, "add_sets", func() error { return b.send("add the sets of " + r.Bridge) }); err != nil {
			return err
		}
	}
	if err := b.replace(want); err != nil {
		return err
	}
	if err := fault.Around(fault.Rules, "replace", func() error { return b.send("replace the rules of " + r.Bridge) }); err != nil {
		return err
	}
	if !b.removeSets(want) {
		return nil
	}
	awaitPackets()
	return fault.Around(fault.Rules, "remove_sets", func() error { return b.send("remove former sets of " + r.Bridge) })
}

// awaitPackets returns when every packet that was being filtered is through. A kernel that cannot wait for that lets a packet meet a former
// rule whose set is gone.
func awaitPackets() { _, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0) }

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL, which waits for a grace period of RCU.
const membarrierGlobal = 1

// Remove removes all that the table has of a bridge; none is a success.
func (f *Firewall) Remove(bridge string) error { return f.Enforce(netrules.Rules{Bridge: bridge}) }

// Holds reports whether the table has exactly these rules for their bridge, and all that leads to them. Sets that no rule names do not count.
func (f *Firewall) Holds(r netrules.Rules) (holds bool, err error) {
	if f.seen.has(r) {
		return true, nil
	}
	err = f.with(func(c conn) error {
		f.seen.forget(r.Bridge, !r.Empty())
		since := f.seen.epoch()
		s, err := c.observe(r.Bridge, false)
		if err != nil {
			return err
		}
		if holds = s.holds(compile(r)); holds {
			f.seen.remember(r, since)
		}
		return nil
	})
	return holds, err
}

// Bridges returns the names of the bridges of which the table has rules, sorted.
func (f *Firewall) Bridges() (bridges []string, err error) {
	var chains map[string]*nftables.Chain
	err = f.with(func(c conn) (err error) {
		chains, err = c.chains()
		return err
	})
	for name := range chains {
		for _, h := range hooks {
			if bridge, ok := strings.CutPrefix(name, h.list+"-"); ok {
				bridges = append(bridges, bridge)
			}
		}
	}
	slices.Sort(bridges)
	return slices.Compact(bridges), err
}

// Sweep removes the rules of each bridge for which kept is false and that is no interface: no packet can meet them. It returns those bridges.
func (f *Firewall) Sweep(kept func(bridge string) bool) (removed []string, err error) {
	bridges, err := f.Bridges()
	if err != nil || len(bridges) == 0 {
		return nil, err
	}
	interfaces, err := f.interfaces()
	if err != nil {
		return nil, err
	}
	for _, bridge := range bridges {
		if interfaces[bridge] || kept(bridge) {
			continue
		}
		if err := f.Remove(bridge); err != nil {
			return removed, err
		}
		removed = append(removed, bridge)
	}
	return removed, nil
}

// Exists reports whether an interface of this name exists.
func (f *Firewall) Exists(bridge string) (bool, error) {
	all, err := f.interfaces()
	return all[bridge], err
}

// interfaces returns the names of all interfaces of the network namespace.
func (f *Firewall) interfaces() (map[string]bool, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: f.netns})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	defer func() { _ = c.Close() }()
	answers, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfInfomsg),
	})
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[string]bool{}
	for _, m := range answers {
		if len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, fmt.Errorf("list interfaces: %w", err)
		}
		for ad.Next() {
			if ad.Type() == unix.IFLA_IFNAME {
				names[ad.String()] = true
			}
		}
	}
	return names, nil
}

// Drop removes the whole table.
func (f *Firewall) Drop() error {
	return f.with(func(c conn) error {
		f.seen.reset(f.seen.watched)
		exists, err := c.exists()
		if err != nil || !exists {
			return err
		}
		c.DelTable(table)
		return flush(c, "remove the table")
	})
}

var table = &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}

// hook is one list of rules: the map of that name, the base chain that looks packets up in it, and the interface that it looks up.
type hook struct {
	list  string
	chain string
	key   expr.MetaKey
	other expr.MetaKey // the other interface of forwarded packets
	rules func(netrules.Rules) []netrules.Rule
}

const redirectList = "redirect"

var hooks = []hook{
	{"from", "forward", expr.MetaKeyIIFNAME, expr.MetaKeyOIFNAME, func(r netrules.Rules) []netrules.Rule { return r.From }},
	{"to", "forward", expr.MetaKeyOIFNAME, expr.MetaKeyIIFNAME, func(r netrules.Rules) []netrules.Rule { return r.To }},
	{"input", "input", expr.MetaKeyIIFNAME, 0, func(r netrules.Rules) []netrules.Rule { return r.Input }},
	{"output", "output", expr.MetaKeyOIFNAME, 0, func(r netrules.Rules) []netrules.Rule { return r.Output }},
	{redirectList, natChain.name, expr.MetaKeyIIFNAME, 0, func(r netrules.Rules) []netrules.Rule { return r.Redirect }},
}

// baseChain is a chain that the kernel calls.
type baseChain struct {
	name     string
	hook     *nftables.ChainHook
	kind     nftables.ChainType
	priority nftables.ChainPriority
}

// filterChains are there for every bridge. natChain is there once a bridge needs it: kernels before 5.2 have none in this family.
var (
	filterChains = []baseChain{
		{"forward", nftables.ChainHookForward, nftables.ChainTypeFilter, priority},
		{"input", nftables.ChainHookInput, nftables.ChainTypeFilter, priority},
		{"output", nftables.ChainHookOutput, nftables.ChainTypeFilter, priority},
	}
	natChain   = baseChain{"prerouting", nftables.ChainHookPrerouting, nftables.ChainTypeNAT, priorityNAT}
	baseChains = append(slices.Clip(filterChains), natChain)
)

func (h hook) verdicts() *nftables.Set {
	return &nftables.Set{Table: table, Name: h.list, IsMap: true, KeyType: nftables.TypeIFName, DataType: nftables.TypeVerdict}
}

func (h hook) chainOf(bridge string) string { return h.list + "-" + bridge }

// lookups are the rules of a base chain.
func lookups(chain string) (rules []rule) {
	for _, h := range hooks {
		if h.chain == chain {
			rules = append(rules, rule{&expr.Meta{Key: h.key, Register: 1}, &expr.Lookup{SourceRegister: 1, IsDestRegSet: true, SetName: h.list}})
		}
	}
	return rules
}

func ifname(name string) []byte {
	b := make([]byte, maxBridge+1)
	copy(b, name)
	return b
}

// conn is a connection to the kernel with the buffers that a large policy needs.
type conn struct{ *nftables.Conn }

// bufferBytes holds a change of 10000 entries, all of them ranges of IPv6. It is allocated as it is used.
const bufferBytes = 8 << 20

// with calls do with a connection. After an error the next call gets a new one.
func (f *Firewall) with(do func(c conn) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		c, err := nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(f.netns), nftables.WithSockOptions(func(c *netlink.Conn) error {
			return errors.Join(c.SetWriteBuffer(bufferBytes), c.SetReadBuffer(bufferBytes))
		}))
		if err != nil {
			return fmt.Errorf("connect to nftables: %w", err)
		}
		f.kept = c
	}
	err := do(conn{f.kept})
	if err != nil {
		_ = f.kept.CloseLasting()
		f.kept = nil
	}
	return err
}

// Close closes the connection to the kernel. The rules stay.
func (f *Firewall) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil {
		return nil
	}
	c := f.kept
	f.kept = nil
	return c.CloseLasting()
}

// flush sends a change. It succeeds or fails as a whole.
func flush(c conn, what string) error {
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nftables: %s: %w", what, err)
	}
	return nil
}

// batch is a change under construction.
type batch struct {
	conn
	state state
	ids   uint32
	// names are the names of the bridge's sets, by what their content would be called.
	names map[string]string
}

func (b *batch) send(what string) error { return flush(b.conn, what) }

// base creates what all bridges share, and repairs it.
func (b *batch) base(chains []baseChain) {
	if b.state.exists && b.state.looksUp(chains) {
		return // an empty change would wake the watches of other daemons
	}
	b.AddTable(table)
	for _, h := range hooks {
		if slices.ContainsFunc(chains, func(c baseChain) bool { return c.name == h.chain }) {
			_ = b.addSet(h.verdicts(), nil) // without elements it does not fail
		}
	}
	for _, set := range recordSets() {
		_ = b.addSet(set, nil)
	}
	for _, r := range recordChains() {
		if c := b.AddChain(&nftables.Chain{Name: r.name, Table: table}); !b.state.records(r) {
			b.FlushChain(c)
			b.add(c, r.rules)
		}
	}
	accept := nftables.ChainPolicyAccept
	for _, base := range chains {
		c := b.AddChain(&nftables.Chain{
			Name: base.name, Table: table, Type: base.kind, Hooknum: base.hook, Priority: nftables.ChainPriorityRef(base.priority), Policy: &accept,
		})
		if want := lookups(base.name); !b.state.equalRules(b.state.chains[base.name], want) {
			b.FlushChain(c)
			b.add(c, want)
		}
	}
}

// add appends rules to a chain.
func (b *batch) add(c *nftables.Chain, rules []rule) {
	for _, r := range rules {
		b.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: r.renamed(b.names)})
	}
}

// elementsPerMessage keeps a message far below the 64 KiB that the length of a netlink attribute can say.
const elementsPerMessage = 500

// addSet adds a set. Its ID is not the library's, whose counter is not safe for concurrent use.
func (b *batch) addSet(s *nftables.Set, elements []nftables.SetElement) error {
	b.ids++
	s.ID = b.ids
	if err := b.AddSet(s, nil); err != nil {
		return err
	}
	for some := range slices.Chunk(elements, elementsPerMessage) {
		if err := b.SetAddElements(s, some); err != nil {
			return err
		}
	}
	return nil
}

// addSets adds the sets that are missing. A set that others have changed keeps its name until it goes, so its successor has another one.
func (b *batch) addSets(want program) error {
	b.names = map[string]string{}
	for name, have := range b.state.sets {
		if content := nameOf(want.bridge, have); want.sets[content] != nil {
			b.names[content] = name
		}
	}
	for content, set := range want.sets {
		if b.names[content] != "" {
			continue
		}
		name := content
		for n := 2; b.state.has(name); n++ {
			name = fmt.Sprintf("%s.%d", content, n)
		}
		b.names[content] = name
		if err := b.addSet(set.set(name), set.elements()); err != nil {
			return err
		}
	}
	for name := range want.resolved {
		if !b.state.resolved[name] {
			_ = b.addSet(resolvedSet(name), nil)
		}
	}
	return nil
}

// removeSets removes the sets that no rule names any more, and reports whether there are any.
func (b *batch) removeSets(want program) (some bool) {
	used := slices.Collect(maps.Values(b.names))
	remove := func(name string) {
		b.DelSet(&nftables.Set{Table: table, Name: name})
		some = true
	}
	for name := range b.state.sets {
		if !slices.Contains(used, name) {
			remove(name)
		}
	}
	for name := range b.state.resolved {
		if !want.resolved[name] {
			remove(name)
		}
	}
	return some
}

// replace makes the rules of a bridge as wanted. The order is what the kernel demands: what is referred to goes after what refers to it.
func (b *batch) replace(want program) error {
	s := b.state
	for _, h := range hooks {
		name := h.chainOf(want.bridge)
		if jump, ok := s.jumps[h.list]; ok && (jump != name || len(want.lists[h.list]) == 0) {
			if err := b.SetDeleteElements(h.verdicts(), []nftables.SetElement{{Key: ifname(want.bridge)}}); err != nil {
				return err
			}
		}
		if _, ok := s.chains[name]; ok {
			b.FlushChain(&nftables.Chain{Name: name, Table: table})
		}
	}
	for _, h := range hooks {
		chain := &nftables.Chain{Name: h.chainOf(want.bridge), Table: table}
		_, exists := s.chains[chain.Name]
		rules := want.lists[h.list]
		if len(rules) == 0 {
			if exists {
				b.DelChain(chain)
			}
			continue
		}
		b.AddChain(chain)
		b.add(chain, rules)
		if s.jumps[h.list] == chain.Name {
			continue
		}
		jump := nftables.SetElement{Key: ifname(want.bridge), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: chain.Name}}
		if err := b.SetAddElements(h.verdicts(), []nftables.SetElement{jump}); err != nil {
			return err
		}
	}
	return nil
}

var byteOrder = binaryutil.BigEndian
