//go:build docker

package shim

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func (c *container) outboxPath(r execjournal.Request) string {
	return execjournal.ContainerOut + "/" + execjournal.AgentsDir + "/" + execjournal.OutboxName(r.ExecID)
}

func TestContainerAgentIsPromptedAndSpeaks(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	r := c.start(c.agent(`id -u; agbox-shim status ready
		while read -r line; do echo "answer to $line"; agbox-shim checkpoint "after $line" || exit 1; done; agbox-shim done`))
	for i := range 3 {
		line := fmt.Sprintf("prompt %d", i)
		c.give(r, line+"\n")
		c.says(r, "answer to "+line+"\n")
	}
	c.closeInbox(r)
	if j := c.ended(r); j.ExitCode != 0 {
		_, errOut := c.logs(r)
		t.Errorf("%+v %s", j, errOut)
	}
	want := []string{
		`{"type":"status","text":"ready"}`, `{"type":"checkpoint","text":"after prompt 0"}`,
		`{"type":"checkpoint","text":"after prompt 1"}`, `{"type":"checkpoint","text":"after prompt 2"}`, `{"type":"done"}`,
	}
	if got := c.outbox(r); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if out, _ := c.logs(r); !strings.HasPrefix(out, "1000\n") {
		t.Errorf("%q", out)
	}
	// Another user of the sandbox may write words. No user may read or write the inbox, or the outbox of an exec that has ended.
	other := c.agent(`agbox-shim status mine; cat /run/agbox/ctl/exec/*.inbox; echo x >> /run/agbox/ctl/exec/$AGBOX_EXEC_ID.inbox
		echo x > "$OUTBOX" || exit 7`)
	other.User, other.Env["OUTBOX"] = "other", c.outboxPath(r)
	c.give(other, "secret")
	j, out := c.do(other)
	if j.ExitCode != 7 || strings.Contains(out, "secret") || !slices.Equal(c.outbox(other), []string{`{"type":"status","text":"mine"}`}) {
		t.Errorf("another user: %+v, %q, %q", j, out, c.outbox(other))
	}
	if got := c.outbox(r); !slices.Equal(got, want) {
		t.Errorf("after another user wrote: %q", got)
	}
	if _, _, err := c.dir.ReadLines(sandbox, r.ExecID, execjournal.Outbox, 1<<20, 100, false); err == nil {
		t.Error("an outbox that was cut short is not told")
	}
}

func TestContainerInboxSurvivesADaemonThatIsKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	newContainer(t).tornAppends(20)
}

func TestContainerRestartBeginsNewInboxes(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	r := c.start(c.agent("cat"))
	c.give(r, "one\n")
	c.says(r, "one\n")
	docker(t, "kill", c.name)
	c.phase(r, execphase.Lost)
	c.give(r, "to nobody\n")
	next := c.start(c.agent("cat; echo end"))
	c.give(next, "two\n")
	docker(t, "start", c.name)
	c.says(next, "two\n")
	c.give(next, "three\n")
	c.says(next, "three\n")
	docker(t, "stop", "-t", "20", c.name)
	if j := c.look(next).Journal; !j.Stopped {
		t.Errorf("%+v", j)
	}
	if out, _ := c.logs(r); out != "one\n" {
		t.Errorf("the first: %q", out)
	}
	if s := c.look(r); s.Phase != execphase.Lost {
		t.Errorf("the first is %v", s.Phase)
	}
}

func TestContainerAgentThatNeverReads(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	r := c.start(c.agent("echo up; exec sleep 1000"))
	c.says(r, "up\n")
	for range 16 {
		c.give(r, strings.Repeat("x", 1<<20))
	}
	if j, out := c.do(c.request("echo", "beside it")); j.ExitCode != 0 || out != "beside it\n" {
		t.Errorf("%+v, %q", j, out)
	}
	for _, pid := range c.hostPids() {
		if status := c.read("/proc/" + pid + "/status"); strings.Contains(status, "agbox-shim") {
			if kb, _ := strconv.Atoi(strings.Fields(field(status, "RssAnon"))[0]); kb > 32<<10 {
				t.Errorf("a shim has %d kB", kb)
			}
		}
	}
	c.cancel(r)
	if j := c.ended(r); !j.Cancelled {
		t.Errorf("%+v", j)
	}
}

