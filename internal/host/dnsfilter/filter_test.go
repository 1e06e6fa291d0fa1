package dnsfilter_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/dnsfilter"
	"github.com/agbox/agbox/internal/testing/netns"
)

// The addresses of a name are open once it is answered, at the ports of the policy alone, and until they time out.
func TestNames(t *testing.T) {
	s := newSite(t)
	s.child.Limits.Floor = time.Second
	s.start(t)
	s.names.has("api.example", "api.example. 1 A 1.1.1.1", "api.example. 1 A 1.1.1.2")
	s.names.has("api.example AAAA", "api.example. 1 AAAA 2606:4700:2::1")
	s.names.has("x.y.wild.example", "x.y.wild.example. 3600 A 1.1.2.1")
	s.names.has("wild.example", "wild.example. 3600 A 1.1.2.2")
	s.names.has("evil.example", "evil.example. 3600 A 1.1.3.1")
	s.names.has("text.wild.example TXT", `text.wild.example. 60 TXT "hello"`)
	s.enforce(t, "internal", "API.example:443 *.wild.example", "denied.wild.example")
	s.reaches(t, false, "1.1.1.1:443", "1.1.2.1:80")

	s.expect(t, map[string]string{"api.example": "1.1.1.1 1.1.1.2", "API.Example": "1.1.1.1 1.1.1.2", "x.y.wild.example": "1.1.2.1", "missing.wild.example": "NXDOMAIN"})
	c, err := s.sandbox.Dial("tcp", "1.1.1.1:443", long)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.reaches(t, true, "1.1.1.2:443", "1.1.2.1:443", "1.1.2.1:80")
	s.reaches(t, false, "1.1.1.1:80", "[2606:4700:2::1]:443")
	if got := lookup(t, s.sandbox, "api.example", dns.TypeAAAA); got != "2606:4700:2::1" {
		t.Error(got)
	}
	s.reaches(t, true, "[2606:4700:2::1]:443")

	for _, network := range []string{"udp", "tcp", "udp6"} {
		begun := time.Now()
		m, err := ask(t, s.sandbox, network, "evil.example", dns.TypeA)
		if err != nil || m.Rcode != dns.RcodeNameError || time.Since(begun) > 2*time.Second || len(m.Answer) > 0 {
			t.Errorf("%s: %v, %v", network, m, err)
			continue
		}
		e, _ := m.IsEdns0().Option[0].(*dns.EDNS0_EDE)
		if e == nil || !strings.Contains(e.ExtraText, "network policy") {
			t.Errorf("%s: %v", network, m)
		}
	}
	s.expect(t, map[string]string{"wild.example": "NXDOMAIN", "denied.wild.example": "NXDOMAIN", "xapi.example": "NXDOMAIN", ".": "NXDOMAIN"})
	for _, name := range []string{"evil.example", "wild.example", "denied.wild.example"} {
		if n := s.names.count(name); n > 0 {
			t.Errorf("%s went upstream", name)
		}
	}
	if m, err := ask(t, s.sandbox, "udp", "text.wild.example", dns.TypeTXT); err != nil || len(m.Answer) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := ask(t, s.sandbox, "udp", "api.example", dns.TypeANY); err != nil || m.Rcode != dns.RcodeNotImplemented {
		t.Errorf("%v, %v", m, err)
	}
	if r := s.refused(t, "evil.example", dnsfilter.ReasonName, 3); r.Count != 3 || r.SandboxID != "of-"+bridge || time.Since(r.Time) > time.Minute {
		t.Errorf("%+v", r)
	}
	s.asked(t, "evil.example", func(a dnsfilter.Asked) bool { return a.Refused && a.Count == 3 && len(a.Addrs) == 0 })
	s.asked(t, "api.example", func(a dnsfilter.Asked) bool {
		return !a.Refused && a.Count > 0 && slices.Contains(a.Addrs, netip.MustParseAddr("1.1.1.2")) && time.Since(a.Last) < time.Minute
	})

	time.Sleep(12 * time.Second) // the floor and the slack
	s.reaches(t, false, "1.1.1.1:443")
	s.reaches(t, true, "1.1.2.1:443")
	if !netns.Echoes(t, c, long) {
		t.Error("a connection ends with the time of its address")
	}
	s.expect(t, map[string]string{"api.example": "1.1.1.1 1.1.1.2"})
	s.reaches(t, true, "1.1.1.1:443")
}

