package shim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// mainSh makes script the main process of b.
func (b *box) mainSh(script string, options ...string) *box {
	b.args = slices.Concat(options, []string{"--", "/bin/sh", "-c", script})
	return b
}

func (b *box) mainLogs() (stdout, stderr string) {
	b.Helper()
	o, e := b.dir.MainLogPaths(sandbox)
	return b.read(o), b.read(e)
}

func (b *box) mainSays(want string) {
	b.Helper()
	path, _ := b.dir.MainLogPaths(sandbox)
	b.until("the main process to say "+want, func() bool {
		data, _ := os.ReadFile(path)
		return strings.Contains(string(data), want)
	})
}

func (b *box) signal(sig syscall.Signal) {
	b.Helper()
	must(b, b.cmd.Process.Signal(sig))
}

func TestMainProcessRunsLikeAnExec(t *testing.T) {
	t.Setenv("FROM", "the container")
	b := newBox(t).mainSh(`pwd; echo "$FROM" >&2; cat; cd /proc/$$/fd && echo [0-9]*
		test "$(cut -d' ' -f6 /proc/$$/stat)" = $$ && echo own session; exit 7`, "--dir=/usr")
	if code := b.boot().exitCode(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	if stdout, stderr := b.mainLogs(); stdout != "/usr\n0 1 2 3\nown session\n" || stderr != "the container\n" {
		t.Errorf("%q and %q", stdout, stderr)
	}
}

func TestAGatedInitStartsNothingBeforeItsRelease(t *testing.T) {
	t.Parallel()
	b := newBox(t).mainSh("echo up; while ! test -e $0; do sleep 0.02; done; exit 3", "--gated")
	gate := filepath.Join(t.TempDir(), "gate")
	b.args = append(b.args, gate)
	must(t, b.dir.Withhold(sandbox)) // there is no release
	early := b.start(b.sh("exit 4"))
	b.boot()
	stdout, _ := b.dir.MainLogPaths(sandbox)
	late := b.start(b.sh("exit 5"))
	time.Sleep(100 * time.Millisecond) // time for an unwanted start; a shorter pause only makes the test easier
	if exists(stdout) || b.look(early).Phase != execphase.NotStarted || b.look(late).Phase != execphase.NotStarted {
		t.Error("something was started")
	}
	must(t, b.dir.Release(sandbox))
	must(t, b.dir.Release(sandbox))
	if one, two := b.ended(early), b.ended(late); one.ExitCode != 4 || two.ExitCode != 5 {
		t.Errorf("%+v, %+v", one, two)
	}
	writeExecutable(t, gate, "")
	if code := b.exitCode(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	if out, _ := b.mainLogs(); out != "up\n" {
		t.Errorf("%q", out)
	}
}

func TestAnInitThatWasNeverReleased(t *testing.T) {
	t.Parallel()
	b := newBox(t).mainSh("echo up", "--gated").boot()
	b.until("init to watch for its release, which comes after its signals", b.watches) // before that only a real PID 1 survives a signal
	b.signal(syscall.SIGTERM)
	if code := b.exitCode(); code != stoppedEarly {
		t.Errorf("exit code %d", code)
	}
}

// watches reports whether init has an inotify descriptor.
func (b *box) watches() bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.cmd.Process.Pid))
	return slices.ContainsFunc(fds, func(fd string) bool {
		to, _ := os.Readlink(fd) // other descriptors may be closed meanwhile
		return strings.HasSuffix(to, "inotify")
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestMainProcessEndsTheContainer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		code         int
	}{
		{"in order", "exit 0", 0},
		{"with a code", "exit 75", 75}, // an exec's supervisor uses it for tryAgain
		{"killed", "kill -9 $$", 137},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), "gate")
			b := newBox(t).mainSh("while ! test -e " + gate + "; do sleep 0.02; done; " + c.script).boot()
			good := b.sh("trap 'sleep 0.2; echo bye; exit 5' TERM; echo up; while :; do sleep 0.02; done")
			b.says(b.start(good), "up\n")
			bad := b.sh("trap '' TERM; echo up; while :; do sleep 0.02; done")
			bad.CancelGraceMillis = 300
			b.says(b.start(bad), "up\n")
			writeExecutable(t, gate, "")
			if code := b.exitCode(); code != c.code {
				t.Errorf("exit code %d", code)
			}
			if j := b.look(good).Journal; !j.Stopped || j.Cancelled || j.ExitCode != 5 || j.State != execjournal.StateEnded {
				t.Errorf("an exec that obeys: %+v", j)
			}
			if j := b.look(bad).Journal; !j.Stopped || j.Signal != 9 {
				t.Errorf("an exec that does not: %+v", j)
			}
		})
	}
}

