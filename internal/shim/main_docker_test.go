//go:build docker

package shim

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func shell(script string, options ...string) []string {
	return slices.Concat([]string{"--log-limit=1000"}, options, []string{"--", "sh", "-c", script})
}

func (c *container) exited() string {
	c.Helper()
	c.until("the container to end", func() bool { return c.inspect("{{.State.Running}}") == "false" })
	return c.inspect("{{.State.ExitCode}}")
}

// killWhere kills the processes of the container whose command line matches.
func (c *container) killWhere(is func(cmdline string) bool) {
	c.Helper()
	for _, pid := range c.hostPids() {
		if is(cmdline(pid)) {
			docker(c, "exec", c.name, "kill", "-9", strings.Fields(field(c.read("/proc/"+pid+"/status"), "NSpid"))[1])
		}
	}
}

func TestContainerMainProcess(t *testing.T) {
	t.Parallel()
	c := newContainerWith(t, shell(`id -u; pwd; echo "$HOME $SEEN"; echo run >> runs; echo err >&2
		(setsid sh -c 'trap "" TERM; while :; do sleep 1; done' &)
		while ! test -e /tmp/gate; do sleep 0.05; done; rm /tmp/gate; exit 42`), "-e", "SEEN=yes")
	c.mainSays("yes\n")
	for run := 1; run <= 2; run++ {
		r := c.start(c.sh("trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done"))
		c.says(r, "up\n")
		pids := c.hostPids()
		c.do(c.sh("touch /tmp/gate"))
		if code := c.exited(); code != "42" {
			t.Errorf("run %d: exit code %s", run, code)
		}
		if j := c.look(r).Journal; !j.Stopped || j.ExitCode != 6 {
			t.Errorf("run %d: %+v", run, j)
		}
		for _, pid := range pids {
			if _, err := os.Stat("/proc/" + pid); err == nil {
				t.Errorf("run %d: process %s is left", run, pid)
			}
		}
		docker(t, "start", c.name)
		c.until("the next run", func() bool {
			stdout, _ := c.mainLogs()
			return strings.Count(stdout, "yes\n") == run+1
		})
	}
	if _, out := c.do(c.sh("cat runs")); out != "run\nrun\nrun\n" {
		t.Errorf("runs: %q", out)
	}
	one := "1000\n/workspace\n/home/agbox yes\n"
	if stdout, stderr := c.mainLogs(); stdout != one+one+one || stderr != "err\nerr\nerr\n" {
		t.Errorf("%q and %q", stdout, stderr)
	}
	if text := docker(t, "logs", c.name); text != "" {
		t.Errorf("the container's own log: %q", text)
	}
	out, _ := c.dir.MainLogPaths(sandbox)
	if st, err := os.Stat(out); err != nil || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, text := c.do(c.sh("echo forged >> /var/log/agents-sandbox/_main.stdout.log")); !strings.Contains(strings.ToLower(text), "permi") {
		t.Errorf("the user could write to the log: %q", text)
	}
}

func TestContainerStopReachesTheMainProcess(t *testing.T) {
	t.Parallel()
	for _, run := range []struct{ name, script, code string }{
		{"that obeys", "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done", "7"},
		{"that does not know TERM", "echo up; exec sleep 1000", "143"},
	} {
		t.Run(run.name, func(t *testing.T) {
			c := newContainerWith(t, shell(run.script))
			c.mainSays("up\n")
			r := c.start(c.sh("echo up; exec sleep 1000"))
			c.says(r, "up\n")
			begin := time.Now()
			docker(t, "stop", "-t", "20", c.name)
			if d, code := time.Since(begin), c.inspect("{{.State.ExitCode}}"); d > 4*time.Second || code != run.code {
				t.Errorf("%v, exit code %s", d, code)
			}
			if j := c.look(r).Journal; !j.Stopped || j.Signal != 15 {
				t.Errorf("%+v", j)
			}
		})
	}
	t.Run("that ignores TERM", func(t *testing.T) {
		c := newContainerWith(t, shell("trap '' TERM; echo up; while :; do sleep 0.05; done"))
		c.mainSays("up\n")
		r := c.start(c.sh("echo up; exec sleep 1000"))
		c.says(r, "up\n")
		docker(t, "stop", "-t", "2", c.name)
		if code := c.inspect("{{.State.ExitCode}}"); code != "137" {
			t.Errorf("exit code %s", code)
		}
		if j := c.look(r).Journal; !j.Stopped {
			t.Errorf("an exec beside it: %+v", j)
		}
	})
}

func TestContainerWhoseMainProcessCannotStart(t *testing.T) {
	t.Parallel()
	for _, run := range []struct {
		name string
		args []string
		code string
		want string
	}{
		{"no such program", []string{"--", "no-such-program"}, "127", `command "no-such-program" was not found`},
		{"no such user", []string{"--user=nobody-here", "--", "true"}, "126", `user "nobody-here" is not in the image's /etc/passwd`},
		{"no such directory", []string{"--dir=/no/dir", "--", "true"}, "126", `working directory "/no/dir"`},
	} {
		t.Run(run.name, func(t *testing.T) {
			c := newContainerWith(t, run.args)
			if code := c.exited(); code != run.code {
				t.Errorf("exit code %s", code)
			}
			tail, err := c.dir.Tail(sandbox, execid.Main, true, 4096)
			if err != nil || !strings.Contains(string(tail), run.want) {
				t.Errorf("the log: %q, %v", tail, err)
			}
			if text := docker(t, "logs", c.name); !strings.Contains(text, run.want) {
				t.Errorf("the container's log: %q", text)
			}
		})
	}
}