// All names but some, of which none may be an alias.
func TestAllNamesButSome(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 60 A 1.1.1.1")
	s.names.has("ads.example", "ads.example. 60 A 1.1.1.2")
	s.names.has("x.tracker.example", "x.tracker.example. 60 A 1.1.1.3")
	s.names.has("hidden.example", "hidden.example. 60 CNAME x.tracker.example.", "x.tracker.example. 60 A 1.1.1.3")
	s.names.has("intranet.example", "intranet.example. 60 A 10.0.0.9")
	s.enforce(t, "internet", "", "ads.example *.tracker.example")
	s.expect(t, map[string]string{
		"a.example": "1.1.1.1", "ads.example": "NXDOMAIN", "x.tracker.example": "NXDOMAIN", "hidden.example": "NXDOMAIN", "intranet.example": "NOERROR", "b.example": "NXDOMAIN",
	})
	s.reaches(t, true, "1.1.1.1:443", "1.1.9.9:80")
	s.reaches(t, false, "10.0.0.9:80")
	s.refused(t, "hidden.example", dnsfilter.ReasonName, 1)
}

// A name with addresses of the private network, or of the host, does not lead there.
func TestRebinding(t *testing.T) {
	s := newSite(t)
	s.start(t)
	for i, a := range strings.Fields("10.0.0.9 127.0.0.1 169.254.169.254 0.0.0.0 100.64.0.1 192.168.0.1 224.0.0.1 255.255.255.255 10.213.0.18 9.9.9.9 198.51.100.1") {
		s.names.has(fmt.Sprintf("a%d.example", i), fmt.Sprintf("a%d.example. 60 A %s", i, a))
	}
	for i, a := range strings.Fields("::1 fe80::1 fd13::1 ::ffff:10.0.0.9 ::ffff:1.1.1.1 64:ff9b::a00:9 2606:4700:1::1") {
		s.names.has(fmt.Sprintf("b%d.example", i), fmt.Sprintf("b%d.example. 60 AAAA %s", i, a))
	}
	s.names.has("mixed.example", "mixed.example. 60 A 10.0.0.9", "mixed.example. 60 A 1.1.1.1", "mixed.example. 60 A 1.1.1.1")
	s.names.has("private.example", "private.example. 60 A 10.0.7.1")
	s.names.has("other.example", "other.example. 60 A 1.1.1.9", "victim.example. 60 A 1.1.1.8")
	s.enforce(t, "internal", "*.example 10.0.7.0/24", "")
	for i := range 11 {
		if got := s.lookup(t, fmt.Sprintf("a%d.example", i)); got != "NOERROR" {
			t.Errorf("a%d: %s", i, got)
		}
	}
	for i := range 7 {
		if got := lookup(t, s.sandbox, fmt.Sprintf("b%d.example", i), dns.TypeAAAA); got != "NOERROR" {
			t.Errorf("b%d: %s", i, got)
		}
	}
	s.expect(t, map[string]string{"mixed.example": "1.1.1.1", "private.example": "10.0.7.1", "other.example": "1.1.1.9"})
	s.reaches(t, true, "1.1.1.1:80", "10.0.7.1:80", "1.1.1.9:80")
	s.reaches(t, false, "10.0.0.9:80", "169.254.169.254:80", "1.1.1.8:80")
	s.refused(t, "mixed.example", dnsfilter.ReasonAddress, 1)
}

