package shim

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// maxWorkers is the number of users that have a worker at the same time.
	maxWorkers = 16
	// maxAwaiting is the number of streams that wait for the supervisor of their exec.
	maxAwaiting = 256
	// requestPatience is how long a stream waits for the request of its exec: both are on their way at the same time.
	requestPatience = 5 * time.Second
)

// channelEnd is PID 1's end of the live channel. It dials the daemon's socket for the control connection, and again for each stream that the
// daemon asks for, and passes the stream to the supervisor of an exec or to a worker. It carries no byte of any stream, and a lost connection
// changes nothing else: the daemon's socket appears again with the next daemon.
type channelEnd struct {
	p        *initProcess
	socket   string
	fd       int               // control connection; -1: none
	in       []byte            // start of a frame on it
	workers  map[string]worker // by user
	leaving  []worker          // accept no more streams, and still serve those that they have
	awaiting []awaiting
}

// worker is a process that serves files and ports as one user.
type worker struct{ pid, link int }

// awaiting is a stream for an exec whose supervisor has not been spawned.
type awaiting struct {
	exec, token string
	until       time.Time // the request must exist by then
}

func newChannelEnd(p *initProcess) channelEnd {
	return channelEnd{p: p, socket: filepath.Join(p.inbox.dir, channel.SocketName), fd: -1, workers: make(map[string]worker)}
}

// dial opens the control connection, if there is none. A failure is no news: every rescan calls it again.
func (c *channelEnd) dial() {
	if c.fd >= 0 || c.p.draining {
		return
	}
	fd, err := c.connect(channel.Frame{Kind: channel.Hello, Number: channel.Version})
	if err == nil {
		c.fd, c.in = fd, nil
	}
}

