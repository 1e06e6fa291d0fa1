//go:build docker

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// streams is what was said and done by each agent, without the times.
func (c *crew) streams() map[string]string {
	c.Helper()
	all := map[string]string{}
	for _, f := range formats {
		c.result(f.id, "stream")
		var b strings.Builder
		for _, e := range c.agentEvents(f.id) {
			e = proto.CloneOf(e)
			e.OccurredAt = nil
			if tr := e.GetTransition(); tr != nil {
				tr.OccurredAt = nil
			}
			raw := must(proto.MarshalOptions{Deterministic: true}.Marshal(e))(c)
			fmt.Fprintf(&b, "%q\n", raw)
		}
		all[f.id] = b.String()
	}
	return all
}

// TestKilledWhileAgentsStream: what is stored is what an undisturbed daemon stores.
func TestKilledWhileAgentsStream(t *testing.T) {
	t.Parallel()
	const prompt = "count 500 50" // nothing of the outbox, which has no order beside stdout
	calm, killed := newCrew(newDaemon(t, "", "")), newCrew(newDaemon(t, "", ""))
	for _, c := range []*crew{calm, killed} {
		c.hireAll()
		for _, f := range formats {
			c.tell(f.id, "stream", prompt)
		}
	}
	for range rounds {
		killed.killSometime(100 * time.Millisecond)
	}
	want := calm.streams()
	for id, got := range killed.streams() {
		if line, other := difference(got, want[id]); line != other {
			t.Errorf("%s: got\n%s\nwant\n%s", id, line, other)
		}
		if n := strings.Count(got, "\n"); n < 500 && id == "speaks-native" {
			t.Errorf("%d events", n)
		}
	}
}

// difference returns the first lines that differ.
func difference(a, b string) (string, string) {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i], bs[i]
		}
	}
	return fmt.Sprint(len(as), " lines"), fmt.Sprint(len(bs), " lines")
}

// TestHostileOutputHarmsNoOtherAgent: an agent does to its files what it likes. It can speak on, and so can its neighbour.
func TestHostileOutputHarmsNoOtherAgent(t *testing.T) {
	c := patient(t)
	c.hireAll()
	c.hire("neighbour", "native", "native")
	c.awaitAgent("neighbour", agentIdle)
	outbox := "o=/run/agbox/out/agents/$AGBOX_EXEC_ID.ndjson; "
	for i, attack := range []string{
		`raw \xff\xfe {"type":"message","text":"\xc3\x28"}`,
		`raw {"type":"assistant.compl`,
		`raw {"type":"message_part.updated","part":4294967295,"text":7}`,
		`raw {"jsonrpc":"2.0","id":10,"result":`,
		`raw [[[[[[[[[[`,
		"run " + outbox + `rm -f $o; ln -s /etc/passwd $o`,
		"run " + outbox + `rm -f $o; mkfifo $o`,
		"run " + outbox + `rm -f $o; mkdir $o`,
		"run " + outbox + `rm -rf $o; echo '{"type":"checkpoint","text":"mine"}' >$o; : >$o`,
		"run rm -rf /run/agbox/out/agents; ln -s / /run/agbox/out/agents",
	} {
		for _, f := range formats {
			id := fmt.Sprintf("attack-%d", i)
			c.tell(f.id, id, attack+"\necho still here")
			c.result(f.id, id)
			if turns := c.turns(f.id); !strings.HasSuffix(turns[len(turns)-1].GetContent(), "still here") {
				t.Errorf("%s after %s: %q", f.id, attack, turns[len(turns)-1].GetContent())
			}
		}
	}
	c.restart()
	for _, f := range append([]string{"neighbour"}, "speaks-native", "speaks-claude", "speaks-acp") {
		if got := c.ask(f, "finally", "echo all well"); got != "all well" {
			t.Errorf("%s says %q", f, got)
		}
		if got := c.moves(f); strings.Contains(got, "CRASHED") || strings.Contains(got, "EXITED") {
			t.Errorf("%s: %s", f, got)
		}
	}
	for _, turn := range c.turns("speaks-native") {
		if strings.Contains(turn.GetContent(), "root:") {
			t.Errorf("a file of the host was read: %q", turn.GetContent())
		}
	}
}

// TestALineOfAGibibyteIsPassedOver: within bounded memory, and what follows it is read.
func TestALineOfAGibibyteIsPassedOver(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[artifacts]\nexec_log_max_bytes = \"2GiB\"\n")
	c := newCrew(d)
	c.hire("flooder", "native", "native")
	c.tell("flooder", "flood", "flood 1024\necho still here")
	c.result("flooder", "flood")
	turns := c.turns("flooder")
	if last := turns[len(turns)-1].GetContent(); !strings.HasSuffix(last, "still here") || len(last) > 2<<20 {
		t.Errorf("%d bytes, ending in %q", len(last), last[max(0, len(last)-100):])
	}
	if mib := d.peakMemory() >> 20; mib > 700 { // with the race detector, which takes several times as much
		t.Errorf("agboxd took %d MiB", mib)
	}
	must(c.DeleteSandbox(c.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: c.box}))(t)
}

// peakMemory is the most that the daemon's process has taken, in bytes.
func (d *daemon) peakMemory() int64 {
	d.Helper()
	for line := range strings.Lines(d.read(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	d.Fatal("no VmHWM")
	return 0
}
