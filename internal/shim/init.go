package shim

import (
	"crypto/rand"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// How often init looks at all requests by itself. inotify makes it look at once; the long pause is the net under it, for
// runtimes that do not forward it. The short one is for a host whose user has no inotify instance left
// (fs.inotify.max_user_instances is per host user, so all containers' roots share it).
const (
	rescanEvery        = 2 * time.Second
	rescanEveryUnwoken = 50 * time.Millisecond
)

// initProcess is PID 1.
//
//   - A request without a journal is started, by one supervisor that inherits the exec's lock.
//   - init keeps the lock as well, until the supervisor has ended in order, or nothing of its tree is left.
//   - After TERM, or the end of the main process, nothing is started; it ends when every supervisor has, with the exit code
//     of the main process. What is left then the kernel kills with the PID namespace.
//
// All state can be lost: it is derived from the files and from its own children, which die with it.
type initProcess struct {
	places
	options
	logs  int // directory
	stop  int // eventfd that all supervisors have; readable once the container stops
	sig   *signals
	inbox inbox

	score    oomScore // of PID 1
	starting starting
	reserve  reserve
	mainPid  int  // supervisor of the main process; 0: there is none
	released bool // nothing of the sandbox's own is started before
	exitCode int
	unable   string // why this runtime can run no command; empty: it can, as far as PID 1 can see

	children map[string]*child // living supervisors, by exec ID
	dead     []*child          // supervisors that were killed; what they left is being killed
	clean    int               // rounds in a row that found nothing left of them
	settled  map[string]fileID // requests that need no more attention
	failures map[string]int    // supervisors that were killed before they created a journal
	busy     map[string]int    // requests whose lock somebody else held, and how often
	draining bool
	rescanAt time.Time
	soon     time.Time // next look at busy and failed ones; zero: none
}

// child is one supervisor.
type child struct {
	id      string
	pid     int
	lock    int
	request fileID
	fed     fill // the inbox as it was told of
}

func runInit(at places, o options) int {
	// Whatever a runtime left open in us is not the commands'. Kernels before 5.11 refuse; then it stays as it is.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	heedSignals()
	sig, err := catch()
	var stop int
	if err == nil {
		stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	}
	if err == nil {
		err = warmThreads(idleThreads)
	}
	if err == nil && os.Getpid() != 1 {
		err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	if err != nil {
		say("start: %v", err)
		return 1
	}
	score, err := scoreOf(os.Getpid())
	if err != nil {
		say("read the OOM score: %v", err)
	}
	_ = unix.Unlink(filepath.Join(at.logs, execjournal.TerminatedName)) // of an earlier run; most often there is none
	p := &initProcess{
		score:  score,
		places: at, options: o, logs: -1, stop: stop, sig: sig, inbox: newInbox(at.ctl),
		children: make(map[string]*child), settled: make(map[string]fileID),
		failures: make(map[string]int), busy: make(map[string]int), starting: starting{since: make(map[string]time.Time)},
	}
	if who, err := identify("/etc", o.user, o.defaultUser); err != nil {
		say("find the user of commands: %v", err)
	} else if err := ownWorkspace(who); err != nil {
		say("set up the working directory: %v", err)
	}
	if o.probe {
		p.unable, p.run = inability(), rand.Text()
	}
	if !o.gated {
		p.release()
	}
	return p.loop()
}

func (p *initProcess) loop() int {
	for {
		p.reap()
		p.purge()
		if p.sig.take(askedToEnd) || p.sig.take(interrupted) {
			p.noteTerm()
			p.drain()
		}
		if p.draining && p.mainPid == 0 && len(p.children) == 0 && len(p.dead) == 0 {
			p.reserve.release()
			return p.exitCode
		}
		if now := time.Now(); !now.Before(p.rescanAt) || !p.soon.IsZero() && !now.Before(p.soon) {
			p.rescan(now)
		}
		p.wait()
	}
}

// noteTerm leaves a file that says that PID 1 got a TERM. By it the daemon tells docker stop from a crash.
func (p *initProcess) noteTerm() {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Open(filepath.Join(p.places.logs, execjournal.TerminatedName), flags, 0o600)
	if err != nil {
		say("note the TERM: %v", err)
		return
	}
	unix.Close(fd)
}

// drain tells every supervisor, once, that the container stops. One that is too young to know the signal dies of it, and has
// started nothing, or ignores it, as the Go runtime does before it is told otherwise, and then finds the eventfd raised.
func (p *initProcess) drain() {
	if p.draining {
		return
	}
	p.draining = true
	if len(p.command) > 0 && !p.released {
		p.exitCode = stoppedEarly
	}
	_, _ = unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only when it is full, and so readable
	for _, c := range p.children {
		_ = unix.Kill(c.pid, unix.SIGUSR1)
	}
	if p.mainPid != 0 {
		_ = unix.Kill(p.mainPid, unix.SIGUSR1)
	}
}

// wait sleeps until a signal, a file in the inbox, or the next due time.
func (p *initProcess) wait() {
	fds := []unix.PollFd{{Fd: int32(p.sig.fd), Events: unix.POLLIN}}
	if p.inbox.fd >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(p.inbox.fd), Events: unix.POLLIN})
	}
	begin := len(fds)
	fds = p.starting.watch(fds)
	due := p.rescanAt
	if !p.soon.IsZero() && p.soon.Before(due) {
		due = p.soon
	}
	if len(p.dead) > 0 && !p.purgeAt().After(due) {
		due = p.purgeAt()
	}
	timeout := max(0, time.Until(due)+time.Millisecond-1) / time.Millisecond
	if n, err := unix.Poll(fds, int(timeout)); n <= 0 || err != nil {
		return
	}
	p.sig.clear()
	for _, id := range p.starting.settled(fds[begin:]) {
		p.start(id)
	}
	if p.inbox.fd >= 0 && fds[begin-1].Revents != 0 {
		names, overflow := p.inbox.read()
		if overflow {
			p.rescanAt = time.Time{}
		}
		for _, name := range names {
			p.consider(name)
		}
	}
}

// rescan looks at every request and cancel there is, and at the memory reserve.
func (p *initProcess) rescan(now time.Time) {
	p.soon = time.Time{}
	p.rescanAt = now.Add(rescanEvery)
	if !p.inbox.watch() || p.unwoken() {
		p.rescanAt = now.Add(rescanEveryUnwoken)
	}
	names := p.inbox.list()
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = true
		p.consider(name)
	}
	p.prune(present)
	if !p.draining {
		p.reserve.keep(p.score)
	}
}
