package dockerx

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain plays an engine's process when the test binary runs itself under the name "dockerd".
func TestMain(m *testing.M) {
	if path := os.Getenv("DOCKERX_TEST_LISTEN"); path != "" {
		listenUntilClosed(path)
		return
	}
	os.Exit(m.Run())
}

func listenUntilClosed(path string) {
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("up")
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it or exits
	l.Close()
}

// startNamed starts a process with this name that listens on path, in new namespaces of the kinds in flags, and returns its PID and a function
// that stops it.
func startNamed(t *testing.T, name, path string, flags uintptr) (pid int, stop func()) {
	t.Helper()
	exe := filepath.Join(t.TempDir(), name)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, exe); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "DOCKERX_TEST_LISTEN="+path, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Cloneflags: flags}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		in.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%s: %q, %v", name, line, err)
	}
	return cmd.Process.Pid, stop
}

func identity(t *testing.T, r runSource, path string) string {
	t.Helper()
	return lifeOf(t, r, path).id
}

func lifeOf(t *testing.T, r runSource, path string) engineLife {
	t.Helper()
	life, err := r.local(t.Context(), endpoint{network: "unix", address: path})
	if err != nil {
		t.Fatal(err)
	}
	if (life.id == "") != life.started.IsZero() {
		t.Errorf("%+v", life)
	}
	return life
}

func TestRunIdentifiesTheListeningDockerd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	before := time.Now()
	pid, stop := startNamed(t, "dockerd", path, 0)
	if at := lifeOf(t, hostRunSource, path).started; at.Before(before.Add(-2*tick)) || at.After(time.Now()) {
		t.Errorf("StartedAt %s, want it after %s", at, before)
	}
	first := identity(t, hostRunSource, path)
	if !strings.Contains(first, " "+strconv.Itoa(pid)+" ") || identity(t, hostRunSource, path) != first {
		t.Errorf("identity of process %d: %q", pid, first)
	}
	stop()
	startNamed(t, "dockerd", path, 0)
	if second := identity(t, hostRunSource, path); second == first || second == "" {
		t.Errorf("identity %q, that of the previous process %q", second, first)
	}
}

func TestRunUsesThePidFileBehindSocketActivation(t *testing.T) {
	dir := t.TempDir()
	path, pidFile := filepath.Join(dir, "s"), filepath.Join(dir, "pid")
	startNamed(t, "systemd", path, 0)
	pid, stop := startNamed(t, "dockerd", filepath.Join(dir, "other"), 0)
	writePid := func(s string) {
		t.Helper()
		if err := os.WriteFile(pidFile, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := runSource{proc: "/proc", pidFile: pidFile, sockets: []string{path}}
	if id := identity(t, r, path); id != "" {
		t.Errorf("without a pid file: %q", id)
	}
	writePid(strconv.Itoa(pid) + "\n")
	if id := identity(t, r, path); !strings.Contains(id, " "+strconv.Itoa(pid)+" ") {
		t.Errorf("identity of process %d: %q", pid, id)
	}
	if id := identity(t, runSource{proc: "/proc", pidFile: pidFile}, path); id != "" {
		t.Errorf("the pid file of another engine: %q", id)
	}
	for _, content := range []string{"", "x", "-1", strconv.Itoa(os.Getpid())} { // the last one is no dockerd
		writePid(content)
		if id := identity(t, r, path); id != "" {
			t.Errorf("pid file %q: %q", content, id)
		}
	}
	writePid(strconv.Itoa(pid))
	stop()
	if id := identity(t, r, path); id != "" {
		t.Errorf("pid file of a dead process: %q", id)
	}
}