func TestAliases(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 60 CNAME b.other.", "b.other. 60 CNAME c.other.", "c.other. 60 A 1.1.1.1", "d.other. 60 A 1.1.1.2")
	s.names.has("split.example", "split.example. 60 CNAME far.other.")
	s.names.has("far.other", "far.other. 60 CNAME farther.other.")
	s.names.has("farther.other", "farther.other. 60 A 1.1.1.3")
	s.names.has("empty.example", "empty.example. 60 CNAME nothing.other.", "other. 60 SOA ns.other. root.other. 1 2 3 4 5")
	s.names.has("loop.example", "loop.example. 60 CNAME pool.example.", "pool.example. 60 CNAME loop.example.")
	s.names.has("slow-loop.example", "slow-loop.example. 60 CNAME slow-loop.example.")
	s.names.has("hints.example", `hints.example. 60 HTTPS 1 . alpn="h2" ipv4hint="1.1.1.5"`)
	s.enforce(t, "internal", "a.example *.example", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1", "split.example": "1.1.1.3", "empty.example": "NOERROR", "loop.example": "SERVFAIL", "slow-loop.example": "SERVFAIL", "b.other": "NXDOMAIN"})
	m, err := ask(t, s.sandbox, "udp", "split.example", dns.TypeA)
	if err != nil || len(m.Answer) != 3 {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := ask(t, s.sandbox, "udp", "a.example", dns.TypeCNAME); err != nil || len(m.Answer) != 1 {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := ask(t, s.sandbox, "udp", "hints.example", dns.TypeHTTPS); err != nil || len(m.Answer) != 1 || strings.Contains(m.String(), "hint=") {
		t.Errorf("%v, %v", m, err)
	}
	s.reaches(t, true, "1.1.1.1:80", "1.1.1.3:80")
	s.reaches(t, false, "1.1.1.2:80", "1.1.1.5:80")
}

func TestManyAddresses(t *testing.T) {
	s := newSite(t)
	s.child.Limits.SandboxAddresses = 3000
	s.start(t)
	many := func(name string, n int) {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprintf("%s. 4000000000 A 1.1.%d.%d", name, 10+i/200, i%200))
		}
		s.names.has(name, lines...)
	}
	many("500.example", 500)
	many("1500.example", 1500)
	for i := range 3 {
		many(fmt.Sprintf("%d.rotating.example", i), 900)
	}
	s.enforce(t, "internal", "*.example", "")
	if m, err := ask(t, s.sandbox, "udp", "500.example", dns.TypeA); err != nil || !m.Truncated || len(m.Answer) > 80 {
		t.Errorf("%v", err)
	}
	m, err := ask(t, s.sandbox, "tcp", "500.example", dns.TypeA)
	if err != nil || len(m.Answer) != 500 {
		t.Fatalf("%v, %v", m, err)
	}
	if ttl := m.Answer[7].Header().Ttl; ttl != 3600 {
		t.Errorf("may be kept for %d s, and is not open for so long", ttl)
	}
	s.reaches(t, true, "1.1.10.0:443", "1.1.11.50:443", "1.1.12.99:443")
	s.reaches(t, false, "1.1.12.100:443")
	if n := len(strings.Fields(s.lookup(t, "1500.example"))); n != 1000 {
		t.Errorf("%d addresses of 1500", n)
	}
	s.reaches(t, true, "1.1.14.199:443")
	s.reaches(t, false, "1.1.15.0:443")
	got := []string{s.lookup(t, "0.rotating.example"), s.lookup(t, "1.rotating.example")}
	if len(strings.Fields(got[0])) != 900 || got[1] != "SERVFAIL" {
		t.Errorf("%.40s, %.40s", got[0], got[1])
	}
	s.refused(t, "1.rotating.example", dnsfilter.ReasonFull, 1)
}

// Whatever upstream servers do, each question has an answer in time, and no wrong one.
func TestUpstream(t *testing.T) {
	s := newSite(t)
	second, dead, silent := "10.0.0.3:53", "10.0.0.4:53", "10.0.0.5:53"
	s.names.listen(t, s.world, second)
	err := s.world.Do(func() error {
		p, err := listenPacket(silent)
		t.Cleanup(func() { p.Close() })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.names.has("good.example", "good.example. 60 A 1.1.1.1")
	s.names.set("wrong-question.example", func(w dns.ResponseWriter, q *dns.Msg) {
		q.Question[0].Name = "good.example."
		records("good.example. 60 A 1.1.6.6")(w, q)
	})
	s.names.set("wrong-type.example", func(w dns.ResponseWriter, q *dns.Msg) {
		q.Question[0].Qtype = dns.TypeAAAA
		records("wrong-type.example. 60 A 1.1.6.6")(w, q)
	})
	s.names.set("wrong-id.example", func(w dns.ResponseWriter, q *dns.Msg) {
		q.Id++
		records("wrong-id.example. 60 A 1.1.6.6")(w, q)
	})
	s.names.set("garbage.example", func(w dns.ResponseWriter, q *dns.Msg) { _, _ = w.Write(slices.Repeat([]byte{0xc0}, 600)) })
	s.names.set("header.example", func(w dns.ResponseWriter, q *dns.Msg) {
		b, _ := new(dns.Msg).SetReply(q).Pack()
		_, _ = w.Write(b[:12])
	})
	s.names.set("query.example", func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(q) })
	s.names.set("broken.example", func(w dns.ResponseWriter, q *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeServerFailure))
	})
	s.names.set("refused.example", func(w dns.ResponseWriter, q *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) })
	s.names.set("cut.example", func(w dns.ResponseWriter, q *dns.Msg) { // also by TCP, where it hangs
		if w.RemoteAddr().Network() == "udp" {
			m := new(dns.Msg).SetReply(q)
			m.Truncated = true
			_ = w.WriteMsg(m)
		}
	})
	slow := func(d time.Duration) answer {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			time.Sleep(d)
			records(q.Question[0].Name+" 60 A 1.1.1.1")(w, q)
		}
	}
	s.names.set("slow.example", slow(700*time.Millisecond))
	s.names.set("too-slow.example", slow(5*time.Second))
	run := func(upstreams string, want map[string]string) {
		t.Helper()
		s.kill(syscall.SIGTERM)
		s.child.Upstreams = nil
		for _, u := range strings.Fields(upstreams) {
			s.child.Upstreams = append(s.child.Upstreams, addrPort(u))
		}
		s.start(t)
		s.enforce(t, "internal", "*.example", "")
		var all sync.WaitGroup
		for name, addrs := range want {
			all.Go(func() {
				begun := time.Now()
				if got := s.lookup(t, name); got != addrs || time.Since(begun) > 5*time.Second {
					t.Errorf("with %q, %s: %s after %s, want %s", upstreams, name, got, time.Since(begun), addrs)
				}
			})
		}
		all.Wait()
	}
	const fails = "SERVFAIL"
	run("10.0.0.2:53", map[string]string{
		"good.example": "1.1.1.1", "wrong-question.example": fails, "wrong-type.example": fails, "wrong-id.example": fails, "garbage.example": fails,
		"header.example": fails, "query.example": fails, "broken.example": fails, "refused.example": fails, "cut.example": fails,
		"slow.example": "1.1.1.1", "too-slow.example": fails, "nothing.example": "NXDOMAIN",
	})
	run(dead+" "+second, map[string]string{"good.example": "1.1.1.1"})
	run(silent+" "+second, map[string]string{"good.example": "1.1.1.1"})
	begun := time.Now()
	s.expect(t, map[string]string{"good.example": "1.1.1.1"})
	if d := time.Since(begun); d > 900*time.Millisecond {
		t.Errorf("a server that is silent is asked first again: %s", d)
	}
	run(silent, map[string]string{"good.example": fails})
	run(dead, map[string]string{"good.example": fails})
	run("", map[string]string{"good.example": fails})
	s.reaches(t, false, "1.1.6.6:443")
}

