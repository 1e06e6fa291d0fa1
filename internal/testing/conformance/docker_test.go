//go:build docker

package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/host/naming"
)

func TestOnDocker(t *testing.T) { onDocker(t, nil) }

// TestOnARemappingEngine: root of the containers is an unprivileged user of the host, whom the daemon's files must let in.
func TestOnARemappingEngine(t *testing.T) {
	if os.Getenv("AGBOX_REMAP") == "" {
		t.Skip("AGBOX_REMAP is not set: the whole suite a second time takes minutes, see make test-userns")
	}
	e := dockerd.StartRemapped(t, "--live-restore")
	loadBase(t, e)
	onDocker(t, e)
}

// TestOnARootlessEngine: the daemon and the engine run as an unprivileged user. With cgroup version 1 such an engine has no control groups.
func TestOnARootlessEngine(t *testing.T) {
	if os.Getenv("AGBOX_ROOTLESS") == "" {
		t.Skip("AGBOX_ROOTLESS is not set: the whole suite a second time takes minutes, see make test-rootless")
	}
	e := dockerd.StartRootless(t)
	loadBase(t, e)
	driver, err := exec.Command("docker", "-H", e.Host(), "info", "--format", "{{.CgroupDriver}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	onDocker(t, e, func(target *Target) {
		target.User, target.NoCgroups = e.User(), strings.TrimSpace(string(driver)) == "none"
	})
}

// TestOnGVisor: the engine's default runtime has a kernel of its own, which hides locks and notifies of no files.
func TestOnGVisor(t *testing.T) {
	runsc := os.Getenv("AGBOX_RUNSC")
	if runsc == "" {
		t.Skip("AGBOX_RUNSC is not set: gVisor's runtime takes minutes to build, see make test-runsc")
	}
	wrapper := filepath.Join(t.TempDir(), "runsc")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec "+runsc+" --overlay2=none --network=host \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := dockerd.Start(t, "--live-restore", "--add-runtime", "runsc="+wrapper, "--default-runtime", "runsc")
	loadBase(t, e)
	onDocker(t, e, func(target *Target) { target.NoChannel = true })
}

const baseImage = "agbox-base:dev"

