package firewall

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// state is what the table has of one bridge, and what all bridges share.
type state struct {
	bridge string
	// exists: the table does.
	exists bool
	// based are the base chains that are where they should be, with the policy that they should have.
	based map[string]bool
	// chains are the base chains and the bridge's chains, with their rules.
	chains map[string][]*nftables.Rule
	// jumps are the chains to which the maps lead packets of the bridge, by map; "?" is another verdict than a jump.
	jumps map[string]string
	// sets are sets of the bridge.
	sets map[string][]nftables.SetElement
	// resolved are the names of sets of the bridge that Admit fills. Their elements come and go.
	resolved map[string]bool
}

// has reports whether the bridge has a set of that name.
func (s state) has(set string) bool {
	_, ok := s.sets[set]
	return ok
}

// fresh reports that the bridge has no rules yet, and the rest is as it should be.
func (s state) fresh(want program) bool {
	for _, h := range hooks {
		if _, exists := s.chains[h.chainOf(s.bridge)]; exists || s.jumps[h.list] != "" {
			return false
		}
	}
	return s.looksUp(want.baseChains())
}

// records reports whether a chain that records is there and has its rules.
func (s state) records(c recordChain) bool {
	have, exists := s.chains[c.name]
	return exists && s.equalRules(have, c.rules)
}

// looksUp reports whether base chains are there and have their rules, as do the chains that record.
func (s state) looksUp(chains []baseChain) bool {
	for _, b := range chains {
		if !s.based[b.name] || !s.equalRules(s.chains[b.name], lookups(b.name)) {
			return false
		}
	}
	return !slices.ContainsFunc(recordChains(), func(c recordChain) bool { return !s.records(c) })
}

// exists reports whether the table exists.
func (c conn) exists() (bool, error) {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list the tables of nftables: %w", err)
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == TableName }), nil
}

// chains returns the chains of the table.
func (c conn) chains() (map[string]*nftables.Chain, error) {
	all, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	ours := map[string]*nftables.Chain{}
	for _, one := range all {
		if one.Table.Name == TableName {
			ours[one.Name] = one
		}
	}
	return ours, nil
}

// observe reads the state. Unless all is set, it reads of the sets only those that rules name: the kernel takes long to list the sets of many
// bridges.
func (c conn) observe(bridge string, all bool) (state, error) {
	s := state{
		bridge: bridge, chains: map[string][]*nftables.Rule{}, jumps: map[string]string{}, sets: map[string][]nftables.SetElement{}, resolved: map[string]bool{},
	}
	var err error
	if s.exists, err = c.exists(); err != nil || !s.exists {
		return s, err
	}
	chains, err := c.chains()
	if err != nil {
		return s, err
	}
	s.based = isBased(chains)
	for _, name := range chainNames(bridge) {
		if chains[name] == nil {
			continue
		}
		if s.chains[name], err = c.GetRules(table, chains[name]); err != nil {
			return s, fmt.Errorf("read the rules of %s: %w", name, err)
		}
	}
	names := s.named()
	if all {
		if names, err = c.setsOf(bridge); err != nil {
			return s, err
		}
	}
	for _, name := range names {
		if isResolved(name) {
			s.resolved[name] = true
			continue
		}
		elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: name})
		if err != nil {
			return s, fmt.Errorf("read the set %s: %w", name, err)
		}
		s.observeSet(name, elements)
	}
	return s, nil
}

func chainNames(bridge string) (names []string) {
	for _, c := range recordChains() {
		names = append(names, c.name)
	}
	for _, b := range baseChains {
		names = append(names, b.name)
	}
	for _, h := range hooks {
		names = append(names, h.chainOf(bridge))
	}
	return names
}

func isBased(chains map[string]*nftables.Chain) map[string]bool {
	based := map[string]bool{}
	for _, b := range baseChains {
		c := chains[b.name]
		based[b.name] = c != nil && c.Hooknum != nil && *c.Hooknum == *b.hook && c.Priority != nil && *c.Priority == b.priority && c.Type == b.kind &&
			c.Policy != nil && *c.Policy == nftables.ChainPolicyAccept
	}
	return based
}

func isMap(set string) bool {
	return slices.ContainsFunc(hooks, func(h hook) bool { return h.list == set })
}

// named returns the names of the maps and sets that rules name: those exist. Sets that packets fill are left out.
func (s state) named() (names []string) {
	for _, rules := range s.chains {
		for _, r := range rules {
			for _, e := range r.Exprs {
				if l, ok := e.(*expr.Lookup); ok && !isRecord(l.SetName) && !slices.Contains(names, l.SetName) {
					names = append(names, l.SetName)
				}
			}
		}
	}
	return names
}

// setsOf returns the names of the maps and of all sets of a bridge.
func (c conn) setsOf(bridge string) (names []string, err error) {
	sets, err := c.GetSets(table)
	if err != nil {
		return nil, fmt.Errorf("list the sets of nftables: %w", err)
	}
	for _, set := range sets {
		if isMap(set.Name) || strings.HasPrefix(set.Name, bridge+".") {
			names = append(names, set.Name)
		}
	}
	return names, nil
}

func (s *state) observeSet(name string, elements []nftables.SetElement) {
	if !isMap(name) {
		s.sets[name] = elements
		return
	}
	for _, e := range elements {
		if bytes.Equal(e.Key, ifname(s.bridge)) {
			s.jumps[name] = jumpOf(e.Val)
		}
	}
}

// jumpOf decodes the verdict of an element, which the library leaves as attributes.
func jumpOf(verdict []byte) string {
	ad, err := netlink.NewAttributeDecoder(verdict)
	if err != nil {
		return "?"
	}
	ad.ByteOrder = binary.BigEndian
	var code int32
	var chain string
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_VERDICT_CODE:
			code = int32(ad.Uint32())
		case unix.NFTA_VERDICT_CHAIN:
			chain = ad.String()
		}
	}
	if ad.Err() != nil || code != int32(expr.VerdictJump) || chain == "" {
		return "?"
	}
	return chain
}

// holds reports whether a program is in force.
func (s state) holds(want program) bool {
	needed := false
	for _, h := range hooks {
		name := h.chainOf(want.bridge)
		have, exists := s.chains[name]
		rules := want.lists[h.list]
		jump := ""
		if len(rules) > 0 {
			jump, needed = name, true
		}
		if s.jumps[h.list] != jump || exists != (len(rules) > 0) || !s.equalRules(have, rules) {
			return false
		}
	}
	if len(s.sets) != len(want.sets) {
		return false
	}
	for _, elements := range s.sets {
		if want.sets[nameOf(want.bridge, elements)] == nil {
			return false
		}
	}
	return !needed || s.looksUp(want.baseChains())
}

// equalRules compares the rules of a chain with those that it should have; sets are the same if their elements are.
func (s state) equalRules(have []*nftables.Rule, want []rule) bool {
	names := map[string]string{}
	for name, elements := range s.sets {
		names[name] = nameOf(s.bridge, elements)
	}
	return slices.EqualFunc(have, want, func(h *nftables.Rule, w rule) bool {
		return reflect.DeepEqual(rule(h.Exprs).renamed(names), w)
	})
}