func TestContainerWhoseMainSupervisorIsKilled(t *testing.T) {
	t.Parallel()
	c := newContainerWith(t, shell("echo up; sleep 1000"))
	c.mainSays("up\n")
	r := c.start(c.sh("echo up; exec sleep 1000"))
	c.says(r, "up\n")
	c.killWhere(func(cmdline string) bool { return strings.HasPrefix(cmdline, "agbox-shim\x00main\x00") })
	if code := c.exited(); code != "137" {
		t.Errorf("exit code %s", code)
	}
	if j := c.look(r).Journal; !j.Stopped {
		t.Errorf("%+v", j)
	}
}

// When a supervisor of an exec dies, PID 1 kills the processes it left, and none of the main process.
func TestContainerMainProcessOutlivesADeadSupervisor(t *testing.T) {
	t.Parallel()
	c := newContainerWith(t, shell("echo up; sleep 1000 & wait"))
	c.mainSays("up\n")
	r := c.start(c.sh("echo up; sleep 1000"))
	c.says(r, "up\n")
	c.killSupervisor(r)
	c.phase(r, execphase.Lost)
	var sleeps []string
	for line := range strings.Lines(docker(t, "top", c.name, "-eo", "pid,args")) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "sleep" {
			sleeps = append(sleeps, f[0])
		}
	}
	if len(sleeps) != 1 || c.inspect("{{.State.Running}}") != "true" { // the main process's
		t.Errorf("left: %v", sleeps)
	}
}

func TestContainerRunsAsTheSandboxesUser(t *testing.T) {
	t.Parallel()
	c := newContainerWith(t, shell("id -u; id -G; touch main && echo made; exec sleep 1000", "--user=other"))
	c.mainSays("made\n")
	if stdout, _ := c.mainLogs(); stdout != "1001\n1001 10\nmade\n" {
		t.Errorf("the main process: %q", stdout)
	}
	for _, run := range []struct{ user, want string }{
		{"", "1001\n1001\nmade\n"},
		{"other", "1001\n1001\nmade\n"},
		{"1001", "1001\n1001\nmade\n"},
		{"1001:1000", "1001\n1000\nmade\n"},
		{"0:0", "0\n0\nmade\n"},
	} {
		r := c.sh("id -u; id -g; touch exec && echo made; rm -f exec")
		r.User, r.ExecID = run.user, "_hook."+r.ExecID[len("exec-"):]
		if j, out := c.do(r); out != run.want || j.ExitCode != 0 {
			t.Errorf("user %q: %q, %+v", run.user, out, j)
		}
	}
	for user, want := range map[string]string{
		"nobody-here":       `user "nobody-here" is not in the image's /etc/passwd`,
		"other:nobody-here": `group "nobody-here" is not in the image's /etc/group`,
	} {
		r := c.request("true")
		r.User = user
		if j, _ := c.do(r); j.ErrorCode != execjournal.ErrorStartFailed || j.Error != want {
			t.Errorf("user %q: %+v", user, j)
		}
	}
}

func TestContainerWorkingDirectory(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, run := range []struct {
		name, dir string
		options   []string
		made      bool
		owner     string
	}{
		{"that the image does not have", "/srv/deep/er", nil, true, "1000 755"},
		{"with a mount in it", "/workspace", []string{"-v", data + ":/workspace/some/data"}, true, "1000 755"},
		{"with a name that mountinfo escapes", "/work space", []string{"-v", data + ":/work space/a b"}, true, "1000 755"},
		{"that is a mount", "/data", []string{"-v", data + ":/data"}, false, "0 755"},
		{"that all may write", "/tmp", nil, true, "0 1777"},
		{"that is root's alone", "/etc", nil, false, "0 755"},
	} {
		t.Run(run.name, func(t *testing.T) {
			must(t, os.Chmod(data, 0o755))
			c := newContainerWith(t, nil, append([]string{"--workdir", run.dir}, run.options...)...)
			j, out := c.do(c.sh("pwd; stat -c '%u %a' .; touch made"))
			if !strings.HasPrefix(out, run.dir+"\n"+run.owner+"\n") || (j.ExitCode == 0) != run.made {
				t.Errorf("%q, %+v", out, j)
			}
		})
	}
}

func TestContainerDropsOutputAtTheLimit(t *testing.T) {
	t.Parallel()
	c := newContainerWith(t, shell("yes | head -c 100000; echo err >&2; sleep 1000"))
	r := c.sh("yes | head -c 100000; echo done >&2")
	r.LogLimitBytes, r.LogLimitAction = 1000, execjournal.LogLimitDrop
	j, _ := c.do(r)
	want := strings.Repeat("y\n", 500) + execjournal.DroppedMarker(1000)
	if out, errOut := c.logs(r); out != want || errOut != "done\n" || j.ExitCode != 0 || j.StdoutDroppedBytes != 99_000 {
		t.Errorf("%q and %q, %+v", out, errOut, j)
	}
	c.until("the main process to have written", func() bool { _, e := c.mainLogs(); return e == "err\n" })
	docker(t, "restart", "-t", "5", c.name)
	c.until("the second run to have written", func() bool { _, e := c.mainLogs(); return e == "err\nerr\n" })
	if out, _ := c.mainLogs(); out != want {
		t.Errorf("the main process's log: %q", out)
	}
}