// It must not run in parallel: it counts all allocations of the process.
func TestContainerLineOfAGibibyte(t *testing.T) {
	c := newContainer(t)
	r := c.agent(`echo first; dd if=/dev/zero bs=1M count=1024 2>/dev/null; echo; echo last; agbox-shim done; exec sleep 1000`)
	c.start(r)
	c.until("the command to be done", func() bool { return len(c.outbox(r)) == 1 })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var lines []string
	var at int64
	c.until("the last line", func() bool {
		more, next, err := c.dir.ReadLines(sandbox, r.ExecID, execjournal.Stdout, at, 1<<20, false)
		must(t, err)
		for _, l := range more {
			lines = append(lines, fmt.Sprintf("%.5s %d %v", strings.ReplaceAll(string(l.Data), "\x00", "0"), len(l.Data), l.Cut))
		}
		at = next
		return len(lines) > 0 && strings.HasPrefix(lines[len(lines)-1], "last")
	})
	runtime.ReadMemStats(&after)
	want := []string{"first 5 false", fmt.Sprintf("00000 %d true", execjournal.MaxLineBytes), "last 4 false"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("the reader allocated %d bytes in all", used)
	}
	for _, pid := range c.hostPids() {
		if status := c.read("/proc/" + pid + "/status"); strings.Contains(status, "agbox-shim") {
			if kb, _ := strconv.Atoi(strings.Fields(field(status, "RssAnon"))[0]); kb > 32<<10 {
				t.Errorf("a shim has %d kB", kb)
			}
		}
	}
	c.cancel(r)
	c.ended(r)
}

func TestContainerHostileOutboxes(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	for name, script := range map[string]string{
		"symlink":                  `ln -s /etc/passwd "$WORDS"`,
		"FIFO":                     `mkfifo "$WORDS"`,
		"device":                   `mknod "$WORDS" c 1 5`,
		"directory":                `mkdir "$WORDS"`,
		"symlink as the directory": `cd /; rm -r "$DIR"; ln -s /etc "$DIR"`,
	} {
		t.Run(name, func(t *testing.T) {
			r := c.agent(`rm "$OUTBOX" "$WORDS"; ` + script + `; exec cat`)
			r.User, r.Env["OUTBOX"] = "0", c.outboxPath(r)
			r.Env["WORDS"] = filepath.Dir(c.outboxPath(r)) + "/" + execjournal.WordsName(r.ExecID)
			r.Env["DIR"] = execjournal.ContainerOut + "/" + execjournal.AgentsDir
			must(t, c.dir.AddAgentWatch(sandbox, r.ExecID))
			c.start(r)
			c.give(r, "up\n")
			c.says(r, "up\n")
			must(t, c.dir.AddAgentWatch(sandbox, r.ExecID))
			lines, next, err := c.dir.ReadLines(sandbox, r.ExecID, execjournal.Outbox, 0, 1<<20, false)
			if err == nil || len(lines) != 0 || next != 0 {
				t.Errorf("%v, %d, %v", lines, next, err)
			}
			c.closeInbox(r)
			c.ended(r)
			c.do(c.root("rm -rf /run/agbox/out/agents"))
		})
	}
}

func (c *container) root(script string) execjournal.Request {
	r := c.sh(script)
	r.User = "0"
	return r
}

func TestContainerACPAgent(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	r := c.agent("")
	r.Command = []string{"agbox-shim", "acp", "--cwd=/workspace", "--", "sh", "-c", acpAgent}
	c.start(r)
	c.says(r, `"sessionId":"s1"`)
	c.give(r, `{"type":"prompt","prompt_id":"p","text":"hello"}`+"\n")
	c.says(r, `"stopReason":"end_turn"`)
	c.give(r, `{"type":"prompt","prompt_id":"p","text":"quit"}`+"\n")
	if j := c.ended(r); j.ExitCode != 5 {
		t.Errorf("%+v", j)
	}
}
