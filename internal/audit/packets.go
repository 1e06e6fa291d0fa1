package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// packets is what the kernel's packet filter has of sandboxes, by the names of the bridges of their networks.
type packets struct {
	// unchecked is why it could not be read; empty: it was.
	unchecked string
	// interfaces are those of the auditor's network namespace. A bridge that is none of them is on another host, or gone.
	interfaces map[string]bool
	// called are the lists in which the base chains look packets up, and do nothing else.
	called map[string]bool
	// jumps are the chains to which a list leads the packets of a bridge.
	jumps map[string]map[string]string
	// chains are the other chains of the table.
	chains map[string]chain
}

// chain is a chain of the table.
type chain struct {
	rules   int
	accepts bool // a rule ends all checks of a packet
	// last is where the last rule sends every packet that gets there: "drop", the name of a chain, or empty: it has a condition, or returns.
	last string
}

const dropped = "drop"

// closed reports whether no packet gets past a chain's last rule.
func (p *packets) closed(name string) bool {
	for range p.chains { // a circle is longer
		c, ok := p.chains[name]
		if !ok || c.last == "" || c.last == dropped {
			return c.last == dropped
		}
		name = c.last
	}
	return false
}

// lists are the lists that lead packets of a bridge anywhere, and those for which it has a chain.
func (p *packets) lists(bridge string) (lists []string) {
	for _, list := range []string{"from", "to", "input", "output", "redirect"} {
		_, chained := p.chains[list+"-"+bridge]
		if p.jumps[list][bridge] != "" || chained {
			lists = append(lists, list)
		}
	}
	return lists
}

// bridges are all bridges that the table has anything of.
func (p *packets) bridges() map[string]bool {
	all := map[string]bool{}
	for list := range hookOf {
		for bridge := range p.jumps[list] {
			all[bridge] = true
		}
		for name := range p.chains {
			if bridge, ok := strings.CutPrefix(name, list+"-"); ok {
				all[bridge] = true
			}
		}
	}
	return all
}

// hookOf are the hooks of the lists, by the numbers of the kernel.
var hookOf = map[string]nftables.ChainHook{
	"redirect": *nftables.ChainHookPrerouting, "input": *nftables.ChainHookInput, "output": *nftables.ChainHookOutput,
	"from": *nftables.ChainHookForward, "to": *nftables.ChainHookForward,
}

// readPackets reads the table "inet agbox" of the caller's network namespace. It changes nothing.
func readPackets() *packets {
	const tries = 3 // a change meanwhile ends a list
	p := &packets{}
	for range tries {
		var err error
		if p, err = tryPackets(); err == nil {
			return p
		}
		p = &packets{unchecked: err.Error()}
		if errors.Is(err, unix.EPERM) {
			return &packets{unchecked: "it needs CAP_NET_ADMIN"}
		}
	}
	return p
}

func tryPackets() (*packets, error) {
	p := &packets{interfaces: map[string]bool{}, called: map[string]bool{}, jumps: map[string]map[string]string{}, chains: map[string]chain{}}
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		p.interfaces[one.Name] = true
	}
	c, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }()
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	table := &nftables.Table{Name: "agbox", Family: nftables.TableFamilyINet}
	exists := false
	for _, one := range chains {
		if one.Table.Name != table.Name {
			continue
		}
		exists = true
		rules, err := c.GetRules(table, one)
		if err != nil && !errors.Is(err, unix.ENOENT) { // it was removed meanwhile
			return nil, fmt.Errorf("read the rules of %s: %w", one.Name, err)
		}
		if one.Hooknum == nil {
			p.chains[one.Name] = chainOf(rules)
			continue
		}
		for _, list := range listsOf(rules) {
			p.called[list] = one.Type == nftables.ChainTypeFilter && hookOf[list] == *one.Hooknum
		}
	}
	if !exists {
		return p, nil
	}
	for list := range hookOf {
		elements, err := c.GetSetElements(&nftables.Set{Table: table, Name: list})
		if err != nil {
			if errors.Is(err, unix.ENOENT) || list == "redirect" { // it is there once a policy needs it
				continue
			}
			return nil, fmt.Errorf("read the map %s: %w", list, err)
		}
		p.jumps[list] = map[string]string{}
		for _, e := range elements {
			p.jumps[list][strings.TrimRight(string(e.Key), "\x00")] = target(e.Val)
		}
	}
	return p, nil
}

func chainOf(rules []*nftables.Rule) (c chain) {
	c.rules = len(rules)
	for i, r := range rules {
		for _, e := range r.Exprs {
			v, ok := e.(*expr.Verdict)
			if !ok {
				continue
			}
			c.accepts = c.accepts || v.Kind == expr.VerdictAccept
			if i < len(rules)-1 || len(r.Exprs) > 1 {
				continue
			}
			switch v.Kind {
			case expr.VerdictDrop:
				c.last = dropped
			case expr.VerdictGoto, expr.VerdictJump:
				c.last = v.Chain
			default:
			}
		}
	}
	return c
}

// listsOf returns the lists that the rules of a base chain look up; none if it has another rule.
func listsOf(rules []*nftables.Rule) (lists []string) {
	for _, r := range rules {
		if len(r.Exprs) != 2 {
			return nil
		}
		_, meta := r.Exprs[0].(*expr.Meta)
		l, ok := r.Exprs[1].(*expr.Lookup)
		if !ok || !meta || !l.IsDestRegSet {
			return nil
		}
		lists = append(lists, l.SetName)
	}
	return lists
}

// target decodes the verdict of a map's element: attributes of netlink, each with its length, its type and its value, padded to 4 bytes. It
// returns the chain to which it leads, or "?".
func target(verdict []byte) string {
	const header, code, name = 4, 1, 2
	kind, to := int32(0), ""
	for b := verdict; len(b) >= header; {
		n := int(binary.NativeEndian.Uint16(b))
		if n < header || n > len(b) {
			return "?"
		}
		value := b[header:n]
		switch binary.NativeEndian.Uint16(b[2:]) & 0x3fff {
		case code:
			if len(value) != 4 {
				return "?"
			}
			kind = int32(binary.BigEndian.Uint32(value))
		case name:
			to = strings.TrimRight(string(value), "\x00")
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	if expr.VerdictKind(kind) != expr.VerdictJump || to == "" {
		return "?"
	}
	return to
}
