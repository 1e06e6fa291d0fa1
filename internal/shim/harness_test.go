//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// The test binary also runs as the shim: init and its supervisors are real processes, but without a PID namespace and with directories of
// the test.
const placesEnv = "AGBOX_SHIM_TEST_PLACES"

var verbs = []string{"init", "exec", "main", reserveVerb, "acp", execjournal.HoldVerb, "checkpoint", "status", "done"}

func TestMain(m *testing.M) {
	if at, ok := os.LookupEnv(placesEnv); ok && len(os.Args) > 1 && slices.Contains(verbs, os.Args[1]) {
		dirs := strings.Split(at, ":")
		os.Exit(Run(os.Args[1:], Places{Ctl: dirs[0], Logs: dirs[1], Out: dirs[2]}))
	}
	if os.Getenv(appenderEnv) != "" {
		runAppender()
	}
	code := m.Run()
	for _, f := range cleanups {
		f()
	}
	os.Exit(code)
}

// everyInShort returns the step of a loop over many cases: with -short it skips most of them.
func everyInShort(n int) int {
	if testing.Short() {
		return n
	}
	return 1
}

// cleanups are called after all tests.
var cleanups []func()

func atExit(f func()) { cleanups = append(cleanups, f) }

const (
	sandbox  = "box-1"
	patience = 30 * time.Second
	// longGrace is longer than every test: a command that exits on TERM is never killed, however busy the host is. Commands that ignore
	// TERM get a shorter grace period.
	longGrace = 10 * time.Minute
)

// box is one running init with its host side.
type box struct {
	testing.TB
	dir   *execjournal.Dir
	paths execjournal.Paths
	cmd   *exec.Cmd
	done  chan struct{} // closed when init has exited
	last  atomic.Int64
	wrap  func(*exec.Cmd) // changes how init is started
	args  []string        // additional arguments of init
}

// newBox creates the directories; boot starts init.
func newBox(t testing.TB) *box {
	t.Helper()
	root := t.TempDir()
	b := &box{TB: t, dir: execjournal.New(filepath.Join(root, "logs"), filepath.Join(root, "s"))}
	var err error
	if b.paths, err = b.dir.Prepare(sandbox); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *box) boot() *box {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	b.cmd = exec.Command(self, "init", fmt.Sprintf("--default-user=%d:%d", os.Geteuid(), os.Getegid()))
	b.cmd.Args = append(b.cmd.Args, b.args...)
	if b.wrap != nil {
		b.wrap(b.cmd)
	}
	b.cmd.Env = append(os.Environ(), placesEnv+"="+b.paths.Ctl+":"+b.paths.Logs+":"+b.paths.Out,
		"GORACE=atexit_sleep_ms=0") // otherwise every process of a race build exits a second late
	b.cmd.Dir = "/"
	if b.cmd.Stderr == nil {
		b.cmd.Stderr = os.Stderr
	}
	if err := b.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.done = make(chan struct{})
	go func() {
		defer close(b.done)
		_ = b.cmd.Wait()
	}()
	b.Cleanup(b.destroy)
	return b
}

// destroy kills init and all its descendants, as the end of a PID namespace would.
func (b *box) destroy() {
	tree{root: b.cmd.Process.Pid}.kill()
	_ = b.cmd.Process.Kill()
	<-b.done
}

func (b *box) request(command ...string) execjournal.Request {
	n := b.last.Add(1)
	return execjournal.Request{
		ExecID: fmt.Sprintf("exec-%d", n), Nonce: fmt.Sprintf("%032x", n), Command: command, CancelGraceMillis: longGrace.Milliseconds(),
	}
}

func (b *box) sh(script string) execjournal.Request { return b.request("/bin/sh", "-c", script) }

func (b *box) start(r execjournal.Request) execjournal.Request {
	b.Helper()
	if err := b.dir.Start(sandbox, r); err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *box) look(r execjournal.Request) execjournal.Status {
	b.Helper()
	s, err := b.dir.Status(sandbox, r.ExecID, r.Nonce)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// until waits for a condition that other processes bring about.
func (b *box) until(what string, ok func() bool) {
	b.Helper()
	b.within(patience, what, ok)
}

// within is until with a longer timeout, for slow operations on a busy machine.
func (b *box) within(d time.Duration, what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("waited %v for: %s", d, what)
		}
	}
}

func (b *box) phase(r execjournal.Request, want execphase.Phase) execjournal.Journal {
	b.Helper()
	var s execjournal.Status
	b.until(fmt.Sprintf("%s %v", r.ExecID, want), func() bool { s = b.look(r); return s.Phase == want })
	return s.Journal
}

func (b *box) ended(r execjournal.Request) execjournal.Journal {
	b.Helper()
	return b.phase(r, execphase.Ended)
}

func (b *box) cancel(r execjournal.Request) {
	b.Helper()
	if err := b.dir.Cancel(sandbox, r.ExecID, r.Nonce); err != nil {
		b.Fatal(err)
	}
}

func (b *box) logs(r execjournal.Request) (stdout, stderr string) {
	b.Helper()
	o, e := b.dir.LogPaths(sandbox, r.ExecID)
	return b.read(o), b.read(e)
}

func (b *box) read(path string) string {
	b.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// output waits until the standard output of r satisfies ok.
func (b *box) output(r execjournal.Request, ok func(string) bool) string {
	b.Helper()
	path, _ := b.dir.LogPaths(sandbox, r.ExecID)
	var text string
	b.until("output of "+r.ExecID, func() bool {
		data, _ := os.ReadFile(path)
		text = string(data)
		return ok(text)
	})
	return text
}

func (b *box) says(r execjournal.Request, want string) string {
	b.Helper()
	return b.output(r, func(s string) bool { return strings.Contains(s, want) })
}

// supervisor returns the process ID of the supervisor of r, or 0.
func (b *box) supervisor(r execjournal.Request) int {
	list, err := processes()
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range below(list, b.cmd.Process.Pid, nil) {
		if p.parent == b.cmd.Process.Pid && lastArg(p.pid) == r.ExecID {
			return p.pid
		}
	}
	return 0
}

func (b *box) killSupervisor(r execjournal.Request) {
	b.Helper()
	pid := b.supervisor(r)
	if pid == 0 {
		b.Fatalf("no supervisor of %s", r.ExecID)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
}

func lastArg(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	return args[len(args)-1]
}

// remnants returns the number of descendants of init, without the supervisor that waits for an exec.
func (b *box) remnants() int {
	list, err := processes()
	if err != nil {
		b.Fatal(err)
	}
	left := below(list, b.cmd.Process.Pid, nil)
	return len(slices.DeleteFunc(left, func(p process) bool { return lastArg(p.pid) == unassigned }))
}

// stop sends TERM to init and waits until it exits with code 0.
func (b *box) stop() {
	b.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if code := b.exitCode(); code != 0 {
		b.Fatalf("init ended with %d", code)
	}
}

// exitCode waits until init exits and returns its exit code.
func (b *box) exitCode() int {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-b.done:
	case <-ctx.Done():
		b.Fatal("init does not end")
	}
	return b.cmd.ProcessState.ExitCode()
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
