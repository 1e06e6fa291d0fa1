package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/docker/go-units"
)

// Size is a number of bytes, from 0 to 1 PiB. Units are powers of 1024, with and without an "i", as in a sandbox's spec and on
// the command line of docker: "1GiB", "1GB" and "1g" are the same.
type Size int64

// maxSize is 1 PiB, as in a spec. The parser's floats are exact up to 8 PiB.
const maxSize = 1 << 50

// UnmarshalText reads a size. Signs and exponents, which the parser would take, are errors.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := units.RAMInBytes(string(text))
	if err != nil || n < 0 || n > maxSize || strings.ContainsAny(string(text), "+-eExX") {
		return fmt.Errorf(`%q is not a size: write bytes, or a number with a unit, such as "512MiB" or "2GiB", up to 1PiB`, text)
	}
	*s = Size(n)
	return nil
}

// String writes the size with the largest unit that divides it, so that it is read again as the same number.
func (s Size) String() string {
	n, unit := int64(s), ""
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, larger
	}
	return strconv.FormatInt(n, 10) + unit
}
