// Package dockerd starts private Docker engines for tests that kill, freeze or restart one: each with its own data, exec
// and PID paths, on its own socket, and in its own network namespace, since a second dockerd in the host's namespace
// deletes the bridge of the first. It needs root, dockerd and iproute2, and removes everything it created.
package dockerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"
)

// startTimeout bounds the wait for an engine's first answer; killTimeout the wait for a killed process to exit.
const (
	startTimeout = time.Minute
	killTimeout  = 30 * time.Second
)

var engines atomic.Int64

// Engine is one private engine. Its methods must be called from one goroutine.
type Engine struct {
	t       testing.TB
	dir     string
	netns   string
	args    []string
	user    int    // who runs it
	program string // dockerd, or one that executes it
	// wrapper is a command that executes program, whose command line is appended; nil: none.
	wrapper []string
	proc    *exec.Cmd
}

// Start starts an engine and waits until it answers. args are added to its command line, such as "--live-restore". When
// the test ends, the engine, its containers and its namespace are removed.
func Start(t testing.TB, args ...string) *Engine {
	t.Helper()
	return StartIn(t, "", args...)
}

// StartIn is Start for an engine whose files lie below dir: its path must be short, as those of sockets are; "" is the directory for temporary files.
func StartIn(t testing.TB, dir string, args ...string) *Engine {
	t.Helper()
	e := prepare(t, dir, args)
	e.Start()
	return e
}

// prepare makes the directory of an engine, below another, and its namespace.
func prepare(t testing.TB, below string, args []string) *Engine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a private engine needs root")
	}
	// A socket path is limited to 107 bytes; t.TempDir may be longer.
	dir, err := os.MkdirTemp(below, "agboxd-")
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{t: t, dir: dir, program: "dockerd", args: args, netns: fmt.Sprintf("agbox-%d-%d", os.Getpid(), engines.Add(1))}
	t.Cleanup(e.clean)
	e.ip("netns", "add", e.netns)
	e.ip("-n", e.netns, "link", "set", "lo", "up")
	return e
}

// Host is the engine's address, in the form of DOCKER_HOST.
func (e *Engine) Host() string { return "unix://" + e.Socket() }

// Socket is the path of the engine's socket.
func (e *Engine) Socket() string { return filepath.Join(e.dir, "sock") }

// Pid is the PID of the engine's process.
func (e *Engine) Pid() int { return e.proc.Process.Pid }

// Netns is the path of the engine's network namespace.
func (e *Engine) Netns() string { return filepath.Join("/run/netns", e.netns) }

// User is the ID of the user and the group that run the engine.
func (e *Engine) User() int { return e.user }

// Beside returns a command that executes a program as the engine's user, in its network namespace: the ports that containers publish are there.
func (e *Engine) Beside(program string) *exec.Cmd {
	return exec.Command("nsenter", slices.Concat([]string{"--net=" + e.Netns()}, e.asUser(), []string{program})...)
}

// asUser is a command that executes another one as the engine's user, whose command line is appended.
func (e *Engine) asUser() []string {
	id := strconv.Itoa(e.user)
	return []string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups"}
}

// Start starts an engine that was stopped or killed, with the arguments of the first start and args, and waits until it
// answers.
func (e *Engine) Start(args ...string) {
	e.t.Helper()
	e.dropStalePidFiles()
	log, err := os.Create(filepath.Join(e.dir, "log"))
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	e.proc = exec.Command("nsenter", slices.Concat([]string{"--net=" + e.Netns()}, e.wrapper, []string{
		e.program,
		"--data-root", filepath.Join(e.dir, "data"),
		"--exec-root", filepath.Join(e.dir, "exec"),
		"--pidfile", filepath.Join(e.dir, "pid"),
		"--host", e.Host(),
		"--cgroup-parent", "/" + e.netns,
	}, e.args, args)...)
	e.proc.Stdout, e.proc.Stderr = log, log
	// In a process group of its own, so that a terminal's interrupt does not end the engine before the test's cleanup.
	e.proc.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := e.proc.Start(); err != nil {
		e.t.Fatalf("start dockerd: %v", err)
	}
	e.waitUntilUp()
}

// dropStalePidFiles removes the PID files of a killed engine: its own, and that of its containerd, whose dead process may
// still be a zombie, which dockerd would mistake for a running one.
func (e *Engine) dropStalePidFiles() {
	for _, f := range []string{"pid", "exec/containerd/containerd.pid"} {
		path := filepath.Join(e.dir, f)
		if raw, err := os.ReadFile(path); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(raw))); err == nil {
				waitGone(pid)
			}
		}
		_ = os.Remove(path)
	}
}

// waitGone waits until a process has exited or is a zombie.
func waitGone(pid int) {
	for end := time.Now().Add(killTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
}

func (e *Engine) waitUntilUp() {
	e.t.Helper()
	c, err := client.NewClientWithOpts(client.WithHost(e.Host()), client.WithTimeout(time.Second))
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := c.Ping(context.Background()); err == nil {
			return
		}
	}
	log, _ := os.ReadFile(filepath.Join(e.dir, "log"))
	e.t.Fatalf("dockerd does not answer after %s; its log:\n%s", startTimeout, log)
}

// Kill sends KILL to the engine's process and waits for its exit. Its containerd dies with it; containers keep running.
func (e *Engine) Kill() { e.end(unix.SIGKILL) }

// Stop sends TERM to the engine's process, and waits for its exit.
func (e *Engine) Stop() { e.end(unix.SIGTERM) }

func (e *Engine) end(signal syscall.Signal) {
	if e.proc == nil || e.proc.ProcessState != nil {
		return
	}
	_ = e.proc.Process.Signal(signal)
	_ = e.proc.Wait() // its status is known
}

// Freeze sends STOP to the engine's process and waits until every thread is stopped, since it may still answer for a moment
// after the signal. A frozen engine accepts connections and answers nothing.
func (e *Engine) Freeze() {
	_ = e.proc.Process.Signal(unix.SIGSTOP)
	for deadline := time.Now().Add(killTimeout); !stopped(e.Pid()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			e.t.Errorf("the engine does not stop")
			return
		}
	}
}

// stopped reports whether every thread of a process is stopped: the state follows the name in /proc/<pid>/task/<tid>/stat.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, path := range threads {
		line, err := os.ReadFile(path)
		if _, rest, ok := strings.Cut(string(line), ") "); err != nil || !ok || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// Thaw resumes a frozen engine.
func (e *Engine) Thaw() { _ = e.proc.Process.Signal(unix.SIGCONT) }

func (e *Engine) ip(args ...string) {
	e.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		e.t.Errorf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
