package firewall

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"pgregory.net/rapid"

	"github.com/agbox/agbox/internal/netrules"
)

// An address passes the expressions exactly if it is in one of the ranges, however they are compiled.
func TestExpressionsMatchTheAddressesOfTheirRanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{4, 16}).Draw(t, "size")
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 10, 127, 128, 254, 255}), size, size).Draw(t, "bytes")
			a, _ := netip.AddrFromSlice(b)
			return a
		})
		var ranges addresses
		last := netip.Addr{}
		ends := rapid.SliceOfNDistinct(address, 2, 12, rapid.ID).Draw(t, "ends")
		slices.SortFunc(ends, netip.Addr.Compare)
		for ; len(ends) > 0; ends = ends[min(2, len(ends)):] {
			r := netrules.Range{First: ends[0], Last: ends[min(1, len(ends)-1)]}
			if rapid.Bool().Draw(t, "a block") {
				p, _ := r.First.Prefix(rapid.IntRange(0, size*8).Draw(t, "bits"))
				all := netrules.Ranges([]netip.Prefix{p})
				r = all[0]
			}
			if !last.IsValid() || last.Less(r.First) && last.Next() != r.First {
				ranges, last = append(ranges, r), r.Last
			}
		}
		p := program{bridge: "br-0", sets: map[string]content{}}
		list := p.in(ranges, 16, uint32(size))
		probes := rapid.SliceOfN(address, 1, 10).Draw(t, "others")
		for _, r := range ranges {
			probes = append(probes, r.First, r.Last, r.First.Prev(), r.Last.Next())
		}
		for _, a := range probes {
			if !a.IsValid() {
				continue
			}
			want := slices.ContainsFunc(ranges, func(r netrules.Range) bool { return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0 })
			if got := evaluate(t, p, list, a.AsSlice()); got != want {
				t.Fatalf("%s in %v: %t", a, ranges, got)
			}
		}
	})
}

// evaluate does what the kernel does with a header that has the address at offset 16.
func evaluate(t *rapid.T, p program, list rule, addr []byte) bool {
	header := append(make([]byte, 16), addr...)
	var register []byte
	for _, e := range list {
		switch e := e.(type) {
		case *expr.Payload:
			register = bytes.Clone(header[e.Offset : e.Offset+e.Len])
		case *expr.Bitwise:
			for i := range register {
				register[i] = register[i]&e.Mask[i] ^ e.Xor[i]
			}
		case *expr.Cmp:
			order := bytes.Compare(register, e.Data)
			if ok := map[expr.CmpOp]bool{expr.CmpOpEq: order == 0, expr.CmpOpGte: order >= 0, expr.CmpOpLte: order <= 0}[e.Op]; !ok || len(register) != len(e.Data) {
				return false
			}
		case *expr.Lookup:
			in := false
			switch set := p.sets[e.SetName].(type) {
			case firstBytes:
				in = slices.ContainsFunc(set.elements(), func(one nftables.SetElement) bool { return bytes.Equal(one.Key, register) })
			case addresses: // the last bound at or before the address begins a range
				for _, one := range set.elements() {
					if bytes.Compare(one.Key, register) <= 0 {
						in = !one.IntervalEnd
					}
				}
			}
			if !in {
				return false
			}
		default:
			t.Fatalf("%T", e)
		}
	}
	return true
}