// One sandbox that floods the filter keeps no other from its names.
func TestFlood(t *testing.T) {
	s := newSite(t)
	s.child.Limits.SandboxRate = 500
	s.start(t)
	release := make(chan struct{})
	s.names.has("good.example", "good.example. 60 A 1.1.1.1")
	for i := range 200 {
		s.names.set(fmt.Sprintf("slow%d.example", i), func(dns.ResponseWriter, *dns.Msg) { <-release })
	}
	s.enforce(t, "internal", "*.example", "")
	s.enforceOn(t, otherBridge, "internal", "*.example", "")
	flood, err := s.sandbox.Dial("udp", "8.8.8.8:53", long)
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	var conns []interface{ Close() error }
	for range 100 { // connections that never ask
		if c, err := s.sandbox.Dial("tcp", "8.8.8.8:53", long); err == nil {
			conns = append(conns, c)
		}
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			q := new(dns.Msg)
			q.SetQuestion(fmt.Sprintf("slow%d.example.", i%200), dns.TypeA)
			b, _ := q.Pack()
			_, _ = flood.Write(b)
			if i%100 == 0 {
				_, _ = flood.Write([]byte("nonsense"))
				time.Sleep(time.Millisecond)
			}
		}
	})
	time.Sleep(500 * time.Millisecond)
	for range 20 {
		begun := time.Now()
		if got := lookup(t, s.other, "good.example", dns.TypeA); got != "1.1.1.1" || time.Since(begun) > 2*time.Second {
			t.Errorf("%s after %s", got, time.Since(begun))
		}
	}
	if waiting := slotsUsed(s); waiting > 64*3 {
		t.Errorf("%d questions went upstream at once", waiting)
	}
	close(stop)
	all.Wait()
	close(release)
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "the flooding sandbox is answered again", func() (bool, error) { return s.lookup(t, "good.example") == "1.1.1.1", nil })
}

