package main

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

	"github.com/agbox/agbox/internal/execjournal"
)

func TestCommandRunsAndItsResultIsRecorded(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, c := range []struct {
		name, script string
		code, signal int
		stdout       string
		stderr       string
	}{
		{"success", "echo out; echo err >&2", 0, 0, "out\n", "err\n"},
		{"exit code", "exit 7", 7, 0, "", ""},
		{"killed by a signal", "kill -9 $$", 137, 9, "", ""},
		{"writes to the names of its streams", "echo a > /dev/stdout; echo b > /dev/stderr", 0, 0, "a\n", "b\n"},
		{"reads an empty stdin", "cat", 0, 0, "", ""},
		{"runs in its own session", `test "$(cut -d' ' -f6 /proc/$$/stat)" = $$`, 0, 0, "", ""},
		{"inherits nothing but its streams", `cd /proc/$$/fd && echo [0-9]*`, 0, 0, "0 1 2 3\n", ""}, // 3 is the directory
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.start(b.sh(c.script))
			j := b.ended(r)
			stdout, stderr := b.logs(r)
			if j.ExitCode != c.code || j.Signal != c.signal || j.Cancelled || j.OOM || j.ErrorCode != "" {
				t.Errorf("result %+v, want code %d, signal %d", j, c.code, c.signal)
			}
			if stdout != c.stdout || stderr != c.stderr {
				t.Errorf("logs %q and %q", stdout, stderr)
			}
			if j.StdoutBytes != int64(len(stdout)) || j.StartedAtNanos == 0 || j.EndedAtNanos < j.StartedAtNanos || j.BootID == "" {
				t.Errorf("sizes, times or boot ID are wrong: %+v", j)
			}
		})
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.sh(`pwd; echo "$A|$HOME"`)
	r.Cwd, r.Env = "/usr", map[string]string{"A": "a = b", "HOME": "/h"}
	b.ended(b.start(r))
	if out, _ := b.logs(r); out != "/usr\na = b|/h\n" {
		t.Errorf("output %q", out)
	}
	r = b.request("env-tool")
	bin := t.TempDir()
	writeExecutable(t, filepath.Join(bin, "env-tool"), "#!/bin/sh\necho found\n")
	r.Env = map[string]string{"PATH": "/nowhere:" + bin + ":/bin:/usr/bin"}
	b.ended(b.start(r))
	if out, _ := b.logs(r); out != "found\n" {
		t.Errorf("PATH of the request was not used: %q", out)
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	dir := t.TempDir()
	writeExecutable(t, filepath.Join(dir, "orphan"), "#!/no/such/interpreter\n")
	writeExecutable(t, filepath.Join(dir, "noformat"), "\x01\x02")
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	secret := map[string]string{"TOKEN": "hunter2"}
	for _, c := range []struct {
		name string
		req  execjournal.Request
		code int
		want string
	}{
		{"not in PATH", execjournal.Request{Command: []string{"no-such-program"}}, 127, `"no-such-program" was not found`},
		{"no such file", execjournal.Request{Command: []string{"/no/such"}}, 127, "was not found"},
		{"no interpreter", execjournal.Request{Command: []string{filepath.Join(dir, "orphan")}}, 127, "interpreter"},
		{"not executable", execjournal.Request{Command: []string{plain}}, 126, "permission denied"},
		{"not a program", execjournal.Request{Command: []string{filepath.Join(dir, "noformat")}}, 126, "exec format"},
		{"a directory", execjournal.Request{Command: []string{dir}}, 126, "permission denied"},
		{"bad cwd", execjournal.Request{Command: []string{"true"}, Cwd: "/no/dir"}, 126, `"/no/dir"`},
		{"cwd is a file", execjournal.Request{Command: []string{"true"}, Cwd: plain}, 126, "not a directory"},
		{"unknown user", execjournal.Request{Command: []string{"true"}, User: "nobody-here"}, 126, `"nobody-here"`},
		{"unknown group", execjournal.Request{Command: []string{"true"}, User: "0:nobody-here"}, 126, `"nobody-here"`},
		{"too long", execjournal.Request{Command: []string{"true", strings.Repeat("x", 200<<10)}}, 126, "too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.request()
			r.Command, r.Cwd, r.User, r.Env = c.req.Command, c.req.Cwd, c.req.User, secret
			j := b.ended(b.start(r))
			if j.ErrorCode != execjournal.ErrorStartFailed || j.ExitCode != c.code || !strings.Contains(j.Error, c.want) || j.StartedAtNanos != 0 {
				t.Errorf("%+v, want code %d and %q", j, c.code, c.want)
			}
			if strings.Contains(j.Error, "hunter2") {
				t.Error("the error shows a variable")
			}
		})
	}
}

