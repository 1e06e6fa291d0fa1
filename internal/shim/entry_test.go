package shim

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// entrySh makes script the ENTRYPOINT of the image of b.
func (b *box) entrySh(script string, options ...string) *box {
	b.args = append([]string{"--report", "--entry=/bin/sh", "--entry=-c", "--entry=" + script, "--entry=sh"}, options...)
	return b
}

func TestTheEntrypointRunsBeforeEverythingElse(t *testing.T) {
	t.Parallel()
	gate := filepath.Join(t.TempDir(), "gate")
	b := newBox(t).entrySh("echo entrypoint; while ! test -e "+gate+"; do sleep 0.02; done; exec \"$@\"", "--entry-must", "--gated",
		"--", "/bin/sh", "-c", "echo main; exec sleep 1000")
	for range 2 { // it runs at each start
		must(t, b.dir.Withhold(sandbox))
		b.boot()
		must(t, b.dir.Release(sandbox))
		b.mainSays("entrypoint\n")
		early := b.start(b.sh("exit 4"))
		if stdout, _ := b.mainLogs(); strings.Contains(stdout, "main") || b.look(early).Phase != execphase.NotStarted || b.started().Reported {
			t.Errorf("something was started: %q", stdout)
		}
		writeExecutable(t, gate, "")
		if s := b.awaitStart(); s.Error+s.Warning != "" {
			t.Errorf("reported %+v", s)
		}
		if end := b.ended(early); end.ExitCode != 4 {
			t.Errorf("%+v", end)
		}
		b.mainSays("main\n")
		b.signal(syscall.SIGTERM)
		b.exitCode()
		must(t, os.Remove(gate))
		must(t, os.Remove(filepath.Join(b.paths.Logs, "_main.stdout.log")))
	}
}

func TestAnEntrypointThatEndsTooEarly(t *testing.T) {
	t.Parallel()
	const why = "the image's ENTRYPOINT exited with code 3 before it executed its arguments"
	for name, c := range map[string]struct {
		options      []string
		err, warning string
		code         int // of the container; -1: it runs on
	}{
		"must":                         {[]string{"--entry-must"}, why, "", 3},
		"must, with a main process":    {[]string{"--entry-must", "--", "/bin/sleep", "1000"}, why, "", 3},
		"else":                         {nil, "", why, -1},
		"else, with a main process":    {[]string{"--", "/bin/sleep", "1000"}, "", why, -1},
		"hardened":                     {[]string{"--hardened"}, "", "the image's ENTRYPOINT did not run: the security profile is hardened", -1},
		"hardened, also if it must":    {[]string{"--hardened", "--entry-must"}, "", "the image's ENTRYPOINT did not run: the security profile is hardened", -1},
		"a main process that can't be": {[]string{"--", "no-such-program"}, `command "no-such-program" was not found`, "", 127},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t).entrySh("exit 3", c.options...).boot()
			if s := b.awaitStart(); s.Error != c.err || s.Warning != c.warning {
				t.Errorf("reported %+v", s)
			}
			if c.code >= 0 {
				if code := b.exitCode(); code != c.code {
					t.Errorf("exit code %d", code)
				}
				return
			}
			if end := b.ended(b.start(b.sh("exit 4"))); end.ExitCode != 4 && !strings.HasPrefix(name, "hardened") {
				t.Errorf("%+v", end)
			}
		})
	}
}

// A command of the sandbox may kill what the ENTRYPOINT left; nothing depends on it any more.
func TestTheEndOfAnEntrypointThatWasExecutedChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBox(t).entrySh(`"$@" & echo $!; wait; echo over; exit 5`, "--entry-must").boot()
	if s := b.awaitStart(); s.Error+s.Warning != "" {
		t.Errorf("reported %+v", s)
	}
	stdout, _ := b.dir.MainLogPaths(sandbox)
	b.ended(b.start(b.sh("kill -9 $(head -1 " + stdout + ")")))
	b.mainSays("over\n")
	if end := b.ended(b.start(b.sh("exit 4"))); end.ExitCode != 4 {
		t.Errorf("%+v", end)
	}
	b.signal(syscall.SIGTERM)
	if code := b.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAStopWhileTheEntrypointRuns(t *testing.T) {
	t.Parallel()
	b := newBox(t).entrySh("trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.02; done", "--entry-must").boot()
	b.mainSays("up\n")
	b.signal(syscall.SIGTERM)
	b.exitCode()
	if stdout, _ := b.mainLogs(); stdout != "up\ntold\n" || b.started().Reported {
		t.Errorf("%q, %+v", stdout, b.started())
	}
}

// Whether the image had a user agbox is recorded once: later the ENTRYPOINT has made that user.
func TestTheFirstStartDecidesWhetherTheEntrypointRuns(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{execjournal.RunsEntrypoint, execjournal.SkipsEntrypoint} {
		b := newBox(t).entrySh("echo up; exec \"$@\"", "--entry-new")
		must(t, os.WriteFile(filepath.Join(b.paths.Logs, execjournal.EntrypointName), []byte(decision), 0o600))
		b.boot()
		b.awaitStart()
		stdout, _ := b.dir.MainLogPaths(sandbox)
		if ran := exists(stdout); ran != (decision == execjournal.RunsEntrypoint) {
			t.Errorf("%q: it ran: %t", decision, ran)
		}
	}
	b := newBox(t).entrySh("exec \"$@\"", "--entry-new").boot()
	b.awaitStart()
	if said := b.read(filepath.Join(b.paths.Logs, execjournal.EntrypointName)); said != execjournal.RunsEntrypoint { // the test's host has no user agbox
		t.Errorf("recorded %q", said)
	}
}
