package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// agent returns a request like that of an agent's incarnation.
func (b *box) agent(script string) execjournal.Request {
	r := b.sh(script)
	r.ExecID = "agent-" + r.Nonce[len(r.Nonce)-4:] + ".1"
	r.Inbox = true
	r.Env = map[string]string{"AGBOX_AGENT_ID": strings.TrimSuffix(r.ExecID, ".1"), execjournal.ExecIDEnv: r.ExecID}
	return r
}

// give appends data to the inbox of r.
func (b *box) give(r execjournal.Request, text string) {
	b.Helper()
	size, err := b.dir.InboxSize(sandbox, r.ExecID)
	must(b, err)
	_, err = b.dir.AppendInbox(sandbox, r.ExecID, size, []byte(text))
	must(b, err)
}

func (b *box) closeInbox(r execjournal.Request) {
	b.Helper()
	must(b, b.dir.CloseInbox(sandbox, r.ExecID))
}

func TestInboxIsStandardInput(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	early := b.agent("cat; echo end")
	b.give(early, "before the start\n") // and before the request
	for _, r := range []execjournal.Request{early, b.agent("cat; echo end")} {
		b.start(r)
		for i := range 20 {
			line := fmt.Sprintf("prompt %d\n", i)
			b.give(r, line)
			b.says(r, line)
		}
		if s := b.look(r); s.Phase != execphase.Running {
			t.Errorf("%v before the close", s.Phase)
		}
		b.give(r, "last, without a newline")
		b.closeInbox(r)
		if j := b.ended(r); j.ExitCode != 0 {
			t.Errorf("%+v", j)
		}
		if out, _ := b.logs(r); !strings.HasSuffix(out, "prompt 19\nlast, without a newlineend\n") {
			t.Errorf("%q", out)
		}
	}
	if out, _ := b.logs(early); !strings.HasPrefix(out, "before the start\nprompt 0\n") {
		t.Errorf("%q", out)
	}
	empty := b.start(b.agent("cat"))
	b.closeInbox(empty)
	b.ended(empty)
	plain := b.start(b.sh("cat; ls -l /proc/self/fd/0"))
	b.ended(plain)
	if out, _ := b.logs(plain); !strings.HasSuffix(out, "/dev/null\n") {
		t.Errorf("standard input of another exec: %q", out)
	}
}

// An inbox may be larger than any pipe. The command receives it complete and once, however it was appended to.
func TestInboxThatIsLarge(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.agent("cat"))
	var want strings.Builder
	for i := range 60 {
		piece := strings.Repeat(fmt.Sprintf("%05d ", i), 20_000)
		want.WriteString(piece)
		b.give(r, piece)
	}
	b.closeInbox(r)
	b.ended(r)
	if out, _ := b.logs(r); out != want.String() {
		t.Errorf("%d bytes of %d, or others", len(out), want.Len())
	}
}

func TestCommandThatDoesNotReadBlocksNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.agent("echo up; while :; do echo on; sleep 0.01; done"))
	b.give(r, strings.Repeat("x", 1<<20))
	b.says(r, "up\n")
	pid := b.supervisor(r)
	out, _ := b.logs(r)
	b.output(r, func(now string) bool { return len(now) > len(out)+30 }) // its output is still copied
	before := cpuTicks(b, pid)
	b.output(r, func(now string) bool { return len(now) > len(out)+120 })
	if used := cpuTicks(b, pid) - before; used > 10 {
		t.Errorf("the supervisor used %d ticks while it had nothing to do", used)
	}
	b.cancel(r)
	if j := b.ended(r); !j.Cancelled {
		t.Errorf("%+v", j)
	}
}

// cpuTicks returns the CPU time of a process, in hundredths of a second.
func cpuTicks(b *box, pid int) (sum int) {
	b.Helper()
	line := b.read(fmt.Sprintf("/proc/%d/stat", pid))
	var user, system int
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	_, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	must(b, err)
	return user + system
}

func TestCommandThatClosesItsStandardInput(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	dir := t.TempDir()
	r := b.agent("read x; echo $x; exec <&-; echo closed; while ! test -e gate; do sleep 0.01; echo on; done; echo end")
	r.Cwd = dir
	b.start(r)
	b.give(r, "one\ntwo\n")
	b.says(r, "one\nclosed\n")
	b.give(r, strings.Repeat("more", 1<<18)) // no process can read it
	before := cpuTicks(b, b.supervisor(r))
	out, _ := b.logs(r)
	b.output(r, func(now string) bool { return len(now) > len(out)+120 })
	if used := cpuTicks(b, b.supervisor(r)) - before; used > 10 {
		t.Errorf("the supervisor used %d ticks while it had nothing to do", used)
	}
	must(t, os.WriteFile(filepath.Join(dir, "gate"), nil, 0o644))
	if j := b.ended(r); j.ExitCode != 0 {
		t.Errorf("%+v", j)
	}
}

// Children of an agent that has exited do not read its prompts and do not delay the record of its end.
func TestInboxIsNotForOrphans(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.agent(`exec 3<&0; (setsid sh -c 'cat <&3; echo orphan done' &); echo up; read x; exit 3`))
	b.says(r, "up\n")
	b.closeInbox(r)
	if j := b.ended(r); j.ExitCode != 3 {
		t.Errorf("%+v", j)
	}
	b.says(r, "orphan done\n")
	b.until("nothing to be left", func() bool { return b.remnants() == 0 })
}

func TestInboxOfADeadSupervisorIsNotRead(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.agent("cat"))
	b.give(r, "one\n")
	b.says(r, "one\n")
	b.killSupervisor(r)
	b.phase(r, execphase.Lost)
	b.give(r, "two\n")
	next := b.agent("cat")
	b.start(next)
	b.give(next, "three\n")
	b.says(next, "three\n")
	if out, _ := b.logs(r); out != "one\n" {
		t.Errorf("%q", out)
	}
	if out, _ := b.logs(next); out != "three\n" {
		t.Errorf("%q", out)
	}
	b.stop()
	if j := b.look(next).Journal; !j.Stopped {
		t.Errorf("%+v", j)
	}
}

// Without inotify PID 1 polls, and everything else is unchanged.
func TestInboxWithoutInotify(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.withoutInotify()
	b.boot()
	r := b.agent("cat")
	r.User = "0"
	b.start(r)
	for i := range 5 {
		line := fmt.Sprintf("prompt %d\n", i)
		b.give(r, line)
		b.says(r, line)
	}
	b.closeInbox(r)
	b.ended(r)
}