func TestCancelEndsTheWholeTree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		grace        int64
	}{
		{"a plain command", "echo up; exec sleep 1000", 5000},
		{"a child in its own session", "setsid sleep 1000 & echo up; wait", 5000},
		{"a daemon that forked twice", "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo up; sleep 1000", 5000},
		{"a stopped child", "sleep 1000 & kill -STOP $!; echo up; wait", 5000},
		{"a tree that ignores TERM", "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 1000; done' & echo up; while :; do sleep 1; done", 100},
		{"a child without its pipes that ignores TERM", "(trap '' TERM; exec sleep 1000 >/dev/null 2>&1) & echo up; wait", 100},
		{"a tree that goes on forking", "trap '' TERM; f() { while :; do (exec sleep 0.01) & done; }; f & f & echo up; wait", 50},
		{"no grace at all", "echo up; sleep 1000", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t).boot()
			r := b.sh(c.script)
			r.CancelGraceMillis = c.grace
			b.says(b.start(r), "up\n")
			b.cancel(r)
			j := b.ended(r)
			if !j.Cancelled || j.Stopped || j.ExitCode == 0 {
				t.Errorf("%+v", j)
			}
			list, _ := processes()
			for _, p := range below(list, b.cmd.Process.Pid, nil) {
				if p.parent != b.cmd.Process.Pid {
					t.Errorf("process %+v is left when the end is recorded", p)
				}
			}
			b.until("the supervisor to go", func() bool { return b.remnants() == 0 })
		})
	}
}

func TestCancelKeepsATrueResult(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.sh("sleep 1000 & exit 3")
	if j := b.ended(b.start(r)); j.ExitCode != 3 || j.Cancelled {
		t.Fatalf("%+v", j)
	}
	b.cancel(r)
	b.ended(b.start(b.sh("true"))) // init has seen the cancel by then
	if j := b.look(r).Journal; j.ExitCode != 3 || j.Cancelled {
		t.Errorf("%+v", j)
	}
	if b.remnants() < 2 {
		t.Error("the child that outlived its command was killed by a late cancel")
	}
	// A command that ends in order on TERM was still ended by the cancel.
	r = b.sh("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done")
	b.says(b.start(r), "up\n")
	b.cancel(r)
	if j := b.ended(r); !j.Cancelled || j.ExitCode != 0 {
		t.Errorf("%+v", j)
	}
	b.says(r, "bye\n")
}

func TestCancelOfAnotherNonceDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.sh("echo up; sleep 0.3; echo done"))
	b.says(r, "up\n")
	other := r
	other.Nonce = strings.Repeat("f", 32)
	b.cancel(other)
	if j := b.ended(r); j.Cancelled || j.ExitCode != 0 {
		t.Errorf("%+v", j)
	}
}

func TestCancelBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	marker := filepath.Join(t.TempDir(), "ran")
	r := b.request("touch", marker)
	b.cancel(r)
	b.start(r)
	b.boot()
	if j := b.ended(r); !j.Cancelled || j.ExitCode != 143 || j.StartedAtNanos != 0 {
		t.Errorf("%+v", j)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("it ran")
	}
}

func TestOutputOfAChildThatOutlivesItsCommand(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	gate := filepath.Join(t.TempDir(), "gate")
	r := b.sh("(while ! test -e " + gate + "; do sleep 0.02; done; echo late) & echo early")
	j := b.ended(b.start(r))
	if j.StdoutBytes != int64(len("early\n")) {
		t.Errorf("%+v", j)
	}
	writeExecutable(t, gate, "")
	b.output(r, func(s string) bool { return s == "early\nlate\n" })
	b.until("the supervisor to go", func() bool { return b.remnants() == 0 })
}

