//go:build docker

package shim

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// These tests run the static binary as PID 1 of real containers, mounted as agboxd mounts it.

// container is a box whose init is PID 1 of a container.
type container struct {
	*box
	name string
}

var builtShim = sync.OnceValues(func() (string, error) { return build("agbox-shim", "../../cmd/agbox-shim") })

// binaries lets a machine without Go run these tests: hack/vm-test.sh.
var binaries = flag.String("binaries", "", "the directory with the programs that the tests run; empty: they are built")

// build compiles a static program and returns its directory.
func build(name, source string) (string, error) {
	if *binaries != "" {
		return *binaries, nil
	}
	dir, err := os.MkdirTemp("", "shim-bin-")
	if err != nil {
		return "", err
	}
	atExit(func() { os.RemoveAll(dir) })
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, name), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return dir, os.Chmod(dir, 0o755)
}

// testImage contains only busybox and the users that the tests name.
var testImage = sync.OnceValues(func() (string, error) {
	name := fmt.Sprintf("agbox-shim-test:%d", os.Getpid())
	layer, err := rootfs()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("docker", "import", "-", name)
	cmd.Stdin = bytes.NewReader(layer)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("import the image: %w: %s", err, out)
	}
	atExit(func() { _ = exec.Command("docker", "rmi", "-f", name).Run() })
	return name, nil
})

func rootfs() ([]byte, error) {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	list, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	put := func(h tar.Header, data string) {
		h.Size = int64(len(data))
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write([]byte(data))
		}
	}
	for _, dir := range []string{"bin/", "etc/", "proc/", "root/", "home/", "var/", "var/log/"} {
		put(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755}, "")
	}
	put(tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, "")
	put(tar.Header{Name: "home/agbox/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000, Gid: 1000}, "")
	put(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, string(busybox))
	for _, applet := range strings.Fields(string(list)) {
		if applet != "busybox" {
			put(tar.Header{Name: "bin/" + applet, Typeflag: tar.TypeSymlink, Linkname: "busybox"}, "")
		}
	}
	put(tar.Header{Name: "etc/passwd", Typeflag: tar.TypeReg, Mode: 0o644},
		"root:x:0:0:root:/root:/bin/sh\nagbox:x:1000:1000::/home/agbox:/bin/sh\nother:x:1001:1001::/tmp:/bin/sh\n")
	put(tar.Header{Name: "etc/group", Typeflag: tar.TypeReg, Mode: 0o644},
		"root:x:0:\nagbox:x:1000:\nother:x:1001:\nwheel:x:10:other\n")
	if err == nil {
		err = w.Close()
	}
	return buf.Bytes(), err
}

func docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func newContainer(t testing.TB, options ...string) *container {
	t.Helper()
	return newContainerWith(t, nil, options...)
}

// newContainerWith starts a container whose init has more arguments.
func newContainerWith(t testing.TB, initArgs []string, options ...string) *container {
	t.Helper()
	image, err := testImage()
	must(t, err)
	bin, err := builtShim()
	must(t, err)
	b := newBox(t)
	c := &container{box: b, name: fmt.Sprintf("agbox-shim-test-%d-%s", os.Getpid(), strings.ToLower(randomName()))}
	args := []string{"run", "-d", "--name", c.name, "--label", "agbox-shim-test=1", "--network", "none",
		"-v", bin + ":/run/agbox/bin:ro", "-v", b.paths.Ctl + ":" + execjournal.ContainerCtl + ":ro",
		"-v", b.paths.Out + ":" + execjournal.ContainerOut, "-v", b.paths.Logs + ":" + execjournal.ContainerLogs,
		"--user", "0:0", "--workdir", "/workspace", "--entrypoint", execjournal.ContainerShim}
	args = append(args, options...)
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", "-v", c.name).Run() })
	args = append(args, image, "init", "--default-user=")
	docker(t, append(args, initArgs...)...)
	return c
}

func randomName() string {
	f, _ := os.CreateTemp("", "n")
	defer os.Remove(f.Name())
	f.Close()
	return filepath.Base(f.Name())
}

func (c *container) do(r execjournal.Request) (execjournal.Journal, string) {
	c.Helper()
	j := c.ended(c.start(r))
	out, errOut := c.logs(r)
	return j, out + errOut
}

func (c *container) inspect(format string) string {
	c.Helper()
	return docker(c, "inspect", "-f", format, c.name)
}

// hostPids returns the host's process IDs of all processes of the container, without the supervisor that waits for an exec.
func (c *container) hostPids() []string {
	c.Helper()
	lines := strings.Split(docker(c, "top", c.name, "-eo", "pid"), "\n")
	return slices.DeleteFunc(lines[1:], func(pid string) bool { return strings.HasSuffix(cmdline(pid), "\x00"+unassigned) })
}

// cmdline returns the arguments of a process, separated by zeros; empty if it has exited.
func cmdline(hostPid string) string {
	line, _ := os.ReadFile("/proc/" + hostPid + "/cmdline")
	return strings.TrimRight(string(line), "\x00")
}

func TestContainerRunsAsItsUser(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "-e", "SEEN=yes")
	j, out := c.do(c.sh(`id; pwd; echo "$HOME $USER $LOGNAME $SEEN"; touch mine && echo made; ls -ld .; echo direct > /dev/stdout; exit 3`))
	want := "uid=1000(agbox) gid=1000(agbox) groups=1000(agbox)\n/workspace\n/home/agbox agbox agbox yes\nmade\n"
	if j.ExitCode != 3 || !strings.HasPrefix(out, want) && !strings.HasPrefix(out, strings.Replace(want, " groups=1000(agbox)", "", 1)) ||
		!strings.HasSuffix(out, "direct\n") {
		t.Errorf("%+v\n%s", j, out)
	}
	r := c.sh("id -u; id -g; id -G; echo $HOME")
	r.User = "other"
	if _, out := c.do(r); out != "1001\n1001\n1001 10\n/tmp\n" {
		t.Errorf("other: %q", out)
	}
	r = c.sh("id -u; id -g; echo $HOME; touch /workspace/x; echo x > /var/log/agents-sandbox/x; cat /run/agbox/ctl/exec/*; kill 1; kill -9 $PPID")
	r.User = "4321:99"
	_, out = c.do(r)
	if !strings.HasPrefix(out, "4321\n99\n/\n") || strings.Contains(out, "nonce") || strings.Count(strings.ToLower(out), "permi") < 5 {
		t.Errorf("a stranger: %q", out)
	}
	r = c.sh("id -u; echo $HOME")
	r.User = "root"
	if _, out := c.do(r); out != "0\n/root\n" {
		t.Errorf("root: %q", out)
	}
}

