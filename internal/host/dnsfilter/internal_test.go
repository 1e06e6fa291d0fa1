package dnsfilter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/netrules"
)

// Whatever an upstream server sends, an answer has records of the question alone, and no address that is not permitted.
func FuzzAnswer(f *testing.F) {
	for _, lines := range [][]string{
		{"a.example. 60 A 1.1.1.1", "a.example. 60 A 10.0.0.1"}, {"a.example. 60 CNAME b.", "b. 60 CNAME a.example."}, {"a.example. 60 AAAA ::ffff:10.0.0.1"},
		{`a.example. 60 HTTPS 1 . ipv4hint="10.0.0.1"`}, {"b. 60 A 1.1.1.1", "example. 60 SOA a. b. 1 2 3 4 5"},
	} {
		m := new(dns.Msg)
		m.SetQuestion("a.example.", dns.TypeA)
		m.Response = true
		for _, line := range lines {
			r, err := dns.NewRR(line)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, r)
		}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	names, _, err := netrules.NamesOf("internal", &agboxv1.NetworkSpec{Allow: []string{"a.example"}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	s := newSandbox(&filter{Config: Config{Limits: Limits{}.withDefaults()}}, "br-1")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil {
			return
		}
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeTXT} {
			var a resolution
			var end string
			a.aliases, a.records, end = follow(m.Answer, "a.example.", qtype)
			addrs, _ := s.permitted(&rules{names: names}, &a)
			a.shorten(time.Hour)
			for _, addr := range addrs {
				if !netrules.Public(addr) {
					t.Errorf("%s is permitted", addr)
				}
			}
			for _, r := range slices.Concat(a.aliases, a.records) {
				h := r.Header()
				if h.Ttl > 3600 || h.Rrtype != qtype && h.Rrtype != dns.TypeCNAME || h.Rrtype == qtype && !strings.EqualFold(h.Name, end) || strings.Contains(r.String(), "hint=") {
					t.Errorf("%s", r)
				}
			}
			if len(a.aliases) > maxAliases+1 {
				t.Errorf("%d aliases", len(a.aliases))
			}
		}
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	r := refusals{names: 3}
	now := time.Now()
	for i := range 1000 {
		r.add("a", fmt.Sprintf("%d.example", i%500), ReasonName, now)
	}
	r.add("b", "x.example", ReasonAddress, now)
	list := r.take()
	total := map[string]uint64{}
	for _, one := range list {
		total[one.SandboxID] += one.Count
	}
	if len(list) != 5 || total["a"] != 1000 || total["b"] != 1 {
		t.Errorf("%+v", list)
	}
	if list := r.take(); len(list) > 0 {
		t.Errorf("reported twice: %+v", list)
	}
}

func TestReportTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "refusals")
	report := ReportTo(path, func(err error) { t.Error(err) })
	one := Refusal{SandboxID: "a", Name: strings.Repeat("x", 200), Reason: ReasonName, Count: 1, Time: time.Now()}
	for range 30 {
		report(slices.Repeat([]Refusal{one}, 500))
	}
	for _, file := range []string{path, path + ".1"} {
		body, err := os.ReadFile(file)
		if err != nil || len(body) > 2*maxReport {
			t.Fatalf("%s: %d bytes, %v", file, len(body), err)
		}
		for line := range strings.Lines(string(body)) {
			var got Refusal
			if err := json.Unmarshal([]byte(line), &got); err != nil || got.Name != one.Name || !got.Time.Equal(one.Time) {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
}

func TestReportReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "refusals")
	report := ReportTo(path, func(err error) { t.Error(err) })
	n := uint64(0)
	write := func(some int) {
		var list []Refusal
		for range some {
			n++
			list = append(list, Refusal{SandboxID: "a", Name: strings.Repeat("x", 200), Count: n})
		}
		report(list)
	}
	var read uint64
	early := NewReportReader(path)
	defer early.Close()
	next := func(r *ReportReader) {
		t.Helper()
		list, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			if read++; one.Count != read {
				t.Fatalf("line %d after %d", one.Count, read-1)
			}
		}
	}
	next(early)
	for range 100 { // the file is replaced five times
		write(200)
		next(early)
	}
	write(7)
	late := NewReportReader(path)
	defer late.Close()
	next(early)
	if read != n {
		t.Errorf("read %d of %d", read, n)
	}
	write(3)
	next(late)
	if read != n {
		t.Errorf("read %d of %d, from the middle on", read, n)
	}
}

