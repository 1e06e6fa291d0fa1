package netrules

import (
	"net/netip"
	"slices"
	"sort"
)

// Range is the addresses from First to Last, both included and of one family.
type Range struct{ First, Last netip.Addr }

// Ranges returns the addresses of the blocks as the fewest ranges, sorted, IPv4 first.
func Ranges(blocks []netip.Prefix) []Range {
	all := make([]Range, len(blocks))
	for i, b := range blocks {
		all[i] = Range{b.Masked().Addr(), last(b)}
	}
	return join(all)
}

// join returns the addresses of ranges as the fewest ranges, sorted. It sorts all.
func join(all []Range) []Range {
	slices.SortFunc(all, func(a, b Range) int { return a.First.Compare(b.First) })
	var merged []Range
	for _, r := range all {
		if n := len(merged); n > 0 && joins(merged[n-1], r) {
			if merged[n-1].Last.Less(r.Last) {
				merged[n-1].Last = r.Last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// joins reports whether b, which does not begin before a, overlaps a or follows it without a gap.
func joins(a, b Range) bool {
	if a.First.Is4() != b.First.Is4() {
		return false
	}
	next := a.Last.Next() // invalid behind the last address of a family
	return !next.IsValid() || b.First.Compare(next) <= 0
}

// last returns the highest address of a block.
func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// within reports whether one of sorted disjoint ranges has an address.
func within(ranges []Range, a netip.Addr) bool {
	i := sort.Search(len(ranges), func(i int) bool { return a.Compare(ranges[i].Last) <= 0 })
	return i < len(ranges) && ranges[i].First.Compare(a) <= 0
}