func TestContainerStopTakesNoTimeOfItsOwn(t *testing.T) {
	t.Parallel()
	t.Run("idle", func(t *testing.T) {
		c := newContainer(t)
		c.do(c.sh("true"))
		begin := time.Now()
		docker(t, "stop", "-t", "20", c.name)
		if d := time.Since(begin); d > 4*time.Second || c.inspect("{{.State.ExitCode}}") != "0" {
			t.Errorf("%v, exit code %s", d, c.inspect("{{.State.ExitCode}}"))
		} else {
			t.Logf("docker stop of an idle container: %v", d)
		}
	})
	t.Run("with execs", func(t *testing.T) {
		c := newContainer(t)
		good := c.start(c.sh("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"))
		bad := c.sh("trap '' TERM; echo up; while :; do sleep 0.05; done")
		bad.CancelGraceMillis = 300
		c.start(bad)
		c.says(good, "up\n")
		c.says(bad, "up\n")
		docker(t, "stop", "-t", "20", c.name)
		if j := c.look(good).Journal; !j.Stopped || j.ExitCode != 5 {
			t.Errorf("%+v", j)
		}
		if j := c.look(bad).Journal; !j.Stopped || j.ExitCode != 137 || j.OOM {
			t.Errorf("%+v", j)
		}
		if code := c.inspect("{{.State.ExitCode}}"); code != "0" {
			t.Errorf("exit code %s", code)
		}
	})
}

func TestContainerKilledAndStartedAgain(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	r := c.start(c.sh("echo run >> /workspace/runs; echo up; sleep 1000"))
	done := c.start(c.sh("echo run >> /workspace/done"))
	c.says(r, "up\n")
	c.ended(done)
	docker(t, "kill", c.name)
	c.phase(r, execphase.Lost)
	pending := c.start(c.sh("cat /workspace/runs /workspace/done"))
	if s := c.look(pending); s.Phase != execphase.NotStarted {
		t.Fatal(s.Phase)
	}
	docker(t, "start", c.name)
	c.ended(pending)
	if out, _ := c.logs(pending); out != "run\nrun\n" {
		t.Errorf("ran twice: %q", out)
	}
	if s := c.look(r); s.Phase != execphase.Lost {
		t.Errorf("%v after the start", s.Phase)
	}
}

func TestContainerAtItsPidsLimit(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "--pids-limit", "40")
	// awk continues if it cannot fork.
	const again = `trap '' TERM; echo up; exec awk 'BEGIN { while (1) system("%s &") }' 2>/dev/null`
	for _, work := range []string{"sleep 1000", "(sleep 2; :)"} {
		r := c.sh(fmt.Sprintf(again, work))
		r.CancelGraceMillis = 200
		c.says(c.start(r), "up\n")
		c.until("the limit to be reached", func() bool { return len(c.hostPids()) > 20 })
		var more []execjournal.Request
		for range 4 {
			more = append(more, c.start(c.request("true")))
		}
		for _, m := range more {
			if j := c.ended(m); j.ErrorCode != execjournal.ErrorStartFailed && j.ExitCode != 0 {
				t.Errorf("another exec at the limit: %+v", j)
			} else {
				t.Logf("another exec at the limit: %s %q", j.ErrorCode, j.Error)
			}
		}
		c.cancel(r)
		if j := c.ended(r); !j.Cancelled || j.OOM {
			t.Errorf("%+v", j)
		}
		if j, _ := c.do(c.request("true")); j.ExitCode != 0 {
			t.Errorf("after it: %+v", j)
		}
	}
	if c.inspect("{{.State.Running}}") != "true" {
		t.Error("PID 1 died")
	}
}

