// Package workertest starts workers, as PID 1 of a sandbox does, for tests without a container.
package workertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/shim"
)

// env marks a process that is a worker.
const env = "AGBOX_TEST_WORKER"

// Main must be called first in TestMain. In a worker it does not return.
func Main() {
	if os.Getenv(env) != "" {
		os.Exit(shim.Run(os.Args[1:], shim.Places{})) //nolint:forbidigo // this is the main of the worker
	}
}

// Worker is a worker process.
type Worker struct {
	t    testing.TB
	fd   int // init's end
	Cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a worker for a user, "uid:gid"; empty: the one of this process. home is the directory of relative paths.
func Start(t testing.TB, user, home string, args ...string) *Worker {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "worker")
	defer theirs.Close()
	if user == "" {
		user = fmt.Sprintf("%d:%d", os.Geteuid(), os.Getegid())
	}
	w := &Worker{t: t, fd: pair[0], Cmd: exec.Command("/proc/self/exe"), done: make(chan struct{})}
	w.Cmd.Args = append([]string{"agbox-shim", "serve", "--default-user=" + user, "--user=" + user}, args...)
	w.Cmd.Env = append(os.Environ(), env+"=1", "HOME="+home, "GORACE=atexit_sleep_ms=0")
	w.Cmd.ExtraFiles = []*os.File{theirs}
	w.Cmd.Stderr = os.Stderr
	if err := w.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.done)
		_ = w.Cmd.Wait()
	}()
	t.Cleanup(func() {
		unix.Close(w.fd)
		<-w.Done()
	})
	return w
}

// Done is closed when the worker has exited.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Open passes a new connection to the worker and returns the daemon's end.
func (w *Worker) Open() (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Sendmsg(w.fd, []byte{0}, unix.UnixRights(pair[1]), nil, unix.MSG_NOSIGNAL)
	unix.Close(pair[1])
	f := os.NewFile(uintptr(pair[0]), "stream")
	defer f.Close()
	if err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// Call opens a stream and sends a request.
func (w *Worker) Call(c channel.Call) net.Conn {
	w.t.Helper()
	conn, err := w.Open()
	if err == nil {
		w.t.Cleanup(func() { conn.Close() })
		err = channel.WriteJSON(conn, channel.Request, c)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return conn
}
