// Package quantity reads sizes, durations and numbers of CPUs as people write them. Configuration, specs and flags share these parsers.
// Errors say what is wrong with a text without repeating it: "not a size: ...".
package quantity

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-units"
)

// maxBytes is 1 PiB. The parser's floats are exact up to 8 PiB.
const maxBytes = 1 << 50

// sizePattern refuses what the parser's floats accept as well, such as "1e9" and "0x1p30".
var sizePattern = regexp.MustCompile(`^([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9}) ?[A-Za-z]{0,3}$`)

// Bytes reads a size from 0 to 1 PiB: bytes, or a number with a unit. Units are powers of 1024, in any case, with or without "i" and "B":
// "512m", "512M", "512MB", "512Mi" and "512MiB" are the same.
func Bytes(text string) (int64, error) {
	whole := text
	if strings.HasSuffix(strings.ToLower(text), "i") {
		whole += "B"
	}
	size, err := units.RAMInBytes(whole)
	switch {
	case err != nil || !sizePattern.MatchString(text):
		return 0, errors.New(`not a size: write bytes, or a number with a unit, such as "512MiB" or "2GiB"`)
	case size < 0 || size > maxBytes: // the parser overflows
		return 0, errors.New("out of range: write at most 1PiB")
	}
	return size, nil
}

const day = 24 * time.Hour

// days is a duration that starts with a number of days, and the rest of it.
var days = regexp.MustCompile(`^([0-9]{1,9}(?:\.[0-9]{1,9})?)d([0-9].*)?$`)

// Duration reads Go's notation, in front of which a number of days may stand: "90s", "1h30m", "1d", "1d12h". A day is 24 hours. Negative
// durations are read too.
func Duration(text string) (time.Duration, error) {
	head, rest := time.Duration(0), text
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n*float64(day) > math.MaxInt64/2 {
			return 0, errDuration
		}
		head, rest = time.Duration(math.Round(n*float64(day))), m[2]
		if rest == "" {
			return head, nil
		}
	}
	tail, err := time.ParseDuration(rest)
	if err != nil || head > math.MaxInt64-max(tail, 0) {
		return 0, errDuration
	}
	return head + tail, nil
}

var errDuration = errors.New(`not a duration: write a number with a unit, such as "90s", "10m", "1.5h" or "1d"`)

var (
	decimal    = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)
	thousandth = regexp.MustCompile(`^[0-9]{1,9}m$`)
)

// CPUs reads a number of CPUs: "2", "0.5", or in thousandths "500m". It may be 0.
func CPUs(text string) (float64, error) {
	switch {
	case decimal.MatchString(text):
		return strconv.ParseFloat(text, 64)
	case thousandth.MatchString(text):
		n, err := strconv.ParseFloat(strings.TrimSuffix(text, "m"), 64)
		return n / 1000, err
	}
	return 0, errors.New(`not a number of CPUs: write one such as "2", "0.5" or "500m"`)
}

// DurationFlag is a flag for Duration. It implements pflag.Value.
type DurationFlag struct{ into *time.Duration }

// NewDurationFlag sets into to value and returns a flag that changes it.
func NewDurationFlag(into *time.Duration, value time.Duration) DurationFlag {
	*into = value
	return DurationFlag{into}
}

// Set reads the value of the flag.
func (f DurationFlag) Set(text string) (err error) {
	*f.into, err = Duration(text)
	return err
}

// String returns the value. It is "0" for zero, which help texts do not show as a default.
func (f DurationFlag) String() string {
	if f.into == nil || *f.into == 0 {
		return "0"
	}
	return f.into.String()
}

// Type is the word for a value in help texts.
func (DurationFlag) Type() string { return "duration" }
