package firewall_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
	"github.com/agbox/agbox/internal/testing/netns"
)

// A create pays for one Enforce, and each pass for one Holds, beside the rules of other sandboxes.
func BenchmarkEnforce(b *testing.B) {
	host := netns.New(b, "host")
	fw := firewall.New(int(host.File.Fd()))
	policy := func(i int) netrules.Rules {
		f := facts
		f.Bridge = fmt.Sprintf("br-%012x", i)
		r, err := netrules.Make("internet", nil, f)
		if err != nil {
			b.Fatal(err)
		}
		return r
	}
	const others = 200
	for i := range others {
		if err := fw.Enforce(policy(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("new", func(b *testing.B) {
		for i := range b.N {
			if err := fw.Enforce(policy(others + i)); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		for i := range b.N {
			if err := fw.Remove(policy(others + i).Bridge); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("holds", func(b *testing.B) {
		for range b.N {
			if ok, err := fw.Holds(policy(7)); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	})
}

// What a policy costs the traffic that it lets through: each round measures all policies one after another, and the metrics are ratios of
// medians to those without rules. A run with -benchtime=30x has 30 rounds.
func BenchmarkTraffic(b *testing.B) {
	s := newSite(b)
	f := facts
	f.Bridge = otherBridge // connections are tracked where the engine runs, with and without our rules
	other, err := netrules.Make("internet", nil, f)
	if err == nil {
		err = s.fw.Enforce(other)
	}
	if err != nil {
		b.Fatal(err)
	}
	many := &agboxv1.NetworkSpec{Mode: "internet"}
	for i := range 10_000 {
		many.Deny = append(many.Deny, fmt.Sprintf("203.%d.%d.0/25", i/256, i%256))
	}
	policies := []struct {
		name string
		spec *agboxv1.NetworkSpec
	}{{"none", nil}, {"internet", &agboxv1.NetworkSpec{Mode: "internet"}}, {"10000", many}}
	kinds := []struct {
		name    string
		measure func() (time.Duration, error)
	}{{"bulk", bulk}, {"roundtrip", roundTrips}, {"connect", connects}}
	times := map[string][]time.Duration{}
	for range b.N {
		for _, p := range policies {
			if p.spec == nil {
				if err := s.fw.Remove(bridge); err != nil {
					b.Fatal(err)
				}
			} else {
				r, err := netrules.Make("internet", p.spec, facts)
				if err == nil {
					err = s.fw.Enforce(r)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for _, k := range kinds {
				err := s.sandbox.Do(func() error {
					took, err := k.measure()
					times[p.name+k.name] = append(times[p.name+k.name], took)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	median := func(key string) time.Duration {
		slices.Sort(times[key])
		return times[key][len(times[key])/2]
	}
	for _, k := range kinds {
		bare := median("none" + k.name)
		b.ReportMetric(float64(bare.Microseconds()), "us:"+k.name)
		for _, p := range policies[1:] {
			b.ReportMetric(float64(median(p.name+k.name))/float64(bare), p.name+":"+k.name)
		}
	}
}

const public = "1.1.1.1:80"

// bulk sends 64 MiB there and back.
func bulk() (time.Duration, error) {
	conn, err := net.Dial("tcp", public)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	const size = 64 << 20
	start := time.Now()
	sent := make(chan error, 1)
	go func() {
		chunk := make([]byte, 64<<10)
		for range size / len(chunk) {
			if _, err := conn.Write(chunk); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	if _, err := io.CopyN(io.Discard, conn, size); err != nil {
		return 0, err
	}
	return time.Since(start), <-sent
}

// roundTrips sends a byte and waits for it, 2,000 times.
func roundTrips() (time.Duration, error) {
	conn, err := net.Dial("tcp", public)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	start, one := time.Now(), make([]byte, 1)
	for range 2_000 {
		if _, err := conn.Write(one); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, one); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// connects opens and closes 200 connections.
func connects() (time.Duration, error) {
	start := time.Now()
	for range 200 {
		conn, err := net.Dial("tcp", public)
		if err != nil {
			return 0, err
		}
		conn.Close()
	}
	return time.Since(start), nil
}
