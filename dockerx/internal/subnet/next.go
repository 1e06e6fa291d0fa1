package subnet

import (
	"encoding/binary"
	"net/netip"
)

// next returns the first prefix of the given length in pool that overlaps none of busy, searching from the address start
// and wrapping around once; false when there is none. pool is IPv4, bits is between pool.Bits() and 32.
func next(pool netip.Prefix, bits int, start netip.Addr, busy []netip.Prefix) (netip.Prefix, bool) {
	first, size := number(pool.Masked().Addr()), uint64(1)<<(32-bits)
	end := first + uint64(1)<<(32-pool.Bits())
	from := first
	if pool.Contains(start) {
		from = first + (number(start)-first+size-1)/size*size
	}
	if p, ok := scan(from, end, size, bits, busy); ok {
		return p, true
	}
	return scan(first, from, size, bits, busy)
}

// scan searches [from, end). It skips past each blocker, so that a full pool costs one step per busy prefix.
func scan(from, end, size uint64, bits int, busy []netip.Prefix) (netip.Prefix, bool) {
	for from+size <= end {
		p := netip.PrefixFrom(address(from), bits)
		blocked := blocker(p, busy)
		if !blocked.IsValid() {
			return p, true
		}
		behind := number(blocked.Masked().Addr()) + uint64(1)<<(32-blocked.Bits())
		from = max(from+size, (behind+size-1)/size*size)
	}
	return netip.Prefix{}, false
}

// blocker returns one of busy that overlaps p, or the zero prefix.
func blocker(p netip.Prefix, busy []netip.Prefix) netip.Prefix {
	for _, b := range busy {
		if b.Overlaps(p) {
			return b
		}
	}
	return netip.Prefix{}
}

func number(a netip.Addr) uint64 {
	b := a.As4()
	return uint64(binary.BigEndian.Uint32(b[:]))
}

func address(n uint64) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	return netip.AddrFrom4(b)
}