func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	servers := ResolvConf(path)
	for _, tc := range []struct{ text, want string }{
		{"", "[]"}, {"nameserver 127.0.0.53\nnameserver fd00::2\nsearch example\n", "[127.0.0.53:53 [fd00::2]:53]"}, {"nameserver 10.0.0.2\nnameserver nonsense\n", "[10.0.0.2:53]"},
	} {
		if tc.text != "" {
			if err := os.WriteFile(path+".new", []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		if got := fmt.Sprint(servers()); got != tc.want {
			t.Errorf("%q: %s, want %s", tc.text, got, tc.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := servers(); len(got) != 1 {
		t.Errorf("%v: a file that is being replaced leaves no server", got)
	}
}

// No later answer, and no replacement of the policy, shortens the time of an address.
func TestTimesOnlyGrow(t *testing.T) {
	last := map[netip.Addr]time.Duration{}
	fail := false
	f := &filter{Config: Config{Log: slog.New(slog.DiscardHandler), Limits: Limits{SandboxAddresses: 10}.withDefaults(), Admit: func(_ string, list []firewall.Admission) error {
		if fail {
			return firewall.ErrNoSet
		}
		for _, a := range list {
			last[a.Addr] = a.For
		}
		return nil
	}}}
	s := newSandbox(f, "br-1")
	replace := func(allow ...string) {
		names, _, err := netrules.NamesOf("internal", &agboxv1.NetworkSpec{Allow: allow}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.replace(&rules{names: names})
	}
	a := netip.MustParseAddr("1.1.1.1")
	admit := func(name string, d time.Duration, addrs ...netip.Addr) error {
		sets, _ := s.rules.Load().names.Answers(name)
		return s.admit(sets, name, addrs, d)
	}
	replace("a.example", "*.b.example")
	for _, d := range []time.Duration{time.Hour, time.Minute} {
		if err := admit("a.example", d, a); err != nil || last[a] < 59*time.Minute {
			t.Errorf("%s, %v", last[a], err)
		}
	}
	fail = true
	replace("a.example:443")
	if done, err := s.settle(); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	fail, last[a] = false, 0
	if done, err := s.settle(); !done || err != nil || last[a] < 59*time.Minute {
		t.Errorf("%v, %v, %s", done, err, last[a])
	}
	replace("*.b.example")
	last[a] = 0
	if done, err := s.settle(); !done || err != nil || last[a] != 0 {
		t.Errorf("%v, %v, %s", done, err, last[a])
	}
	var many []netip.Addr
	for i := range 10 {
		many = append(many, netip.AddrFrom4([4]byte{1, 1, 2, byte(i)}))
	}
	if err := admit("x.b.example", time.Millisecond, many...); err != nil {
		t.Error(err)
	}
	if err := admit("y.b.example", time.Minute, a); !errors.Is(err, errFull) {
		t.Errorf("%v", err)
	}
	if err := admit("x.b.example", time.Millisecond, many...); err != nil {
		t.Errorf("known addresses: %v", err)
	}
	s.pruned = time.Time{}
	time.Sleep(5 * time.Millisecond)
	if err := admit("y.b.example", time.Minute, a); err != nil {
		t.Errorf("after the others have timed out: %v", err)
	}
}

func TestDir(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "dns"))
	if bridges, err := d.Bridges(); err != nil || len(bridges) > 0 {
		t.Errorf("%v, %v", bridges, err)
	}
	p := Policy{SandboxID: "a", Bridge: "br-1", Mode: "internal", Allow: []string{"a.example"}}
	if ok, err := d.Serves(p); err != nil || ok {
		t.Errorf("%v, %v", ok, err)
	}
	for range 2 {
		if err := d.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	if bridges, err := d.Bridges(); err != nil || !slices.Equal(bridges, []string{"br-1"}) {
		t.Errorf("%v, %v", bridges, err)
	}
	body, err := os.ReadFile(d.path("br-1.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.replace("br-1"+servedSuffix, []byte(sum(body))); err != nil {
		t.Fatal(err)
	}
	if ok, err := d.Serves(p); err != nil || ok {
		t.Errorf("without a filter: %v, %v", ok, err)
	}
	lock, err := d.lock(t.Context(), runningName)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := d.Serves(p); err != nil || !ok {
		t.Errorf("%v, %v", ok, err)
	}
	other := p
	other.Deny = []string{"b.example"}
	if ok, err := d.Serves(other); err != nil || ok {
		t.Errorf("another policy: %v, %v", ok, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*lockRetry)
	defer cancel()
	if _, err := d.lock(ctx, runningName); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	lock.Close()
	for range 2 {
		if err := d.Remove("br-1"); err != nil {
			t.Error(err)
		}
	}
	if ok, err := d.Serves(p); err != nil || ok {
		t.Errorf("%v, %v", ok, err)
	}
}

// Connections to these reach IPv4.
func TestAddressesOfTheHostInTheFormOfIPv6(t *testing.T) {
	h := hostAddrs{until: time.Now().Add(time.Hour), known: map[netip.Addr]bool{netip.MustParseAddr("9.9.9.9"): true}}
	for text, want := range map[string]bool{"::ffff:9.9.9.9": true, "::ffff:127.0.0.1": true, "::ffff:0.0.0.0": true, "::ffff:9.9.9.8": false} {
		if got := h.has(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
