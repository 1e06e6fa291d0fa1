package shim

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// by runs r and returns the process ID of its supervisor, once init knows that it waits for another exec or has exited: then it frees the lock.
func (b *box) by(r execjournal.Request) (supervisor int, waits bool) {
	b.Helper()
	b.ended(b.start(r))
	out, _ := b.logs(r)
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	must(b, err)
	lock, err := os.Open(filepath.Join(b.dir.Paths(sandbox).Logs, execjournal.LockName(r.ExecID)))
	must(b, err)
	defer lock.Close()
	b.until("its lock to be free", func() bool { return execjournal.Flock(int(lock.Fd()), syscall.LOCK_SH) == nil })
	return pid, lastArg(pid) == unassigned
}

func TestASupervisorTakesOneExecAfterAnother(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	fds := func(pid int) int {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		must(t, err)
		return len(list)
	}
	first, waits := b.by(b.sh("echo $PPID"))
	open := fds(first)
	for i := range 20 {
		r := b.sh(fmt.Sprintf("echo $PPID; echo error >&2; exit %d", i))
		if r.Live = i%2 == 0; i%3 == 0 {
			r.BootID = bootID()
		}
		pid, still := b.by(r)
		if !waits || !still || pid != first {
			t.Fatalf("exec %d: supervised by %d, waits %t; before by %d, waits %t", i, pid, still, first, waits)
		}
		if j := b.look(r).Journal; j.ExitCode != i || j.StderrBytes != 6 {
			t.Errorf("%+v", j)
		}
	}
	if now := fds(first); now != open {
		t.Errorf("%d descriptors are open, were %d", now, open)
	}
	must(t, syscall.Kill(first, syscall.SIGKILL))
	if pid, _ := b.by(b.sh("echo $PPID")); pid == first {
		t.Error("a dead supervisor has taken an exec")
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir.Paths(sandbox).Logs, ".*.tmp")); len(left) > 2 { // one of the one that was killed
		t.Errorf("left: %q", left)
	}
}

// TestSupervisorsThatTakeNoOtherExec: something of the exec is left, or the supervisor has given up its privileges.
func TestSupervisorsThatTakeNoOtherExec(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	parent := b.sh("sleep 1000 >/dev/null 2>&1 & echo $PPID")
	b.ended(b.start(parent))
	out, _ := b.logs(parent)
	next, _ := b.by(b.sh("echo $PPID"))
	if strings.TrimSpace(out) == strconv.Itoa(next) {
		t.Error("a supervisor with a living child has taken another exec")
	}
	stdin := b.withStdin("echo $PPID")
	if _, waits := b.by(stdin); waits {
		t.Error("a supervisor with a standard input waits")
	}
	cancelled := b.sh("echo $PPID; sleep 1000")
	b.output(b.start(cancelled), func(out string) bool { return strings.HasSuffix(out, "\n") })
	b.cancel(cancelled)
	if j := b.ended(cancelled); !j.Cancelled {
		t.Errorf("%+v", j)
	}
	if j := b.ended(b.start(b.sh("exit 5"))); j.ExitCode != 5 || j.Cancelled {
		t.Errorf("after a cancelled exec: %+v", j)
	}
}

// TestReadySupervisorsAreBounded: PID 1 dismisses those that are too many, and all after a while.
func TestReadySupervisorsAreBounded(t *testing.T) {
	t.Parallel()
	var r ready
	now := time.Now()
	for i := range readyMost + 3 {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		must(t, err)
		defer syscall.Close(pair[1])
		r.keep(worker{pid: 1000 + i, link: pair[0]}, now.Add(time.Duration(i)*time.Second))
	}
	if len(r.all) != readyMost {
		t.Errorf("%d wait", len(r.all))
	}
	if !r.ended(1000) || r.ended(1000) || r.ended(1000+readyMost) {
		t.Error("a dead one counts as alive, or a live one as dead")
	}
	r.prune(now.Add(readyFor + 2*time.Second))
	if len(r.all) != readyMost-3 || r.all[0].pid != 1003 {
		t.Errorf("after a while %v wait", r.all)
	}
	r.prune(now.Add(time.Hour))
	if len(r.all) != 0 {
		t.Errorf("after an hour %v wait", r.all)
	}
}

// TestARequestOfAnEarlierBootStartsNothing, unless it is the host's boot although this kernel has another.
func TestARequestOfAnEarlierBootStartsNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.dir.Boot = "the host's"
	must(t, b.dir.Release(sandbox))
	b.boot()
	stale, private := b.sh("exit 3"), b.sh("exit 4")
	stale.BootID, private.BootID = "an earlier one", "the host's"
	b.start(stale)
	if j := b.ended(b.start(private)); j.ExitCode != 4 {
		t.Errorf("%+v", j)
	}
	time.Sleep(rescanEvery / 10) // a shorter pause only makes the test easier
	if s := b.look(stale); s.Journal != (execjournal.Journal{}) {
		t.Errorf("%+v", s)
	}
}