func TestStopReachesTheMainProcess(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		code         int
	}{
		{"that ends in order", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done", 0},
		{"that has a code of its own", "trap 'exit 9' TERM; echo up; while :; do sleep 0.02; done", 9},
		{"that does not know TERM", "echo up; exec sleep 1000", 143},
		{"that waits for a child", `sh -c 'trap "echo child; exit 4" TERM; echo up; while :; do sleep 0.02; done' & trap "" TERM; wait $!`, 4},
		{"that is stopped", "echo up; kill -STOP $$", 143},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t).mainSh(c.script).boot()
			b.mainSays("up\n")
			r := b.start(b.sh("echo up; exec sleep 1000"))
			b.says(r, "up\n")
			b.signal(syscall.SIGTERM)
			if code := b.exitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if j := b.look(r).Journal; !j.Stopped || j.Signal != 15 {
				t.Errorf("%+v", j)
			}
		})
	}
}

// A stop at any moment of the start ends the container, and a started main process receives TERM.
func TestStopDuringTheStartOfTheMainProcess(t *testing.T) {
	t.Parallel()
	for i := 0; i < 30; i += everyInShort(3) {
		b := newBox(t).mainSh("exec sleep 1000").boot()
		b.until("init to start it", func() bool { return b.remnants() > 0 })
		time.Sleep(time.Duration(i) * time.Millisecond / 3) // spreads the stops over the start of its supervisor
		b.signal(syscall.SIGTERM)
		if code := b.exitCode(); code != 143 {
			t.Errorf("exit code %d", code)
		}
	}
}

func TestMainProcessRunsOncePerStart(t *testing.T) {
	t.Parallel()
	b := newBox(t).mainSh("echo 123456; echo err >&2; exit 3", "--log-limit=18")
	for run := 1; run <= 5; run++ {
		if code := b.boot().exitCode(); code != 3 {
			t.Errorf("run %d: exit code %d", run, code)
		}
		stdout, stderr := b.mainLogs()
		want, wantErr := strings.Repeat("123456\n", run), strings.Repeat("err\n", run)
		if run >= 3 {
			want = want[:18] + execjournal.DroppedMarker(18)
		}
		if run >= 5 {
			wantErr = wantErr[:18] + execjournal.DroppedMarker(18)
		}
		if stdout != want || stderr != wantErr {
			t.Errorf("run %d: %q and %q", run, stdout, stderr)
		}
	}
}

func TestMainProcessThatCannotStart(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(plain, []byte("x"), 0o644))
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"not in PATH", []string{"--", "no-such-program"}, 127, `command "no-such-program" was not found`},
		{"not executable", []string{"--", plain}, 126, "permission denied"},
		{"unknown user", []string{"--user=nobody-here", "--", "true"}, 126, `user "nobody-here" is not in the image's /etc/passwd`},
		{"no such directory", []string{"--dir=/no/dir", "--", "true"}, 126, `working directory "/no/dir"`},
		{"empty", []string{"--", ""}, 127, "was not found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var container bytes.Buffer
			b := newBox(t)
			b.args = append([]string{"--report"}, c.args...)
			b.wrap = func(cmd *exec.Cmd) { cmd.Stderr = &container }
			if code := b.boot().exitCode(); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			_, stderr := b.mainLogs()
			for place, text := range map[string]string{"log": stderr, "container's log": container.String()} {
				if !strings.Contains(text, "agbox-shim: start the main process: ") || !strings.Contains(text, c.want) {
					t.Errorf("%s: %q", place, text)
				}
			}
			if s := b.started(); !strings.Contains(s.Error, c.want) {
				t.Errorf("reported %+v", s)
			}
		})
	}
}

// started returns the report of the start.
func (b *box) started() execjournal.Start {
	b.Helper()
	s, err := b.dir.Started(sandbox)
	must(b, err)
	return s
}

func (b *box) awaitStart() execjournal.Start {
	b.Helper()
	b.until("the report of the start", func() bool { return b.started().Reported })
	return b.started()
}

