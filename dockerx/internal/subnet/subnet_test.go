package subnet

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var prefix = netip.MustParsePrefix

func TestNext(t *testing.T) {
	pool := prefix("10.213.0.0/26") // four /28
	for _, tc := range []struct {
		name  string
		bits  int
		start string
		busy  []string
		want  string // empty: none
	}{
		{"an empty pool gives its first prefix", 28, "10.213.0.0", nil, "10.213.0.0/28"},
		{"a busy prefix is skipped", 28, "10.213.0.0", []string{"10.213.0.0/28"}, "10.213.0.16/28"},
		{"a smaller busy prefix blocks too", 28, "10.213.0.0", []string{"10.213.0.9/32"}, "10.213.0.16/28"},
		{"a larger busy prefix blocks all that it covers", 28, "10.213.0.0", []string{"10.213.0.0/27"}, "10.213.0.32/28"},
		{"the search starts at start", 28, "10.213.0.32", nil, "10.213.0.32/28"},
		{"the search wraps around", 28, "10.213.0.48", []string{"10.213.0.48/28", "10.213.0.0/28"}, "10.213.0.16/28"},
		{"a start outside the pool means the pool's first address", 28, "10.213.0.64", nil, "10.213.0.0/28"},
		{"a start inside a larger prefix means the next one", 27, "10.213.0.16", nil, "10.213.0.32/27"},
		{"the whole pool fits", 26, "10.213.0.16", nil, "10.213.0.0/26"},
		{"a full pool gives none", 28, "10.213.0.16", []string{"10.213.0.0/26"}, ""},
		{"a route around the pool gives none", 28, "10.213.0.16", []string{"10.0.0.0/8"}, ""},
		{"holes too small give none", 27, "10.213.0.0", []string{"10.213.0.0/28", "10.213.0.48/28"}, ""},
		{"busy prefixes elsewhere do not matter", 28, "10.213.0.0", []string{"10.212.255.0/24", "10.213.0.64/28", "0.0.0.0/32"}, "10.213.0.0/28"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var busy []netip.Prefix
			for _, b := range tc.busy {
				busy = append(busy, netip.MustParsePrefix(b))
			}
			got, ok := next(pool, tc.bits, netip.MustParseAddr(tc.start), busy)
			if ok != (tc.want != "") || ok && got != prefix(tc.want) {
				t.Errorf("got %s, %t; want %q", got, ok, tc.want)
			}
		})
	}
}

func TestNextAtTheEndOfAllAddresses(t *testing.T) {
	got, ok := next(prefix("255.255.255.0/24"), 28, netip.MustParseAddr("255.255.255.240"), nil)
	if want := prefix("255.255.255.240/28"); !ok || got != want {
		t.Errorf("got %s, %t; want %s", got, ok, want)
	}
}

// A picked prefix is free, and none is returned only when none was free.
func TestNextReturnsAFreePrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pool := netip.PrefixFrom(netip.MustParseAddr("10.213.0.0"), rapid.IntRange(20, 28).Draw(t, "pool"))
		bits := rapid.IntRange(pool.Bits(), 28).Draw(t, "bits")
		anywhere := rapid.Custom(func(t *rapid.T) netip.Prefix {
			a := address(number(pool.Addr()) + uint64(rapid.IntRange(0, 4095).Draw(t, "offset")))
			return netip.PrefixFrom(a, rapid.IntRange(24, 32).Draw(t, "length")).Masked()
		})
		busy := rapid.SliceOfN(anywhere, 0, 40).Draw(t, "busy")
		start := anywhere.Draw(t, "start").Addr()
		got, ok := next(pool, bits, start, busy)
		if ok && (!pool.Contains(got.Addr()) || got.Bits() != bits || got != got.Masked() || blocker(got, busy).IsValid()) {
			t.Fatalf("got %s", got)
		}
		for n := number(pool.Addr()); !ok && n < number(pool.Addr())+1<<(32-pool.Bits()); n += 1 << (32 - bits) {
			if p := netip.PrefixFrom(address(n), bits); !blocker(p, busy).IsValid() {
				t.Fatalf("got none, but %s is free", p)
			}
		}
	})
}

func TestAllocator(t *testing.T) {
	now := time.Now()
	a, err := NewAllocator(prefix("10.213.0.7/26"))
	if err != nil {
		t.Fatal(err)
	}
	pick := func(want string, routes ...netip.Prefix) netip.Prefix {
		t.Helper()
		p, err := a.Pick(28, routes, now)
		if want == "" {
			if !errors.Is(err, ErrExhausted) {
				t.Errorf("got %s, %v; want %v", p, err, ErrExhausted)
			}
			return p
		}
		if err != nil || p != prefix(want) {
			t.Errorf("got %s, %v; want %s", p, err, want)
		}
		return p
	}
	one := pick("10.213.0.0/28")
	two := pick("10.213.0.16/28") // one is held
	a.Release(two)
	pick("10.213.0.48/28", prefix("10.213.0.32/28"))
	pick("10.213.0.16/28") // a released one is reused last
	a.Suspect(two, now)
	three := pick("10.213.0.32/28")
	a.Release(three)
	pick("10.213.0.32/28") // the engine has it, but has not listed it: it will refuse it
	pick("")
	now = now.Add(Doubt + time.Second)
	pick("10.213.0.16/28") // the doubt has passed
	a.Release(one)
	a.Reset([]netip.Prefix{one, prefix("10.213.0.32/29")})
	pick("") // the rest is listed by the engine or held
	a.Reset(nil)
	pick("10.213.0.0/28")
}

func TestExhaustedNamesTheConflictingRoute(t *testing.T) {
	a, err := NewAllocator(prefix("10.213.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Pick(28, []netip.Prefix{prefix("10.0.0.0/8")}, time.Now())
	if !errors.Is(err, ErrExhausted) || !strings.Contains(err.Error(), "route to 10.0.0.0/8") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidPools(t *testing.T) {
	for _, p := range []string{"fd00::/64", "10.213.0.0/29"} {
		if _, err := NewAllocator(prefix(p)); err == nil {
			t.Errorf("%s was accepted", p)
		}
	}
}

func TestParseRoutes(t *testing.T) {
	const table = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
*	0000090A	00000000	0201	0	0	4294967295	0000FFFF	0	0	0
`
	proc := t.TempDir()
	write := func(text string) {
		if err := errors.Join(os.MkdirAll(filepath.Join(proc, "net"), 0o700), os.WriteFile(filepath.Join(proc, "net/route"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write(table)
	got, err := Routes(proc)
	if err != nil || len(got) != 3 || got[0] != prefix("172.17.0.0/16") || got[1] != prefix("192.0.2.0/24") || got[2] != prefix("10.9.0.0/16") {
		t.Errorf("got %v, %v", got, err) // the digits are those of a little-endian machine
	}
	write("\neth0 xyz 0 0 0 0 0 00FFFFFF\n")
	if _, err := Routes(proc); err == nil {
		t.Error("a malformed line was accepted")
	}
	if _, err := Routes("/proc"); err != nil {
		t.Error(err)
	}
}

func BenchmarkPick(b *testing.B) {
	a, _ := NewAllocator(prefix("10.213.0.0/16"))
	var routes []netip.Prefix
	for range 200 {
		p, _ := a.Pick(28, nil, time.Now())
		routes = append(routes, p)
	}
	a.Reset(routes)
	for b.Loop() {
		p, _ := a.Pick(28, routes, time.Now())
		a.Release(p)
	}
}
