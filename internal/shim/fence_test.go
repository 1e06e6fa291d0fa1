package shim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestKilledSupervisorLosesTheExecAndItsTree(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.sh("(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &); echo $$; sleep 1000"))
	other := b.start(b.sh("echo up; sleep 1000"))
	b.says(other, "up\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(b.says(r, "\n")))
	b.killSupervisor(r)
	b.phase(r, execphase.Lost)
	if alive(pid) {
		t.Error("the lock is free, but the command lives")
	}
	if n := b.remnants(); n != 2+0 && n != 3 { // the other supervisor, its shell, perhaps its sleep
		t.Errorf("%d processes are left", n)
	}
	b.until("the bell", func() bool {
		_, err := os.Stat(filepath.Join(b.paths.Logs, execjournal.LostName(r.ExecID)))
		return err == nil
	})
	b.cancel(other)
	if j := b.ended(other); !j.Cancelled {
		t.Errorf("the other exec: %+v", j)
	}
}

func TestManyExecsAtOnceRunOnceEach(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	dir := t.TempDir()
	var all []execjournal.Request
	for i := range 50 {
		all = append(all, b.sh(fmt.Sprintf("echo x >> %s/%d; echo %d; exit %d", dir, i, i, i)))
	}
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() { _ = b.dir.Start(sandbox, r) })
	}
	wg.Wait()
	for i, r := range all {
		if j := b.ended(r); j.ExitCode != i {
			t.Errorf("exec %d: %+v", i, j)
		}
		if out, _ := b.logs(r); out != fmt.Sprintf("%d\n", i) {
			t.Errorf("exec %d: output %q", i, out)
		}
		if ran := b.read(filepath.Join(dir, strconv.Itoa(i))); ran != "x\n" {
			t.Errorf("exec %d ran %q", i, ran)
		}
	}
	b.until("all supervisors to go", func() bool { return b.remnants() == 0 })
}

func TestCloseAndStartHaveOneOutcome(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	dir := t.TempDir()
	closed, ran := 0, 0
	for i := 0; i < 60; i += everyInShort(4) {
		marker := filepath.Join(dir, strconv.Itoa(i))
		r := b.start(b.request("touch", marker))
		time.Sleep(time.Duration(i) * time.Millisecond / 2) // spreads the calls over the start of a supervisor
		s, err := b.dir.Close(sandbox, r.ExecID, r.Nonce, "the sandbox stops")
		if err != nil {
			t.Fatal(err)
		}
		if s.Phase != execphase.Closed {
			ran++
			if j := b.ended(r); j.ExitCode != 0 {
				t.Errorf("%+v", j)
			}
			b.read(marker)
			continue
		}
		closed++
		b.until("its supervisor to go", func() bool { return b.supervisor(r) == 0 })
		b.ended(b.start(b.request("true"))) // a later rescan changes nothing
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("exec %d ran although it was closed", i)
		}
	}
	t.Logf("%d closed, %d ran", closed, ran)
}

func TestRequestsOutliveTheContainer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	done, pending := b.start(b.request("true")), b.sh("exit 4")
	b.boot()
	b.ended(done)
	b.stop()
	b.start(pending)
	if s := b.look(pending); s.Phase != execphase.NotStarted {
		t.Fatalf("%v without init", s.Phase)
	}
	first := b.look(done).Journal
	b.boot()
	if j := b.ended(pending); j.ExitCode != 4 {
		t.Errorf("%+v", j)
	}
	if j := b.look(done).Journal; j != first {
		t.Errorf("the journal of an ended exec changed: %+v, was %+v", j, first)
	}
}

func TestSupervisorWithoutItsLockRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	marker := filepath.Join(t.TempDir(), "ran")
	r := b.start(b.request("touch", marker))
	self, err := os.Executable()
	must(t, err)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	link := os.NewFile(uintptr(pair[1]), "link")
	defer link.Close()
	other, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	must(t, err)
	defer other.Close()
	_, err = unix.Write(pair[0], []byte{1})
	must(t, err)
	must(t, handOver(pair[0], r.ExecID, int(other.Fd())))
	for want, files := range map[string][]*os.File{"the lock was not handed over": {other, link}, "only init starts": nil} {
		cmd := exec.Command(self, execVerb, unassigned)
		cmd.Env = append(os.Environ(), placesEnv+"="+b.paths.Ctl+":"+b.paths.Logs+":"+b.paths.Out)
		cmd.ExtraFiles = files
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s", err, out)
		}
	}
	unix.Close(pair[0])
	if s := b.look(r); s.Phase != execphase.NotStarted {
		t.Errorf("%v", s.Phase)
	}
}

func TestLockHeldBySomebodyElseDelaysTheStart(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.request("true")
	f, err := os.OpenFile(filepath.Join(b.paths.Logs, execjournal.LockName(r.ExecID)), os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB))
	b.start(r)
	b.ended(b.start(b.request("true"))) // init has tried the lock by then
	if s := b.look(r); s.Phase != execphase.NotStarted {
		t.Errorf("%v while the lock was held", s.Phase)
	}
	must(t, f.Close())
	b.ended(r)
}

// TestLocksThatOthersMayOpenAreReplaced: a lock on a file that other users may open does not count. A symlink and a FIFO are no lock files.
func TestLocksThatOthersMayOpenAreReplaced(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for name, plant := range map[string]func(path string) error{
		"open to all": func(path string) error {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
			if err == nil {
				t.Cleanup(func() { f.Close() })
				err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			}
			return err
		},
		"symlink":      func(path string) error { return os.Symlink("/etc/passwd", path) },
		"FIFO":         func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"left by kill": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		r := b.request("true")
		if err := plant(filepath.Join(b.paths.Logs, execjournal.LockName(r.ExecID))); err != nil {
			t.Fatal(err)
		}
		if j := b.ended(b.start(r)); j.ExitCode != 0 {
			t.Errorf("%s: %+v", name, j)
		}
		info, err := os.Lstat(filepath.Join(b.paths.Logs, execjournal.LockName(r.ExecID)))
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}