func TestAllOutputIsStoredWhenTheEndIsSeen(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, size := range []int{1, 4096, 65536, 65537, 5 << 20} {
		r := b.start(b.request("head", "-c", strconv.Itoa(size), "/dev/zero"))
		j := b.ended(r)
		if out, _ := b.logs(r); len(out) != size || j.StdoutBytes != int64(size) {
			t.Errorf("%d of %d bytes, journal says %d", len(out), size, j.StdoutBytes)
		}
	}
}

func TestLogLimitIsExact(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, c := range []struct {
		name, script string
		limit        int64
		stdout       int
		over         bool
	}{
		{"just as much", "head -c 1000 /dev/zero", 1000, 1000, false},
		{"one byte more, by a command that ends", "head -c 1001 /dev/zero", 1000, 1000, true},
		{"without end", "cat /dev/zero", 100_000, 100_000, true},
		{"without end, ignoring TERM and not stopping", "trap '' TERM; cat /dev/zero; while :; do echo x; done", 70_000, 70_000, true},
		{"on the other stream", "cat /dev/zero >&2", 10, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.sh(c.script)
			r.LogLimitBytes, r.CancelGraceMillis = c.limit, 100
			j := b.ended(b.start(r))
			stdout, stderr := b.logs(r)
			if len(stdout) != c.stdout || len(stderr) > int(c.limit) || j.LogLimit != c.over || j.Cancelled {
				t.Errorf("%d and %d bytes, %+v", len(stdout), len(stderr), j)
			}
		})
	}
}

