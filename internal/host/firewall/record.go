package firewall

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	// RecordedFor is how long the kernel keeps a destination after the last packet to it.
	RecordedFor = time.Hour
	// MaxRecorded bounds the destinations of all sandboxes that the kernel keeps, those that were denied and those that were reached apart.
	MaxRecorded = 1 << 15
	// MaxNew bounds the new destinations of one sandbox that the kernel records, at once and then in each hour: a sandbox needs days to take
	// the room of all. Packets to others pass or are dropped alike.
	MaxNew = 512
	// maxBridges bounds the bridges for which MaxNew holds.
	maxBridges = 1 << 12
)

// The names of the chains to which rules that record send packets, and of the sets that these fill. The one chain ends with a drop; what passes
// the other returns to the base chain.
const (
	denied  = "denied"
	reached = "reached"
	// quota follows the name in that of the set of bridges, and unseen in that of the chain of destinations that the set lacks.
	quota  = "-quota"
	unseen = "-new"
)

// Record is a destination of packets of a sandbox.
type Record struct {
	Bridge string
	Addr   netip.Addr
	// Protocol is its number. Port is 0 for one without ports.
	Protocol uint8
	Port     uint16
	// Packets are the packets since the kernel keeps the destination: dropped ones, or those that belonged to no connection yet.
	Packets uint64
	// Last is the time of the last of them.
	Last time.Time
}

// isRecord reports whether a set is one that packets fill.
func isRecord(set string) bool {
	name := strings.TrimSuffix(set, quota)
	return name == denied || name == reached
}

// recordSets are the sets that packets fill. A change of a key needs another name: the kernel keeps a set that is there as it is.
func recordSets() (sets []*nftables.Set) {
	key, _ := nftables.ConcatSetType(nftables.TypeIFName, nftables.TypeIP6Addr, nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeNFProto)
	for _, list := range []string{denied, reached} {
		of := nftables.Set{Table: table, Dynamic: true, HasTimeout: true, Timeout: RecordedFor}
		destinations, bridges := of, of
		destinations.Name, destinations.KeyType, destinations.Concatenation, destinations.Size = list, key, true, MaxRecorded
		bridges.Name, bridges.KeyType, bridges.Size = list+quota, nftables.TypeIFName, maxBridges
		sets = append(sets, &destinations, &bridges)
	}
	return sets
}

// The registers and the offsets of a key: the bridge, an address of which IPv4 has the first 4 bytes, protocol, port, family.
const (
	bridgeRegister = unix.NFT_REG_1
	addrRegister   = unix.NFT_REG_2
	protoRegister  = unix.NFT_REG_3
	portRegister   = unix.NFT_REG32_00 + 9
	familyRegister = unix.NFT_REG32_00 + 10

	addrAt, protoAt, portAt, familyAt, keyBytes = 16, 32, 36, 40, 44
)

// recordChain is a chain of all sandboxes that records.
type recordChain struct {
	name  string
	rules []rule
}

// recordChains are the chains that record, each after the one that it leads to. That of a verdict counts a packet for a destination that is known, and
// leaves others to the chain of new ones. This one passes over packets of a bridge that has had its new destinations, and over multicast,
// which systems send unasked. The kernel skips the rest of a rule whose set has no room; the last verdict does not depend on that.
//
// Whether a destination is known is asked by a lookup that is to find nothing: one that finds an element counts the packet, as the update does.
func recordChains() (chains []recordChain) {
	for _, list := range []string{denied, reached} {
		end := &expr.Verdict{Kind: expr.VerdictReturn}
		if list == denied {
			end = &expr.Verdict{Kind: expr.VerdictDrop}
		}
		update := func(set string, e expr.Any) *expr.Dynset {
			return &expr.Dynset{SrcRegKey: bridgeRegister, SetName: set, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: RecordedFor, Exprs: []expr.Any{e}}
		}
		other := func(e expr.Any, is byte) rule {
			return rule{e, &expr.Cmp{Op: expr.CmpOpNeq, Register: bridgeRegister, Data: []byte{is}}, end}
		}
		known, unknown := recordChain{name: list}, recordChain{name: list + unseen}
		if list == denied { // no answer gets past the rule for connections that exist to one that lets a packet pass
			known.rules = append(known.rules, other(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: bridgeRegister}, 0))
		}
		unknown.rules = append(unknown.rules, other(&expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: bridgeRegister}, unix.PACKET_HOST), rule{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: bridgeRegister},
			update(list+quota, &expr.Limit{Type: expr.LimitTypePkts, Rate: MaxNew, Unit: expr.LimitTimeHour, Burst: MaxNew, Over: true}), end,
		})
		for _, k := range recordKeys() {
			counts := slices.Concat(k, rule{update(list, &expr.Counter{}), end})
			known.rules = append(known.rules,
				append(k, &expr.Lookup{SourceRegister: bridgeRegister, SetName: list, Invert: true}, &expr.Verdict{Kind: expr.VerdictGoto, Chain: unknown.name}),
				counts)
			unknown.rules = append(unknown.rules, counts)
		}
		known.rules, unknown.rules = append(known.rules, rule{end}), append(unknown.rules, rule{end})
		chains = append(chains, unknown, known)
	}
	return chains
}

