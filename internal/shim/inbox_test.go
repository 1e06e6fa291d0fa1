package shim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestInboxIsCreatedAfterTheStart(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	dir := filepath.Join(b.paths.Ctl, execjournal.ExecDir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	b.boot()
	time.Sleep(100 * time.Millisecond) // let init observe that no file exists; a shorter pause only makes the test easier
	if _, err := b.dir.Prepare(sandbox); err != nil {
		t.Fatal(err)
	}
	b.ended(b.start(b.request("true")))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := b.dir.Prepare(sandbox); err != nil {
		t.Fatal(err)
	}
	b.ended(b.start(b.request("true")))
}

// The kernel bounds the number of inotify instances for each user of the host. In a new user namespace init gets none, and rescans more
// often. With rescanEvery every exec but the first would wait the whole interval, because the rescan that started the previous exec has
// just run. On a busy host some execs may take that long, but not all.
func TestWithoutInotify(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.withoutInotify()
	b.boot()
	var all []execjournal.Request
	for fast := false; !fast; {
		r := b.request("true")
		r.User = "0"
		begin := time.Now()
		b.ended(b.start(r))
		all = append(all, r)
		fast = len(all) > 1 && time.Since(begin) < rescanEvery/2
		if !fast && len(all) == 12 {
			t.Fatal("no exec was started before a rescan of the usual interval")
		}
	}
	if os.Geteuid() == 0 {
		for _, r := range all {
			if j := b.look(r).Journal; j.ExitCode != 0 {
				t.Errorf("%+v", j)
			}
		}
	}
}

// withoutInotify runs init where the kernel gives it no inotify instance, or skips the test.
func (b *box) withoutInotify() {
	b.Helper()
	b.wrap = func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
			GidMappingsEnableSetgroups: os.Geteuid() == 0,
		}
		cmd.Args[len(cmd.Args)-1] = "--default-user=0"
	}
	if probe := exec.Command("true"); !canStart(b, probe) {
		b.Skip("this kernel makes no user namespace for us")
	}
}

func canStart(b *box, cmd *exec.Cmd) bool {
	b.wrap(cmd)
	cmd.Args = []string{"sh", "-c", "echo 0 > /proc/sys/user/max_inotify_instances"}
	return cmd.Run() == nil
}

func TestHostileFilesInTheWay(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := func(name string) { must(t, os.Symlink(victim, filepath.Join(b.paths.Logs, name))) }
	fifo := func(name string) { must(t, syscall.Mkfifo(filepath.Join(b.paths.Logs, name), 0o644)) }

	r := b.request("echo", "x")
	link(execjournal.StdoutName(r.ExecID))
	if j := b.ended(b.start(r)); j.ErrorCode != execjournal.ErrorStartFailed {
		t.Errorf("symlink as a log: %+v", j)
	}
	r = b.request("echo", "x")
	fifo(execjournal.StderrName(r.ExecID))
	if j := b.ended(b.start(r)); j.ErrorCode != execjournal.ErrorStartFailed {
		t.Errorf("FIFO as a log: %+v", j)
	}
	marker := filepath.Join(t.TempDir(), "ran")
	r = b.request("touch", marker)
	link(execjournal.JournalName(r.ExecID))
	b.start(r)
	r2 := b.request("true")
	link(execjournal.LockName(r2.ExecID))
	b.start(r2)
	for _, temp := range []string{"end", "journal", "lock"} {
		r3 := b.request("true")
		link(execjournal.TempName(r3.ExecID, temp))
		if j := b.ended(b.start(r3)); j.ExitCode != 0 {
			t.Errorf("symlink as a temporary file: %+v", j)
		}
	}
	if s := b.look(r); s.Phase != execphase.Foreign {
		t.Errorf("symlink as a journal: %v", s.Phase)
	}
	if j := b.ended(r2); j.ExitCode != 0 {
		t.Errorf("symlink as a lock: %+v", j)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a command ran without its journal")
	}
	if b.read(victim) != "precious" {
		t.Error("a file outside was written")
	}
}

func TestInvalidRequestIsRefused(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	put := func(r execjournal.Request, data string) {
		path := filepath.Join(b.paths.Ctl, execjournal.ExecDir, execjournal.RequestName(r.ExecID))
		must(t, os.WriteFile(path+".new", []byte(data), 0o600))
		must(t, os.Rename(path+".new", path))
	}
	r := b.request("true")
	put(r, fmt.Sprintf(`{"version":99,"exec_id":%q,"nonce":%q,"command":["true"]}`, r.ExecID, r.Nonce))
	if j := b.ended(r); j.ErrorCode != execjournal.ErrorStartFailed || !strings.Contains(j.Error, "apply --replace") {
		t.Errorf("%+v", j)
	}
	r = b.request("true")
	put(r, fmt.Sprintf(`{"version":1,"exec_id":%q,"nonce":%q,"command":["true"],"cwd":"rel"}`, r.ExecID, r.Nonce))
	if j := b.ended(r); j.ErrorCode != execjournal.ErrorStartFailed {
		t.Errorf("%+v", j)
	}
	r = b.request("true")
	put(r, "{ torn")
	b.ended(b.start(b.request("true")))
	b.ended(b.start(r)) // after it was rewritten, init starts it
	r = b.request("true")
	put(r, fmt.Sprintf(`{"version":1,"exec_id":%q,"nonce":%q,"command":["true"],"later":{"x":[1]}}`, r.ExecID, r.Nonce))
	if j := b.ended(r); j.ExitCode != 0 {
		t.Errorf("an unknown field: %+v", j)
	}
}
