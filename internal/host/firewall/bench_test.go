package firewall_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	many := manyEntries()
	policies := []struct {
		name string
		spec *agboxv1.NetworkSpec
	}{{"none", nil}, {"internet", &agboxv1.NetworkSpec{Mode: "internet"}}, {"10000", many}}
	kinds := []struct {
		name    string
		measure func() (time.Duration, error)
	}{{"bulk", bulk}, {"roundtrip", roundTrips}}
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
	middle := func(key string) time.Duration {
		slices.Sort(times[key])
		return times[key][len(times[key])/2]
	}
	for _, k := range kinds {
		bare := middle("none" + k.name)
		b.ReportMetric(float64(bare.Microseconds()), "us:"+k.name)
		for _, p := range policies[1:] {
			b.ReportMetric(float64(middle(p.name+k.name))/float64(bare), p.name+":"+k.name)
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

// What a policy costs the first packets of a connection, the SYN, its answer and the answer to that: the kernel passes all three on within connect,
// on one thread, so nothing else is on the path, neither a wire nor a process that has to wake up. Each round measures all policies, in turn from
// the first to the last and back; the metrics are medians of the ratios within a round, to a bridge without rules in a table with those of another one. "none" is such a
// bridge once more: how far it is from 1 is the error. "connect" is the call, "cycle" all that both ends call to open and to close a connection. A run with
// -benchtime=300x takes some two minutes.
func BenchmarkConnect(b *testing.B) {
	s := newSite(b)
	f := facts
	f.Bridge = otherBridge
	other, err := netrules.Make("internet", nil, f)
	if err == nil {
		err = s.fw.Enforce(other)
	}
	if err != nil {
		b.Fatal(err)
	}
	v4 := facts
	v4.Pool, v4.Resolvers = facts.Pool[:1], facts.Resolvers[:1]
	many := manyEntries()
	policies := []struct {
		name  string
		spec  *agboxv1.NetworkSpec
		facts netrules.Facts
	}{
		{"bare", nil, facts},
		{"none", nil, facts},
		{"internet", &agboxv1.NetworkSpec{Mode: "internet"}, facts},
		{"ipv4", &agboxv1.NetworkSpec{Mode: "internet"}, v4},
		{"10000", many, facts},
		{"entries", &agboxv1.NetworkSpec{Mode: "internet", Allow: []string{"10.0.0.5:5432/tcp", "host:8080"}, Deny: []string{"203.0.113.0/24"}}, facts},
		{"internal", &agboxv1.NetworkSpec{Mode: "internal", Allow: []string{"1.1.1.1:7777/tcp"}}, facts},
		{"open", &agboxv1.NetworkSpec{Mode: "open", Deny: []string{"169.254.169.254"}}, facts},
	}
	p := newPair(b, s)
	ratios := map[string][]float64{}
	var connect, cycle []float64
	for round := range b.N {
		took := map[string][2]float64{}
		for i := range policies {
			one := policies[i]
			if round%2 == 1 {
				one = policies[len(policies)-1-i]
			}
			r := netrules.Rules{Bridge: bridge}
			if one.spec != nil {
				if r, err = netrules.Make(one.spec.GetMode(), one.spec, one.facts); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.fw.Enforce(r); err != nil {
				b.Fatal(err)
			}
			p.connects(b, 50)
			took[one.name] = p.connects(b, 200)
		}
		for name, t := range took {
			ratios[name+":connect"] = append(ratios[name+":connect"], t[0]/took["bare"][0])
			ratios[name+":cycle"] = append(ratios[name+":cycle"], t[1]/took["bare"][1])
		}
		connect, cycle = append(connect, took["bare"][0]), append(cycle, took["bare"][1])
	}
	b.ReportMetric(median(connect), "us:connect")
	b.ReportMetric(median(cycle), "us:cycle")
	for _, one := range policies[1:] {
		for _, what := range []string{":connect", ":cycle"} {
			b.ReportMetric(median(ratios[one.name+what]), one.name+what)
		}
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// pair opens connections from the sandbox to a listener in the world, both on the caller's thread.
type pair struct {
	sandbox  *netns.NS
	listener int
}

const pairPort = 7777

func newPair(b *testing.B, s *site) *pair {
	b.Helper()
	p := &pair{sandbox: s.sandbox}
	err := s.world.Do(func() (err error) {
		if p.listener, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(p.listener, &unix.SockaddrInet4{Port: pairPort}), unix.Listen(p.listener, 16))
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Close(p.listener) })
	return p
}

// connects opens and closes n connections, with resets, so that none waits for its end. It returns the medians for connect and for all, in microseconds.
func (p *pair) connects(b *testing.B, n int) [2]float64 {
	b.Helper()
	connect, cycle := make([]float64, n), make([]float64, n)
	err := p.sandbox.Do(func() error {
		to := &unix.SockaddrInet4{Port: pairPort, Addr: [4]byte{1, 1, 1, 1}}
		for i := range n {
			start := time.Now()
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
				return err
			}
			before := time.Now()
			if err := unix.Connect(fd, to); err != nil {
				return err
			}
			connect[i] = float64(time.Since(before).Nanoseconds()) / 1e3
			end, _, err := unix.Accept4(p.listener, unix.SOCK_CLOEXEC)
			if err != nil {
				return err
			}
			if err := errors.Join(unix.Close(fd), unix.Close(end)); err != nil {
				return err
			}
			cycle[i] = float64(time.Since(start).Nanoseconds()) / 1e3
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return [2]float64{median(connect), median(cycle)}
}

// manyEntries is a policy of 10,000 entries.
func manyEntries() *agboxv1.NetworkSpec {
	many := &agboxv1.NetworkSpec{Mode: "internet"}
	for i := range 10_000 {
		many.Deny = append(many.Deny, fmt.Sprintf("203.%d.%d.0/25", i/256, i%256))
	}
	return many
}