func loadBase(t *testing.T, e *dockerd.Engine) {
	t.Helper()
	script := "docker save " + baseImage + " | docker -H " + e.Host() + " load"
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// onDocker runs the suite on an engine; nil: the one that is there.
func onDocker(t *testing.T, e *dockerd.Engine, but ...func(*Target)) {
	t.Helper()
	bin := t.TempDir()
	for name, args := range map[string][]string{"agboxd": {"CGO_ENABLED=1", "-race"}, "agbox-shim": {"CGO_ENABLED=0", "-trimpath"}} {
		cmd := exec.Command("go", "build", args[1], "-o", filepath.Join(bin, name), "../../../cmd/"+name)
		cmd.Env = append(os.Environ(), args[0])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	if e != nil { // its user runs them
		for _, dir := range []string{bin, filepath.Dir(bin)} {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	target := Target{
		Start: func(t testing.TB, s Settings) Daemon { return startReal(t, bin, e, s) },
		Image: baseImage, MissingImage: "agbox-conformance-missing:1",
	}
	for _, change := range but {
		change(&target)
	}
	Run(t, target)
}

// realDaemon is the agboxd binary, with directories of its own.
type realDaemon struct {
	bin, home string
	engine    *dockerd.Engine // nil: the one that is there
	log       output
	cmd       *exec.Cmd
	done      chan struct{}
}

// output keeps what a daemon says for the moment when a test fails.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) tail(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := o.buf.String()
	return text[max(0, len(text)-n):]
}

// pools gives daemons that run side by side subnets of their own.
var pools atomic.Int32

func startReal(t testing.TB, bin string, e *dockerd.Engine, s Settings) Daemon {
	t.Helper()
	home, err := os.MkdirTemp("", "agbox-conf-") // short: a socket's path may have 107 characters at most
	if err != nil {
		t.Fatal(err)
	}
	d := &realDaemon{bin: bin, home: home, engine: e}
	t.Cleanup(func() { d.destroy(t) })
	file := filepath.Join(home, "config", "agents-sandbox", "config.toml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(d.config(s)), 0o600); err != nil {
		t.Fatal(err)
	}
	if e != nil {
		for _, path := range []string{home, filepath.Join(home, "config"), filepath.Dir(file), file} {
			if err := os.Chown(path, e.User(), e.User()); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.start(t)
	return d
}

func (d *realDaemon) config(s Settings) string {
	text := fmt.Sprintf("[http]\nlisten = \"off\"\n[docker]\nsubnet_pool = \"10.%d.0.0/16\"\n", 230+pools.Add(1)%20)
	text += "[runtime]\nstop_grace = \"2s\"\ncancel_grace = \"2s\"\n"
	if s.EventRetention > 0 {
		text += fmt.Sprintf("event_retention_ttl = %q\n", s.EventRetention)
	}
	if s.CleanupTTL > 0 {
		text += fmt.Sprintf("cleanup_ttl = %q\n", s.CleanupTTL)
	}
	if s.EventRetention > 0 || s.CleanupTTL > 0 {
		text += "resync_interval = \"1s\"\n"
	}
	text += fmt.Sprintf("event_history_limit = %d\n", s.EventHistoryLimit)
	text += fmt.Sprintf("[pause]\nfreeze_duration = %q\nmax_frozen = %d\nstopped_gc_after = %q\n", s.FreezeDuration, s.MaxFrozen, s.StoppedGCAfter)
	return text + fmt.Sprintf("[artifacts]\nexec_log_max_bytes = \"%d\"\n", s.LogLimitBytes)
}

func (d *realDaemon) start(t testing.TB) {
	t.Helper()
	program := filepath.Join(d.bin, "agboxd")
	cmd := exec.Command(program)
	if d.engine != nil {
		cmd = d.engine.Beside(program)
	}
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+d.home+"/run", "XDG_DATA_HOME="+d.home+"/data", "XDG_CONFIG_HOME="+d.home+"/config")
	if d.engine != nil {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+d.engine.Host())
	}
	cmd.Stdout, cmd.Stderr = &d.log, &d.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	d.cmd, d.done = cmd, done
	d.answers(t)
}

func (d *realDaemon) answers(t testing.TB) {
	t.Helper()
	conn, err := d.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := agboxv1.NewSandboxServiceClient(conn).Ping(ctx, &agboxv1.PingRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("agboxd does not answer: %v\n%s", err, d.log.tail(4000))
	}
}

func (d *realDaemon) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+d.home+"/run/agbox/agboxd.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func (d *realDaemon) end(sig syscall.Signal) {
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(sig)
		<-d.done
	}
}

func (d *realDaemon) Stop(testing.TB) { d.end(syscall.SIGTERM) }

func (d *realDaemon) Restart(t testing.TB) {
	t.Helper()
	d.end(syscall.SIGKILL)
	d.start(t)
}

func (d *realDaemon) Break(t testing.TB, sandboxID string, what Damage) {
	t.Helper()
	primary, network := naming.Primary(sandboxID), naming.Network(sandboxID)
	switch what {
	case KillPrimary:
		d.docker(t, "kill", primary)
	case RemovePrimary:
		d.docker(t, "rm", "-f", primary)
	case StarvePrimary:
		d.docker(t, "exec", primary, "touch", glutFile)
	case RemoveNetwork:
		d.frozen(t, func() { // awake, it connects the primary again before the network can be removed
			d.docker(t, "network", "disconnect", "-f", network, primary)
			d.docker(t, "network", "rm", network)
		})
	}
}

// frozen stops the daemon's process during do.
func (d *realDaemon) frozen(t testing.TB, do func()) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.cmd.Process.Signal(syscall.SIGCONT) }() // do may end the test
	do()
}

// destroy removes the daemon and all that bears its instance's label.
func (d *realDaemon) destroy(t testing.TB) {
	if t.Failed() {
		t.Logf("log of agboxd:\n%s", d.log.tail(20000))
	}
	d.end(syscall.SIGKILL)
	instance, _ := os.ReadFile(filepath.Join(d.home, "data/agents-sandbox/instance")) // absent when it never began
	if id := strings.TrimSpace(string(instance)); id != "" {
		for _, kind := range [][2][]string{
			{{"ps", "-aq"}, {"rm", "-fv"}}, {{"network", "ls", "-q"}, {"network", "rm"}}, {{"volume", "ls", "-q"}, {"volume", "rm"}},
		} {
			d.removeAll(t, append(kind[0], "--filter", "label="+naming.Instance+"="+id), kind[1])
		}
	}
	if err := os.RemoveAll(d.home); err != nil {
		t.Error(err)
	}
}

// removeAll removes what is listed until nothing is. The engine may still be at a removal that the daemon began, and refuses
// a second one.
func (d *realDaemon) removeAll(t testing.TB, list, remove []string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		left := strings.Fields(d.docker(t, list...))
		if len(left) == 0 {
			return
		}
		out, err := d.run(append(remove, left...)...)
		if err != nil && time.Now().After(deadline) {
			t.Errorf("%v stay: %v\n%s", left, err, out)
			return
		}
	}
}

func (d *realDaemon) docker(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.run(args...)
	if err != nil {
		t.Errorf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (d *realDaemon) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if d.engine != nil {
		args = append([]string{"-H", d.engine.Host()}, args...)
	}
	out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput()
	return string(out), err
}