func TestContainerOutOfMemory(t *testing.T) {
	t.Parallel()
	c := newContainer(t, "--memory", "48m", "--memory-swap", "48m")
	j, _ := c.do(c.request("tail", "/dev/zero"))
	if !j.OOM || j.Signal != 9 {
		t.Errorf("%+v", j)
	}
	if j, _ := c.do(c.sh("kill -9 $$")); j.OOM || j.Signal != 9 {
		t.Errorf("the next one: %+v", j)
	}
}

func TestContainerHasNoZombiesAndKeepsWhatOperatorsStart(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	docker(t, "exec", "-d", c.name, "sh", "-c", "(sleep 987 &) ; true")
	for range 5 {
		c.do(c.sh("for i in 1 2 3 4 5; do (sh -c 'sleep 0.05 & sleep 0.02 &' &); done"))
	}
	// cat may fail for a process that exits after the listing; that is no failure of the test.
	states := func() string { return docker(t, "exec", c.name, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null; true") }
	c.until("only init and the operator's process to be left", func() bool {
		text := states()
		return !strings.Contains(text, ") Z ") && strings.Count(text, "(agbox-shim)") == 1
	})
	if !strings.Contains(docker(t, "exec", c.name, "ps"), "sleep 987") {
		t.Error("the operator's process was killed")
	}
}

func TestContainerIgnoresOtherSignalsButItsCommandsDoNot(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	c.do(c.request("true"))
	for _, sig := range []string{"HUP", "QUIT", "USR1", "USR2", "ALRM", "PIPE"} {
		docker(t, "kill", "-s", sig, c.name)
	}
	_, out := c.do(c.request("grep", "-E", "SigIgn|SigBlk", "/proc/self/status"))
	if strings.Count(out, "0000000000000000") != 2 {
		t.Errorf("signals of a command:\n%s", out)
	}
	if c.inspect("{{.State.Running}}") != "true" {
		t.Error("PID 1 died")
	}
	begin := time.Now()
	docker(t, "kill", "-s", "INT", c.name)
	c.until("the container to end on INT", func() bool { return c.inspect("{{.State.Running}}") == "false" })
	if code := c.inspect("{{.State.ExitCode}}"); code != "0" {
		t.Errorf("exit code %s after %v", code, time.Since(begin))
	}
}

func TestContainerSupervisorKilled(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	r := c.start(c.sh("(setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); echo up; sleep 1000"))
	c.says(r, "up\n")
	c.killSupervisor(r)
	c.phase(r, execphase.Lost)
	if n := len(c.hostPids()); n != 1 {
		t.Errorf("%d processes when the lock is free", n)
	}
}

func TestContainerWithFiftyExecs(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	var all []execjournal.Request
	for i := range 50 {
		all = append(all, c.start(c.sh(fmt.Sprintf("echo %d; sleep 1; exit %d", i, i))))
	}
	for i, r := range all {
		if j := c.ended(r); j.ExitCode != i {
			t.Errorf("%d: %+v", i, j)
		}
	}
}

// TestContainerCosts prints the cost of the shim. The bounds are far above the usual values; they only catch mistakes. It uses the minimum
// of several containers, because Go adds a thread for each system call that a busy machine delays.
func TestContainerCosts(t *testing.T) {
	const containers = 4
	least := map[string]int{}
	var c *container
	for range containers {
		c = newContainer(t)
		c.do(c.request("true"))
		r := c.start(c.sh("echo up; exec sleep 1000"))
		c.says(r, "up\n")
		for _, pid := range c.hostPids() {
			status, line := c.read("/proc/"+pid+"/status"), strings.Split(c.read("/proc/"+pid+"/cmdline"), "\x00")
			if filepath.Base(line[0]) != "agbox-shim" {
				continue
			}
			t.Logf("%s: VmRSS %s, RssAnon %s, threads %s", strings.Join(line, " "),
				field(status, "VmRSS"), field(status, "RssAnon"), field(status, "Threads"))
			if n, _ := strconv.Atoi(field(status, "Threads")); least[line[1]] == 0 || n < least[line[1]] {
				least[line[1]] = n
			}
		}
	}
	for verb, n := range least {
		if n > 9 {
			t.Errorf("%s has %d threads", verb, n)
		}
	}
	if len(least) != 2 {
		t.Errorf("seen were %v, not PID 1 and a supervisor", least)
	}
	const rounds = 30
	var total, recording time.Duration
	for range rounds {
		r := c.request("true")
		begin := time.Now()
		c.start(r)
		path := filepath.Join(c.paths.Logs, execjournal.JournalName(r.ExecID))
		var j execjournal.Journal
		for j.State != execjournal.StateEnded {
			data, err := os.ReadFile(path)
			if err == nil {
				j, _ = execjournal.DecodeJournal(data, r.ExecID)
			}
		}
		total += time.Since(begin)
		recording += time.Since(time.Unix(0, j.EndedAtNanos))
	}
	t.Logf("true, from request to recorded end: %v; from its end to the record: %v", total/rounds, recording/rounds)
}

func field(status, key string) string {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
