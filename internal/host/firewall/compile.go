package firewall

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/netrules"
)

// rule is one rule of a chain, in the form in which the kernel also shows it.
type rule []expr.Any

// content is what a set holds.
type content interface {
	set(name string) *nftables.Set
	elements() []nftables.SetElement
}

// addresses are the ranges of one family in a set.
type addresses []netrules.Range

// firstBytes are the first bytes of all addresses of some ranges, sorted.
type firstBytes []byte

// program is the form that the table gives to the rules of a bridge.
type program struct {
	bridge string
	lists  map[string][]rule  // by the name of the hook's list
	sets   map[string]content // by nameOf
	// resolved are the names of the sets that Admit fills.
	resolved map[string]bool
}

// baseChains are the base chains that the program needs.
func (p program) baseChains() []baseChain {
	if len(p.lists[redirectList]) > 0 {
		return baseChains
	}
	return filterChains
}

func compile(r netrules.Rules) program {
	p := program{bridge: r.Bridge, lists: map[string][]rule{}, sets: map[string]content{}, resolved: map[string]bool{}}
	for _, h := range hooks {
		for _, one := range h.rules(r) {
			p.lists[h.list] = append(p.lists[h.list], p.rules(h, one)...)
		}
	}
	return p
}

// rules returns a rule, twice if it has addresses of both families.
func (p program) rules(h hook, r netrules.Rule) (list []rule) {
	if r.Redirect > 0 && r.Record { // a rule ends with its verdict, so a redirect can't record
		redirect, record := r, r
		redirect.Record, record.Redirect = false, 0
		recorded := p.rules(h, record)
		for i := range recorded {
			verdict := len(recorded[i]) - 1
			recorded[i][verdict] = &expr.Verdict{Kind: expr.VerdictJump, Chain: reached}
		}
		return append(recorded, p.rules(h, redirect)...)
	}
	if r.To == nil && r.From == nil && r.Names == "" {
		return []rule{p.rule(h, r, nil)}
	}
	for _, v4 := range []bool{true, false} {
		to, from := family(r.To, v4), family(r.From, v4)
		if (r.To != nil && len(to) == 0) || (r.From != nil && len(from) == 0) {
			continue
		}
		var match rule
		if v4 {
			match = append(match, &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal(unix.NFPROTO_IPV4))
			match = append(match, p.in(from, 12, 4)...)
			match = append(match, p.in(to, 16, 4)...)
			match = append(match, p.inResolved(r.Names, 16, 4)...)
		} else {
			match = append(match, &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, equal(unix.NFPROTO_IPV6))
			match = append(match, p.in(from, 8, 16)...)
			match = append(match, p.in(to, 24, 16)...)
			match = append(match, p.inResolved(r.Names, 24, 16)...)
		}
		list = append(list, p.rule(h, r, match))
	}
	return list
}

func family(ranges []netrules.Range, v4 bool) (some addresses) {
	for _, r := range ranges {
		if r.First.Is4() == v4 {
			some = append(some, r)
		}
	}
	return some
}

// in compares an address of the network header with ranges. Most packets are of no range, and a lookup of ranges takes the kernel as long as ten other
// expressions: so one range is compared, and of several the first byte of the address is looked up first, in a bitmap.
func (p program) in(ranges addresses, offset, length uint32) (list rule) {
	if len(ranges) == 0 {
		return nil
	}
	if len(ranges) == 1 {
		return ranges.only(offset, length)
	}
	if first := ranges.firstBytes(); len(first) <= maxFirstBytes {
		list = p.inSet(first, offset, 1)
	}
	return append(list, p.inSet(ranges, offset, length)...)
}

// maxFirstBytes bounds the bitmap: one that has most bytes spares most packets nothing.
const maxFirstBytes = 128

func (p program) inSet(c content, offset, length uint32) rule {
	name := nameOf(p.bridge, c.elements())
	p.sets[name] = c
	return lookup(name, offset, length)
}

// only compares an address with a single range.
func (a addresses) only(offset, length uint32) rule {
	first, last := a[0].First.AsSlice(), a[0].Last.AsSlice()
	list := rule{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}}
	if bytes.Equal(first, last) {
		return append(list, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: first})
	}
	if mask, ok := prefixMask(first, last); ok {
		return append(list, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: mask, Xor: make([]byte, length)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: first})
	}
	return append(list, &expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: first}, &expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: last})
}

// prefixMask returns the mask of the block whose first and last addresses these are. ok is false if they are those of no block.
func prefixMask(first, last []byte) (mask []byte, ok bool) {
	mask = make([]byte, len(first))
	ended := false // the bits behind the prefix have begun
	for i := range first {
		for bit := byte(0x80); bit > 0; bit >>= 1 {
			f, l := first[i]&bit != 0, last[i]&bit != 0
			switch {
			case f == l && !ended:
				mask[i] |= bit
			case f || !l:
				return nil, false
			default:
				ended = true
			}
		}
	}
	return mask, true
}

// inResolved compares an address of the network header with those of names.
func (p program) inResolved(id string, offset, length uint32) rule {
	if id == "" {
		return nil
	}
	name := resolvedName(p.bridge, id, length == 4)
	p.resolved[name] = true
	return lookup(name, offset, length)
}