// slotsUsed returns how many of the slow names were asked for.
func slotsUsed(s *site) (n int) {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	for name := range s.names.asked {
		if strings.HasPrefix(name, "slow") {
			n++
		}
	}
	return n
}

// A dead filter answers nothing and opens nothing. What is open stays open, and its successor goes on.
func TestDeath(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 60 A 1.1.1.1")
	s.names.has("b.example", "b.example. 60 A 1.1.1.2")
	p := s.enforce(t, "internal", "a.example b.example", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1"})
	s.asked(t, "a.example", func(a dnsfilter.Asked) bool { return a.Count > 0 })
	s.kill(syscall.SIGKILL)
	for _, network := range []string{"udp", "tcp", "udp6"} {
		begun := time.Now()
		if m, err := ask(t, s.sandbox, network, "a.example", dns.TypeA); !errors.Is(err, syscall.ECONNREFUSED) || time.Since(begun) > 2*time.Second {
			t.Errorf("%s: %v, %v after %s", network, m, err, time.Since(begun))
		}
	}
	s.reaches(t, true, "1.1.1.1:443")
	s.reaches(t, false, "1.1.1.2:443")
	if ok, err := s.dir.Serves(p); err != nil || ok {
		t.Errorf("a dead filter serves: %v, %v", ok, err)
	}
	s.start(t)
	eventually(t, "the policy is served again", func() (bool, error) { return s.dir.Serves(p) })
	s.reaches(t, true, "1.1.1.1:443")
	s.expect(t, map[string]string{"b.example": "1.1.1.2"})
	s.reaches(t, true, "1.1.1.2:443")
	s.asked(t, "b.example", func(a dnsfilter.Asked) bool { return a.Count > 0 })
	s.asked(t, "a.example", func(a dnsfilter.Asked) bool { return a.Count > 0 }) // before the death
	if err := s.dir.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	eventually(t, "names of a removed policy are forgotten", func() (bool, error) {
		list, err := s.dir.Asked(bridge)
		return len(list) == 0, err
	})
}

// asked waits until a name is on record that the sandbox asked for.
func (s *site) asked(t *testing.T, name string, is func(dnsfilter.Asked) bool) {
	t.Helper()
	eventually(t, name+" is among the names that were asked for", func() (bool, error) {
		list, err := s.dir.Asked(bridge)
		return slices.ContainsFunc(list, func(a dnsfilter.Asked) bool { return a.Name == name && is(a) }), err
	})
}

// A policy that replaces another keeps the addresses of the names that it has, also when the sets are new ones, and none of the others.
func TestReplacement(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	s.names.has("b.example", "b.example. 600 A 1.1.1.2")
	s.names.has("c.example", "c.example. 600 A 1.1.1.3")
	s.enforce(t, "internal", "a.example:443 b.example:443 c.example", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1", "b.example": "1.1.1.2", "c.example": "1.1.1.3"})
	s.reaches(t, true, "1.1.1.1:443", "1.1.1.2:443", "1.1.1.3:80")

	s.enforce(t, "internal", "a.example:443 c.example:80/tcp new.example:443", "")
	s.reaches(t, true, "1.1.1.1:443", "1.1.1.3:80")
	s.reaches(t, false, "1.1.1.2:443", "1.1.1.3:443")
	s.expect(t, map[string]string{"b.example": "NXDOMAIN", "c.example": "1.1.1.3"})

	// The policy before its rules, and a daemon that dies between.
	p := dnsfilter.Policy{SandboxID: "x", Bridge: bridge, Mode: "internal", Allow: []string{"a.example:80"}}
	if err := s.dir.Write(p); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy is served", func() (bool, error) { return s.dir.Serves(p) })
	s.expect(t, map[string]string{"a.example": "SERVFAIL"}) // it cannot be opened yet
	s.reaches(t, false, "1.1.1.1:80")
	s.rules(t, bridge, "internal", "a.example:80", "")
	eventually(t, "known addresses are open", func() (bool, error) { return s.sandbox.Reaches(t, "tcp 1.1.1.1:80", short), nil })
	s.reaches(t, false, "1.1.1.1:443", "1.1.1.3:80")

	// Others flush everything, the daemon repairs.
	c, err := nftables.New(nftables.WithNetNSFd(int(s.host.File.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	s.enforce(t, "internal", "a.example:80", "")
	eventually(t, "known addresses are open after a repair", func() (bool, error) { return s.sandbox.Reaches(t, "tcp 1.1.1.1:80", short), nil })

	// A file that is none: names are refused until there is one.
	if err := os.WriteFile(string(s.dir)+"/"+bridge+".json.tmp", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(string(s.dir)+"/"+bridge+".json.tmp", string(s.dir)+"/"+bridge+".json"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "names are refused", func() (bool, error) { return s.lookup(t, "a.example") != "1.1.1.1", nil })
	s.enforce(t, "internal", "a.example:80", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1"})
	if err := s.dir.Remove(bridge); err != nil {
		t.Fatal(err)
	}
	eventually(t, "names of a removed policy are refused", func() (bool, error) { return s.lookup(t, "a.example") != "1.1.1.1", nil })
}

// Who asks is known by the bridge, not by the address, and no one else is heard.
func TestWhoAsks(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	s.names.has("b.example", "b.example. 600 A 1.1.1.2")
	s.enforce(t, "internal", "a.example", "")
	s.enforceOn(t, otherBridge, "internal", "b.example", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1", "b.example": "NXDOMAIN"})
	if got := lookup(t, s.other, "b.example", dns.TypeA); got != "1.1.1.2" {
		t.Error(got)
	}
	s.reaches(t, false, "1.1.1.2:443")

	// With the other sandbox's address the policy is still that of the bridge.
	s.sandbox.IP(t, "addr add 10.213.0.18/32 dev eth0")
	before := s.names.count("b.example")
	err := s.sandbox.Do(func() error {
		c, err := dialFrom("10.213.0.18", "8.8.8.8:53")
		if err != nil {
			return err
		}
		defer c.Close()
		q := new(dns.Msg)
		q.SetQuestion("b.example.", dns.TypeA)
		b, _ := q.Pack()
		_, err = c.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.refused(t, "b.example", dnsfilter.ReasonName, 1); r.SandboxID != "of-"+bridge {
		t.Errorf("%+v", r)
	}
	if s.names.count("b.example") != before {
		t.Error("the policy of another sandbox was used")
	}

	// The port itself is closed to the world, the host and sandboxes, also without any rule.
	if err := s.fw.Drop(); err != nil {
		t.Fatal(err)
	}
	s.other.IP(t, "addr add 10.213.0.20/28 dev eth0")
	for from, addr := range map[*netns.NS]string{s.world: "198.51.100.1:10053", s.host: "127.0.0.1:10053"} {
		if c, err := from.Dial("tcp", addr, long); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s reaches the filter: %v, %v", from.Name, c, err)
		}
	}
}

// The engine may remove a bridge and make it again.
func TestBridgeIsMadeAgain(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	s.enforce(t, "internal", "a.example", "")
	s.expect(t, map[string]string{"a.example": "1.1.1.1"})
	s.host.IP(t, "link del "+bridge)
	s.host.IP(t, "link add "+bridge+" type bridge")
	s.bridge(t, 0, bridge)
	s.host.IP(t, "link set veth0 master "+bridge)
	eventually(t, "names are answered", func() (bool, error) { return s.lookup(t, "a.example") == "1.1.1.1", nil })
}

// A second filter waits for the end of the first.
func TestSuccessor(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	p := s.enforce(t, "internal", "a.example", "")
	first := s.process
	s.child.Identity = "second"
	s.start(t)
	s.expect(t, map[string]string{"a.example": "1.1.1.1"})
	one, err := s.dir.Process()
	if err != nil || one == nil || *one != (dnsfilter.Process{PID: first.Process.Pid}) {
		t.Fatalf("the first is %+v, %v", one, err)
	}
	if err := s.dir.End(*one, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = first.Wait()
	eventually(t, "the second serves", func() (bool, error) { return s.dir.Serves(p) })
	s.expect(t, map[string]string{"a.example": "1.1.1.1"})
	// Its PID may be that of another process by now.
	for _, stale := range []dnsfilter.Process{*one, {PID: s.process.Process.Pid, Identity: "first"}, {PID: os.Getpid(), Identity: "second"}} {
		if err := s.dir.End(stale, syscall.SIGKILL); err != nil {
			t.Errorf("%+v: %v", stale, err)
		}
	}
	if two, err := s.dir.Process(); err != nil || two == nil || *two != (dnsfilter.Process{PID: s.process.Process.Pid, Identity: "second"}) {
		t.Errorf("the second is %+v, %v", two, err)
	}
}

// A filter that starts on a full disk cannot say what it is, and answers.
func TestAFilterStartsOnAFullDisk(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill(syscall.SIGKILL)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s.dir, s.child.Dir = dnsfilter.Dir(dir), dnsfilter.Dir(dir)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	p := s.rules(t, bridge, "internal", "a.example", "")
	if err := s.dir.Write(p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/full", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	s.start(t)
	eventually(t, "names are answered", func() (bool, error) { return s.lookup(t, "a.example") == "1.1.1.1", nil })
	if one, err := s.dir.Process(); one != nil || err == nil {
		t.Errorf("it is %+v, %v", one, err)
	}
}

// A policy that is written again is not missing for a moment.
func TestWrittenAgain(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	p := s.enforce(t, "internal", "a.example", "")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if err := s.dir.Write(p); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for range 200 {
		if got := s.lookup(t, "a.example"); got != "1.1.1.1" {
			t.Fatal(got)
		}
	}
	close(stop)
	<-stopped
}

// Names that both policies have are answered while one replaces the other.
func TestReplacementFailsNoName(t *testing.T) {
	s := newSite(t)
	s.start(t)
	s.names.has("a.example", "a.example. 600 A 1.1.1.1")
	s.enforce(t, "internal", "a.example", "")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				s.enforce(t, "internal", fmt.Sprintf("a.example x%d.example", i%2), "")
			}
		}
	}()
	for range 30 {
		if got := s.lookup(t, "a.example"); got != "1.1.1.1" {
			t.Error(got)
		}
	}
	close(stop)
	<-stopped
	s.reaches(t, true, "1.1.1.1:443")
}
