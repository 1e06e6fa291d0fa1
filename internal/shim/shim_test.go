package shim

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
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
		{"inherits nothing but its streams", `cd /proc/$$/fd && echo [0-9]*`, 0, 0, "0 1 2 3\n", ""}, // 3 is the directory that echo lists
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

// TestMountsOnSymlinksOfTheImage: the runtime mounts on the targets of symlinks in the image, and the shim follows them.
func TestMountsOnSymlinksOfTheImage(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	image := t.TempDir()
	for name, path := range map[string]*string{"ctl": &b.paths.Ctl, "logs": &b.paths.Logs, "out": &b.paths.Out} {
		link := filepath.Join(image, name)
		must(t, os.Symlink(*path, link))
		*path = link
	}
	b.boot()
	r := b.sh("echo out; exit 7")
	r.Inbox = true
	j := b.ended(b.start(r))
	if stdout, _ := b.logs(r); j.ExitCode != 7 || stdout != "out\n" {
		t.Errorf("result %+v, output %q", j, stdout)
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

func TestStopWaitsForExecsAndForNothingElse(t *testing.T) {
	t.Parallel()
	t.Run("no exec", func(t *testing.T) {
		b := newBox(t).boot()
		b.ended(b.start(b.request("true")))
		b.stop()
	})
	t.Run("an exec that obeys, and a child left by another", func(t *testing.T) {
		b := newBox(t).boot()
		left := b.start(b.sh("(trap '' TERM; sleep 1000) & echo up")) // a stop that waited for it would exceed the test's timeout
		b.ended(left)
		r := b.sh("trap 'sleep 0.2; echo bye; exit 5' TERM; echo up; while :; do sleep 0.02; done")
		b.says(b.start(r), "up\n")
		b.stop()
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

// A stop at any moment of an exec's start ends the exec, or the exec has not started.
func TestStopDuringTheStartOfAnExec(t *testing.T) {
	t.Parallel()
	begun := 0
	for i := 0; i < 40; i += everyInShort(4) {
		b := newBox(t).boot()
		r := b.start(b.request("sleep", "1000"))
		b.until("init to start its supervisor", func() bool { return b.remnants() > 0 })
		time.Sleep(time.Duration(i) * time.Millisecond / 4) // spreads the stops over the start
		b.stop()
		switch s := b.look(r); s.Phase {
		case execphase.NotStarted:
		case execphase.Ended:
			begun++
			if !s.Journal.Stopped {
				t.Errorf("%+v", s.Journal)
			}
		default:
			t.Errorf("%v after the stop", s.Phase)
		}
	}
	t.Logf("%d had begun", begun)
}

// writeExecutable writes a file while no test starts a process. A child would keep the file open for writing until its exec, and the kernel
// refuses to execute such a file (ETXTBSY).
func writeExecutable(t *testing.T, path, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	must(t, os.WriteFile(path, []byte(text), 0o755))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