func lookup(set string, offset, length uint32) rule {
	return rule{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length},
		&expr.Lookup{SourceRegister: 1, SetName: set},
	}
}

// The bits of the connection tracker's states, and the types of ICMPv6 that ask for neighbours and answer.
const (
	establishedOrRelated   = 1<<1 | 1<<2
	neighbourSolicitation  = 135
	neighbourAdvertisement = 136
)

// Bits of the kernel: the destination of a connection was translated; a translation has a port.
const (
	destinationNAT = 1 << 5
	withPort       = 1 << 1
)

// hasBit matches packets of which a word of the connection tracker has one of these bits.
func hasBit(key expr.CtKey, bits uint32) rule {
	return rule{
		&expr.Ct{Key: key, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

func (p program) rule(h hook, r netrules.Rule, match rule) rule {
	var list rule
	if r.OwnBridge {
		list = append(list, &expr.Meta{Key: h.other, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(p.bridge)})
	}
	if r.Established {
		list = append(list, hasBit(expr.CtKeySTATE, establishedOrRelated)...)
	}
	if r.Redirected {
		list = append(list, hasBit(expr.CtKeySTATUS, destinationNAT)...)
	}
	if r.Neighbour {
		list = append(list, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal(unix.IPPROTO_ICMPV6),
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
			&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: []byte{neighbourSolicitation}},
			&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{neighbourAdvertisement}})
	}
	if r.Ports.First > 0 { // the condition that most packets fail is the first, and the one that looks up the last
		list = append(list, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2})
		if r.Ports.First == r.Ports.Last {
			list = append(list, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: byteOrder.PutUint16(r.Ports.First)})
		} else {
			list = append(list, &expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: byteOrder.PutUint16(r.Ports.First)},
				&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: byteOrder.PutUint16(r.Ports.Last)})
		}
	}
	if r.Protocol != "" {
		list = append(list, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equal(protocols[r.Protocol]))
	}
	list = append(list, match...)
	if r.Redirect > 0 {
		return append(list, &expr.Immediate{Register: 1, Data: byteOrder.PutUint16(r.Redirect)},
			&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: withPort})
	}
	switch {
	case r.Record && r.Drop:
		return append(list, &expr.Verdict{Kind: expr.VerdictGoto, Chain: denied})
	case r.Record:
		return append(list, &expr.Verdict{Kind: expr.VerdictGoto, Chain: reached})
	case r.Drop:
		return append(list, &expr.Verdict{Kind: expr.VerdictDrop})
	}
	return append(list, &expr.Verdict{Kind: expr.VerdictReturn}) // not accept, which would skip the list of the packet's other bridge
}

var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

func equal(b byte) *expr.Cmp { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{b}} }

// nameOf returns the name of a set, a function of its elements in any order: a set with that name and other elements was changed by others.
func nameOf(bridge string, elements []nftables.SetElement) string {
	keys := make([]string, len(elements))
	for i, e := range elements {
		keys[i] = fmt.Sprintf("%x %v\n", e.Key, e.IntervalEnd)
	}
	slices.Sort(keys)
	sum := sha256.Sum256([]byte(strings.Join(keys, "")))
	return bridge + "." + hex.EncodeToString(sum[:8])
}

// renamed gives the sets in a rule other names; a set that names lacks keeps its own.
func (r rule) renamed(names map[string]string) rule {
	list := slices.Clone(r)
	for i, e := range list {
		if l, ok := e.(*expr.Lookup); ok {
			same := *l
			same.SetID, same.SetName = 0, cmp.Or(names[l.SetName], l.SetName) // the ID is of one change only
			list[i] = &same
		}
	}
	return list
}

func (a addresses) set(name string) *nftables.Set {
	key := nftables.TypeIP6Addr
	if a[0].First.Is4() {
		key = nftables.TypeIPAddr
	}
	return &nftables.Set{Table: table, Name: name, Interval: true, KeyType: key}
}

func (a addresses) firstBytes() (list firstBytes) {
	for _, r := range a {
		for b := int(r.First.AsSlice()[0]); b <= int(r.Last.AsSlice()[0]); b++ {
			if n := len(list); n == 0 || int(list[n-1]) < b { // ranges are sorted
				list = append(list, byte(b))
			}
		}
	}
	return list
}

// set has a type of one byte: the kernel makes it a bitmap.
func (b firstBytes) set(name string) *nftables.Set {
	return &nftables.Set{Table: table, Name: name, KeyType: nftables.TypeInetProto}
}

func (b firstBytes) elements() (list []nftables.SetElement) {
	for _, one := range b {
		list = append(list, nftables.SetElement{Key: []byte{one}})
	}
	return list
}

// elements returns the first address of each range and, marked as an end, the one behind its last. A range that ends with the last address
// of all has no end.
func (a addresses) elements() (list []nftables.SetElement) {
	for _, r := range a {
		list = append(list, nftables.SetElement{Key: r.First.AsSlice()})
		if next := r.Last.Next(); next != (netip.Addr{}) {
			list = append(list, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	return list
}
