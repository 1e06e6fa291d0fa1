package try_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/try"
	"github.com/agbox/agbox/internal/testing/netns"
)

// TestMain makes the test's program that of the children of the self-test, too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == attack.Verb {
		if err := try.Run(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The self-test reaches what answers and what refuses in its network namespace, counts an answer of DNS with data only, and leaves nothing.
func TestRunReachesWhatIsThere(t *testing.T) {
	ns := netns.New(t, "attack")
	ns.IP(t, "addr add 10.9.9.1/32 dev lo")
	ns.IP(t, "addr add 10.9.9.2/32 dev lo")
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var results []attack.Result
	err := ns.Do(func() error {
		var lc net.ListenConfig
		web, err := lc.Listen(context.Background(), "tcp", "10.9.9.1:80")
		if err != nil {
			return err
		}
		defer web.Close()
		for _, server := range []struct {
			address string
			answers uint16
		}{{"10.9.9.1:53", 13}, {"10.9.9.2:53", 0}} {
			conn, err := lc.ListenPacket(context.Background(), "udp", server.address)
			if err != nil {
				return err
			}
			defer conn.Close()
			go names(conn, server.answers)
		}
		var out bytes.Buffer
		if err := try.Run([]string{"host=10.9.9.1", "host=10.9.9.1", "sandbox=10.9.9.2", "dns=10.9.9.2", "later=10.9.9.1"}, &out); err != nil {
			return err
		}
		results, err = attack.ParseResults(out.Bytes())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	of := func(check string) attack.Result {
		t.Helper()
		i := slices.IndexFunc(results, func(r attack.Result) bool { return r.Check == check })
		if i < 0 {
			t.Fatalf("no result of %s", check)
		}
		return results[i]
	}
	host := of(attack.Host) // its DNS server does not answer a byte
	if host.Tried != 15 || len(host.Done) != 14 {
		t.Errorf("host: %+v", host)
	}
	web := attack.Success{What: "10.9.9.1:80/tcp answers", To: netip.MustParseAddrPort("10.9.9.1:80"), Protocol: "tcp", Answers: true}
	if !slices.Contains(host.Done, web) {
		t.Errorf("the web server is not there: %+v", host.Done)
	}
	if other := of(attack.Sandbox); len(other.Done) != 14 {
		t.Errorf("sandbox: %+v", other)
	}
	dns := of(attack.DNS)
	if i := slices.IndexFunc(dns.Done, func(s attack.Success) bool { return s.To == netip.MustParseAddrPort("10.9.9.1:53") }); i < 0 {
		t.Errorf("dns: %+v", dns)
	}
	if slices.ContainsFunc(dns.Done, func(s attack.Success) bool { return s.To.Addr() == netip.MustParseAddr("10.9.9.2") }) {
		t.Errorf("an answer without names counts: %+v", dns)
	}
	if lan := of(attack.LAN); lan.Tried != 0 {
		t.Errorf("lan: %+v", lan)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// names answers all questions with a number of answers, without their data.
func names(conn net.PacketConn, answers uint16) {
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if n < 12 {
			continue
		}
		buf[2] |= 0x80
		binary.BigEndian.PutUint16(buf[6:], answers)
		_, _ = conn.WriteTo(buf[:n], from)
	}
}

func TestRunRefusesATargetThatIsNone(t *testing.T) {
	for _, arg := range []string{"host=nowhere", "--flood=pids", "--flood=pids:8193", "--flood=mount:1", "--flood=memory_limit:-1"} {
		if err := try.Run([]string{arg}, &bytes.Buffer{}); err == nil {
			t.Errorf("%s is accepted", arg)
		}
	}
}

// What root may do is found also where there is no directory for temporary files.
func TestRunWithoutTmp(t *testing.T) {
	ns := netns.New(t, "attack-tmp")
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	var out bytes.Buffer
	if err := ns.Do(func() error { return try.Run(nil, &out) }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"what":"a tmpfs"`, `"what":"a device file"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is not in %s", want, out.String())
		}
	}
}

// A process that may not have the sockets has reached nothing, and says so.
func TestRunWithoutSockets(t *testing.T) {
	ns := netns.New(t, "attack-few")
	ns.IP(t, "addr add 10.9.9.1/32 dev lo")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	err = ns.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 10; exec "$@"`, "sh", self, attack.Verb, "host=10.9.9.1").CombinedOutput()
		return err
	})
	if err == nil || !strings.Contains(string(out), "too many open files") {
		t.Errorf("%v: %s", err, out)
	}
}