func TestKilledSupervisorLosesTheExecAndItsTree(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.start(b.sh("(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &); echo $$; sleep 1000"))
	other := b.start(b.sh("echo up; sleep 1000"))
	b.says(other, "up\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(b.says(r, "\n")))
	if err := syscall.Kill(b.supervisor(r), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.phase(r, execjournal.Lost)
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
	for i := range 60 {
		marker := filepath.Join(dir, strconv.Itoa(i))
		r := b.start(b.request("touch", marker))
		time.Sleep(time.Duration(i) * time.Millisecond / 2) // spreads the calls over the start of a supervisor
		s, err := b.dir.Close(sandbox, r.ExecID, r.Nonce, "the sandbox stops")
		if err != nil {
			t.Fatal(err)
		}
		if s.Phase != execjournal.Closed {
			ran++
			if j := b.ended(r); j.ExitCode != 0 {
				t.Errorf("%+v", j)
			}
			b.read(marker)
			continue
		}
		closed++
		b.until("its supervisor to go", func() bool { return b.supervisor(r) == 0 })
		b.ended(b.start(b.request("true"))) // and a later look changes nothing
		if _, err := os.Stat(marker); err == nil {
			t.Errorf("exec %d ran although it was closed", i)
		}
	}
	t.Logf("%d closed, %d ran", closed, ran)
}

func TestStopWaitsForExecsAndForNothingElse(t *testing.T) {
	t.Parallel()
	t.Run("no exec", func(t *testing.T) {
		b := newBox(t).boot()
		b.ended(b.start(b.request("true")))
		if d := b.stop(); d > time.Second {
			t.Errorf("took %v", d)
		}
	})
	t.Run("an exec that obeys, and a child left by another", func(t *testing.T) {
		b := newBox(t).boot()
		left := b.start(b.sh("(trap '' TERM; sleep 1000) & echo up"))
		b.ended(left)
		r := b.sh("trap 'sleep 0.2; echo bye; exit 5' TERM; echo up; while :; do sleep 0.02; done")
		b.says(b.start(r), "up\n")
		if d := b.stop(); d > 2*time.Second {
			t.Errorf("took %v", d)
		}
		if j := b.ended(r); !j.Stopped || j.Cancelled || j.ExitCode != 5 {
			t.Errorf("%+v", j)
		}
		b.says(r, "bye\n")
	})
	t.Run("an exec that does not", func(t *testing.T) {
		b := newBox(t).boot()
		r := b.sh("trap '' TERM; echo up; while :; do sleep 0.02; done")
		r.CancelGraceMillis = 200
		b.says(b.start(r), "up\n")
		b.stop()
		if j := b.ended(r); !j.Stopped || j.Signal != 9 || j.OOM {
			t.Errorf("%+v", j)
		}
	})
}

func TestRequestsOutliveTheContainer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	done, pending := b.start(b.request("true")), b.sh("exit 4")
	b.boot()
	b.ended(done)
	b.stop()
	b.start(pending)
	if s := b.look(pending); s.Phase != execjournal.None {
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

func TestInboxThatComesLate(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	dir := filepath.Join(b.paths.Ctl, execjournal.ExecDir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	b.boot()
	time.Sleep(100 * time.Millisecond) // let init see that there is none; too short only makes the test easier
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

// The number of inotify instances is bounded for each user of the host. In a user namespace of its own init gets none.
func TestWithoutInotify(t *testing.T) {
	t.Parallel()
	b := newBox(t)
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
		t.Skip("this kernel makes no user namespace for us")
	}
	b.boot()
	var all []execjournal.Request
	for range 3 {
		r := b.request("true")
		r.User = "0"
		begin := time.Now()
		b.ended(b.start(r))
		if d := time.Since(begin); d > rescanEvery {
			t.Errorf("took %v", d)
		}
		all = append(all, r)
	}
	if os.Geteuid() == 0 {
		for _, r := range all {
			if j := b.look(r).Journal; j.ExitCode != 0 {
				t.Errorf("%+v", j)
			}
		}
	}
}

func canStart(b *box, cmd *exec.Cmd) bool {
	b.wrap(cmd)
	cmd.Args = []string{"sh", "-c", "echo 0 > /proc/sys/user/max_inotify_instances"}
	return cmd.Run() == nil
}

func TestSupervisorWithoutItsLockRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	marker := filepath.Join(t.TempDir(), "ran")
	r := b.start(b.request("touch", marker))
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "exec", r.ExecID)
	cmd.Env = append(os.Environ(), placesEnv+"="+b.paths.Ctl+":"+b.paths.Logs)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "lock") {
		t.Errorf("%v: %s", err, out)
	}
	if s := b.look(r); s.Phase != execjournal.None {
		t.Errorf("%v", s.Phase)
	}
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
	r2 := b.request("touch", marker)
	link(execjournal.LockName(r2.ExecID))
	b.start(r2)
	for _, temp := range []string{"end", "journal"} {
		r3 := b.request("true")
		link(execjournal.TempName(r3.ExecID, temp))
		if j := b.ended(b.start(r3)); j.ExitCode != 0 {
			t.Errorf("symlink as a temporary file: %+v", j)
		}
	}
	if s := b.look(r); s.Phase != execjournal.Foreign {
		t.Errorf("symlink as a journal: %v", s.Phase)
	}
	if s := b.look(r2); s.Phase != execjournal.None {
		t.Errorf("symlink as a lock: %v", s.Phase)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a command ran without its journal or lock")
	}
	if b.read(victim) != "precious" {
		t.Error("a file outside was written")
	}
}

func TestLockHeldBySomebodyElseDelaysTheStart(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	r := b.request("true")
	f, err := os.OpenFile(filepath.Join(b.paths.Logs, execjournal.LockName(r.ExecID)), os.O_CREATE|os.O_RDWR, 0o644)
	must(t, err)
	must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB))
	b.start(r)
	b.ended(b.start(b.request("true"))) // init has met the lock by then
	if s := b.look(r); s.Phase != execjournal.None {
		t.Errorf("%v while the lock was held", s.Phase)
	}
	must(t, f.Close())
	b.ended(r)
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
	if j := b.ended(r); j.ErrorCode != execjournal.ErrorStartFailed || !strings.Contains(j.Error, "version 99") {
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
	b.ended(b.start(r)) // written anew, it is started
	r = b.request("true")
	put(r, fmt.Sprintf(`{"version":1,"exec_id":%q,"nonce":%q,"command":["true"],"later":{"x":[1]}}`, r.ExecID, r.Nonce))
	if j := b.ended(r); j.ExitCode != 0 {
		t.Errorf("an unknown field: %+v", j)
	}
}

func writeExecutable(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o755))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