func TestInitReportsItsStartOncePerRun(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"with a main process":    {[]string{"--", "/bin/sh", "-c", "while ! test -e " + gate + "; do sleep 0.02; done"}, ""},
		"without a main process": {nil, ""},
		"without a user":         {[]string{"--user=nobody-here"}, `user "nobody-here" is not in the image's /etc/passwd`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.args = append([]string{"--report", "--gated"}, c.args...)
			for range 2 {
				must(t, b.dir.Withhold(sandbox))
				b.boot()
				b.until("init to watch for its release", b.watches)
				if s := b.started(); s.Reported {
					t.Errorf("reported %+v before the release", s)
				}
				must(t, b.dir.Release(sandbox))
				if s := b.awaitStart(); s.Error != c.want {
					t.Errorf("reported %+v", s)
				}
				b.signal(syscall.SIGTERM)
				b.exitCode()
			}
			// The container is started by others: nothing is withheld, and init removes the report of the run before.
			must(t, os.WriteFile(filepath.Join(b.paths.Logs, execjournal.StartedName), []byte(`{"version":1,"error":"stale"}`), 0o600))
			b.boot()
			b.until("another report", func() bool { return b.started().Error != "stale" })
			if s := b.awaitStart(); s.Error != c.want {
				t.Errorf("reported %+v", s)
			}
		})
	}
}

func TestAnInitOfAnOlderReleaseReportsNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t).mainSh("exit 3")
	if code := b.boot().exitCode(); code != 3 || b.started().Reported {
		t.Errorf("exit code %d, %+v", code, b.started())
	}
}

func TestMainProcessMeetsAHostileLog(t *testing.T) {
	t.Parallel()
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o644))
	b := newBox(t)
	must(t, os.Symlink(victim, filepath.Join(b.paths.Logs, execjournal.StderrName(execid.Main))))
	if code := b.mainSh("echo x >&2").boot().exitCode(); code != 126 {
		t.Errorf("exit code %d", code)
	}
	if b.read(victim) != "precious" {
		t.Error("a file outside was written")
	}
}

// TestLinesOfTheMainProcessHaveTimes: of a line when its beginning was read, over several starts.
func TestLinesOfTheMainProcessHaveTimes(t *testing.T) {
	t.Parallel()
	b := newBox(t).mainSh("echo the first line; printf 'the second'; sleep 1.1; echo ' line'; sleep 1.1; echo the third line; printf end")
	var log string
	want := map[int64]time.Time{} // when each line was read at the earliest
	for range 2 {
		began, start := time.Now(), int64(len(log))
		b.boot().exitCode()
		log, _ = b.mainLogs()
		want[start], want[start+15], want[start+31] = began, began, began.Add(2200*time.Millisecond)
		b.wantTimes(log, want)
	}
	// Times of a log that was removed say nothing of the next one.
	path, _ := b.dir.MainLogPaths(sandbox)
	must(t, os.Remove(path))
	began := time.Now()
	b.boot().exitCode()
	log, _ = b.mainLogs()
	b.wantTimes(log, map[int64]time.Time{0: began, 15: began, 31: began.Add(2200 * time.Millisecond)})
}

// wantTimes checks the times of stdout: those of the lines in earliest are not much later than there.
func (b *box) wantTimes(log string, earliest map[int64]time.Time) {
	b.Helper()
	times, err := b.dir.OpenTimes(sandbox, execid.Main, false)
	must(b, err)
	defer times.Close()
	n, err := times.Len()
	must(b, err)
	last := execjournal.LineTime{Offset: -1}
	for i := range n {
		l, err := times.At(i)
		must(b, err)
		if l.Offset <= last.Offset || l.At.Before(last.At) {
			b.Errorf("%+v follows %+v in the times of %q", l, last, log)
		}
		last = l
	}
	for offset, at := range earliest {
		i, err := times.Search(func(l execjournal.LineTime) bool { return l.Offset > offset })
		must(b, err)
		l, err := times.At(i - 1)
		must(b, err)
		if late := l.At.Sub(at); late < 0 || late > 3*time.Second {
			b.Errorf("the line at %d of %q was read at %s, %s after its earliest time", offset, log, l.At, late)
		}
	}
}

func TestTimesOfLinesAreNoMoreThanTheLog(t *testing.T) {
	t.Parallel()
	dir, err := execjournal.OpenDir(t.TempDir())
	must(t, err)
	times := continueTimes(dir, "x.times", 0)
	for range 200_000 {
		times.note([]byte("\n"))
		must(t, times.write())
	}
	if times.size > times.offset+timesAllowance+60*execjournal.LineTimeBytes || times.size < timesAllowance {
		t.Errorf("%d bytes of times for %d bytes of lines", times.size, times.offset)
	}
}

func TestMainProcessRunsWithoutTimes(t *testing.T) {
	t.Parallel()
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o644))
	b := newBox(t)
	must(t, os.Symlink(victim, filepath.Join(b.paths.Logs, execjournal.TimesName(execjournal.StdoutName(execid.Main)))))
	if code := b.mainSh("echo x").boot().exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out, _ := b.mainLogs(); out != "x\n" || b.read(victim) != "precious" {
		t.Errorf("the log is %q, and the file outside %q", out, b.read(victim))
	}
}