// recordKeys load the key of a packet: of each family, of ICMP, and of other protocols, whose ports are where those of TCP are.
func recordKeys() (keys []rule) {
	for _, f := range []struct {
		family, icmp   byte
		offset, length uint32
	}{{unix.NFPROTO_IPV4, unix.IPPROTO_ICMP, 16, 4}, {unix.NFPROTO_IPV6, unix.IPPROTO_ICMPV6, 24, 16}} {
		key := func(op expr.CmpOp, port expr.Any) rule {
			k := rule{
				&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: familyRegister}, &expr.Cmp{Op: expr.CmpOpEq, Register: familyRegister, Data: []byte{f.family}},
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: protoRegister}, &expr.Cmp{Op: op, Register: protoRegister, Data: []byte{f.icmp}},
				&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: bridgeRegister}, port,
			}
			if f.length < 16 {
				k = append(k, &expr.Immediate{Register: addrRegister, Data: make([]byte, 16)})
			}
			return append(k, &expr.Payload{DestRegister: addrRegister, Base: expr.PayloadBaseNetworkHeader, Offset: f.offset, Len: f.length})
		}
		keys = append(keys,
			key(expr.CmpOpNeq, &expr.Payload{DestRegister: portRegister, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}),
			key(expr.CmpOpEq, &expr.Immediate{Register: portRegister, Data: make([]byte, 4)}))
	}
	return keys
}

// Denied returns the destinations that packets of all bridges were denied, in no order.
func (f *Firewall) Denied() ([]Record, error) { return f.recorded(denied) }

// Reached returns the destinations of packets of all bridges that rules let pass, in no order.
func (f *Firewall) Reached() ([]Record, error) { return f.recorded(reached) }

func (f *Firewall) recorded(set string) ([]Record, error) {
	var elements []nftables.SetElement
	now := time.Now()
	err := f.with(func(c conn) (err error) {
		if _, err := c.GetSetByName(table, set); err != nil { // the error of the other call hides its cause
			return err
		}
		elements, err = c.GetSetElements(&nftables.Set{Table: table, Name: set})
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the set %s: %w", set, err)
	}
	records := make([]Record, 0, len(elements))
	for _, e := range elements {
		if len(e.Key) < keyBytes {
			return nil, fmt.Errorf("read the set %s: a key has %d bytes", set, len(e.Key))
		}
		addr := e.Key[addrAt:protoAt]
		if e.Key[familyAt] == unix.NFPROTO_IPV4 {
			addr = addr[:4]
		}
		r := Record{
			Bridge: strings.TrimRight(string(e.Key[:addrAt]), "\x00"), Protocol: e.Key[protoAt], Port: byteOrder.Uint16(e.Key[portAt:]),
			Last: now.Add(e.Expires - RecordedFor),
		}
		r.Addr, _ = netip.AddrFromSlice(addr)
		if e.Counter != nil {
			r.Packets = e.Counter.Packets
		}
		records = append(records, r)
	}
	return records, nil
}