// connect opens a connection and sends its first frame, which fits into the buffer of a new socket. It never blocks.
func (c *channelEnd) connect(hello channel.Frame) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: c.socket}); err == nil {
		_, err = unix.Write(fd, hello.Append(nil))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// watch appends the control connection for poll(2) to fds.
func (c *channelEnd) watch(fds []unix.PollFd) []unix.PollFd {
	if c.fd < 0 {
		return fds
	}
	return append(fds, unix.PollFd{Fd: int32(c.fd), Events: unix.POLLIN})
}

// read handles the frames on the control connection, and closes it if it broke.
func (c *channelEnd) read() {
	buf := make([]byte, 4<<10)
	n, err := unix.Read(c.fd, buf)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	if err != nil || n <= 0 {
		c.hangUp()
		return
	}
	c.in = append(c.in, buf[:n]...)
	for {
		f, size, err := channel.Cut(c.in)
		if err != nil {
			c.hangUp()
			return
		}
		if size == 0 {
			return
		}
		c.in = c.in[size:]
		if f.Kind == channel.Open {
			c.open(f)
		}
		if c.fd < 0 { // a refusal met a dead daemon
			return
		}
	}
}

func (c *channelEnd) hangUp() {
	unix.Close(c.fd)
	c.fd, c.in, c.awaiting = -1, nil, nil
	c.p.retryIn(busyPause)
}

// open serves one Open.
func (c *channelEnd) open(f channel.Frame) {
	switch {
	case c.p.draining:
		c.refuse(f.Text, "the sandbox is stopping")
	case f.Exec == "":
		c.openWorker(f)
	case c.p.children[f.Exec] != nil:
		c.passToExec(f.Text, c.p.children[f.Exec].link)
	default:
		c.await(f)
	}
}

// await keeps a stream until the supervisor of its exec was spawned.
func (c *channelEnd) await(f channel.Frame) {
	a := awaiting{f.Exec, f.Text, time.Now().Add(requestPatience)}
	if len(c.awaiting) == maxAwaiting || c.hopeless(a) {
		c.refuse(f.Text, notRunning)
		return
	}
	c.awaiting = append(c.awaiting, a)
}

// hopeless reports whether the supervisor that a stream waits for will not be spawned.
func (c *channelEnd) hopeless(a awaiting) bool {
	file, _, ok := c.p.inbox.stat(execjournal.RequestName(a.exec))
	if !ok {
		return time.Now().After(a.until)
	}
	return c.p.settled[a.exec] == file || c.p.isDead(a.exec)
}

// settle drops the waiting streams that are over, and all of them if the connection that they came by breaks meanwhile.
func (c *channelEnd) settle(over func(awaiting) bool) {
	waiting := c.awaiting
	c.awaiting = nil
	if waiting = slices.DeleteFunc(waiting, over); c.fd >= 0 {
		c.awaiting = waiting
	}
}

const notRunning = "the command is not running"

// started passes the streams that wait for an exec to its supervisor.
func (c *channelEnd) started(exec string, link int) {
	c.settle(func(a awaiting) bool {
		if a.exec == exec {
			c.passToExec(a.token, link)
		}
		return a.exec == exec
	})
}

// prune refuses the streams of execs that will not start.
func (c *channelEnd) prune() {
	c.settle(func(a awaiting) bool {
		over := c.hopeless(a)
		if over {
			c.refuse(a.token, notRunning)
		}
		return over
	})
}

// openWorker passes a stream to the worker of a user.
func (c *channelEnd) openWorker(f channel.Frame) {
	if w, ok := c.workers[f.User]; ok {
		if !errors.Is(c.pass(f.Text, w.link), unix.EPIPE) {
			return
		}
		c.leaving = append(c.leaving, w) // it was idle: see serve.Worker.Run
		delete(c.workers, f.User)
	}
	w, err := c.startWorker(f.User)
	if err != nil {
		c.refuse(f.Text, "the sandbox has no room for another process: "+err.Error())
		return
	}
	c.workers[f.User] = w
	_ = c.pass(f.Text, w.link) // the daemon sees a failure
}

func (c *channelEnd) startWorker(user string) (worker, error) {
	if len(c.workers) >= maxWorkers {
		return worker{}, errors.New("too many users have open streams")
	}
	if admitted, _ := c.p.starting.admit("", c.p.live(), time.Now()); !admitted {
		delete(c.p.starting.since, "")
		return worker{}, unix.ENOMEM
	}
	o := c.p.options
	if user != "" {
		o.user = user
	}
	pid, link, err := spawnLinked(o.args(serveVerb), func(end uintptr) []uintptr { return []uintptr{0, 2, 2, workerFd: end} })
	if err != nil {
		return worker{}, err
	}
	c.p.score.set(pid, commandScore)
	return worker{pid, link}, nil
}

// ended forgets a worker that has exited, and reports whether the process was one.
func (c *channelEnd) ended(pid int) (was bool) {
	end := func(w worker) bool {
		if w.pid == pid {
			unix.Close(w.link)
			was = true
		}
		return w.pid == pid
	}
	maps.DeleteFunc(c.workers, func(_ string, w worker) bool { return end(w) })
	c.leaving = slices.DeleteFunc(c.leaving, end)
	return was
}

// streamMark comes with the descriptor of a stream. It is no exec ID, which comes with that of a lock.
const streamMark = "\x01"

// pass opens a stream and passes it over a link. Only an error of the link is returned, and the daemon sees it as the end of the stream.
// EPIPE means that the process behind the link accepts no more streams; then the token can be used again.
func (c *channelEnd) pass(token string, link int) error {
	if closed(link) {
		return unix.EPIPE
	}
	fd, err := c.connect(channel.Frame{Kind: channel.Hello, Number: channel.Version, Text: token})
	if err != nil {
		c.refuse(token, "connect to agboxd: "+err.Error())
		return nil
	}
	defer unix.Close(fd)
	err = unix.Sendmsg(link, []byte(streamMark), unix.UnixRights(fd), nil, 0)
	if err != nil {
		say("pass a stream: %v", err)
	}
	return err
}

// passToExec passes a stream to the supervisor of an exec, which may have died.
func (c *channelEnd) passToExec(token string, link int) {
	if errors.Is(c.pass(token, link), unix.EPIPE) {
		c.refuse(token, notRunning)
	}
}

// closed reports whether the process behind a link accepts no more streams, or is dead.
func closed(link int) bool {
	fds := []unix.PollFd{{Fd: int32(link), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// refuse answers an Open.
func (c *channelEnd) refuse(token, why string) {
	if c.fd < 0 {
		return
	}
	f := channel.Frame{Kind: channel.Refuse, Text: token, Data: []byte(execjournal.Sentence(why))}
	if n, err := unix.Write(c.fd, f.Append(nil)); err != nil || n <= 0 {
		c.hangUp()
	}
}
