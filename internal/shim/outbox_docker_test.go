//go:build docker

package shim

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// TestContainerOutboxIsBounded: user 1000 attacks the outboxes and all writable mounts. The sandbox's disk usage on the host stays small,
// and other execs continue.
func TestContainerOutboxIsBounded(t *testing.T) {
	c := newContainer(t)
	const limit = 1 << 20
	for name, attack := range map[string]string{
		"300 MB":              `dd if=/dev/zero of=$o bs=1M count=300`,
		"300 MB by many":      `for i in 1 2 3 4 5 6; do dd if=/dev/zero bs=1M count=50 >>$o & done; wait`,
		"a hole at 10 GB":     `dd if=/dev/zero of=$o bs=1M seek=10000 count=1`,
		"truncate":            `truncate -s 10G $o; : >$o`,
		"allocate":            `fallocate -l 300M $o; fallocate -l 300M ${o%.ndjson}.words`,
		"the file":            `cat /dev/zero >${o%.ndjson}.words; cat /dev/zero >>${o%.ndjson}.words; rm -f ${o%.ndjson}.words`,
		"a link":              `ln $o /run/agbox/out/agents/l; ln $o /run/agbox/out/l; ln -s /tmp/x /run/agbox/out/s`,
		"rename":              `mv $o /run/agbox/out/agents/r; mv $o /tmp/r; rm -f $o`,
		"many small files":    `for d in /run/agbox/out /run/agbox/out/agents /var/log/agents-sandbox; do for i in $(seq 100); do : >$d/f$i; mkdir $d/d$i; done; done`,
		"modes":               `chmod 777 $o /run/agbox/out /run/agbox/out/agents; chown 1000 $o; touch /run/agbox/out/x`,
		"what others said":    `timeout 1 cat $o`,
		"the supervisor's fd": `for f in /proc/1/fd/* /proc/$PPID/fd/*; do dd if=/dev/zero of=$f bs=1M count=300; done`,
	} {
		t.Run(name, func(t *testing.T) {
			r := c.agent(`o=/run/agbox/out/agents/$AGBOX_EXEC_ID.ndjson; agbox-shim status first; (
` + attack + `
) 2>/dev/null; echo on; exit 3`)
			r.User, r.OutboxLimitBytes, r.LogLimitBytes = "1000", limit, limit
			before, err := c.dir.Usage(sandbox)
			must(t, err)
			c.start(r)
			if j, out := c.do(c.sh("echo other")); j.ExitCode != 0 || out != "other\n" {
				t.Errorf("another exec: %+v %q", j, out)
			}
			if j := c.ended(r); j.ExitCode != 3 {
				t.Errorf("%+v", j)
			}
			after, err := c.dir.Usage(sandbox)
			must(t, err)
			t.Logf("%d bytes", after.Bytes-before.Bytes)
			if after.Bytes-before.Bytes > limit+256<<10 {
				t.Errorf("%d bytes on disk", after.Bytes-before.Bytes)
			}
			if got := c.outbox(r); len(got) == 0 || got[0] != `{"type":"status","text":"first"}` {
				t.Errorf("the outbox: %.100q", got)
			}
			if out, errOut := c.logs(r); !strings.HasSuffix(out, "on\n") {
				t.Errorf("%.100q %.300q", out, errOut)
			}
		})
	}
	for dir, suffix := range map[string]string{c.paths.Out: execjournal.AgentsDir, c.paths.Out + "/" + execjournal.AgentsDir: ".words"} {
		c.until("nothing else to be in "+dir, func() bool { // a FIFO goes after the end of its exec is recorded
			entries, err := os.ReadDir(dir)
			must(t, err)
			return !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), suffix) })
		})
	}
}
