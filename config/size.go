package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written like "1GiB", "512KiB", "10MB" or "4096". It is never negative.
type Size int64

// sizeUnits is ordered so that a unit comes before its own suffixes.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
	{"", 1},
}

// UnmarshalText reads a size. Fractions, signs and unknown units are errors.
func (s *Size) UnmarshalText(text []byte) error {
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(string(text), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil || n > uint64(math.MaxInt64/unit.bytes) {
			break
		}
		*s = Size(int64(n) * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write a whole number with B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", text)
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, unit := range []int{3, 2, 1, 0} {
		if u := sizeUnits[unit]; s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
