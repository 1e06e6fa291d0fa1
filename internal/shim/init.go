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

// Pauses between two rescans of all requests. inotify wakes init at once; rescanEvery is the fallback for runtimes that do not forward
// inotify events. rescanEveryUnwoken applies when the host's user has no inotify instance left (fs.inotify.max_user_instances is per host
// user, so the roots of all containers share it), and where inotify may not report files that the host writes.
const (
	rescanEvery        = 2 * time.Second
	rescanEveryUnwoken = 50 * time.Millisecond
)

// initProcess is PID 1.
//
//   - It starts one supervisor for each request without a journal; the supervisor inherits the exec's lock.
//   - It holds the lock as well, until the supervisor has exited in order or its whole process tree is gone.
//   - After TERM it gives agents time to save their work, see parking. A second TERM ends that time.
//   - After that, or the exit of the main process, it starts nothing. It exits when every supervisor has exited, with the exit code of the
//     main process. The kernel kills remaining processes with the PID namespace.
//
// All state in memory may be lost: it is derived from the files and from child processes, which die with PID 1.
type initProcess struct {
	places Places
	options
	logs  int // the log directory; -1 until it is open
	stop  int // eventfd that all supervisors inherit; readable once the container stops
	sig   *signals
	inbox inbox

	score    oomScore // OOM score of PID 1
	starting starting
	ready    ready
	reserve  reserve
	channel  channelEnd
	mainPid  int  // process ID of the main process's supervisor; 0: none
	mainLink int  // link to it
	released bool // before the release init starts no process of the sandbox
	exitCode int
	report   report
	entry    entry
	unable   string // why this runtime cannot run commands; empty: no reason known to PID 1

	children map[string]*child // living supervisors, by exec ID
	dead     []*child          // supervisors that died; their process trees are being killed
	clean    int               // consecutive purge rounds that found no process
	settled  map[string]fileID // handled requests, by exec ID
	secrets  secrets           // empty before the release
	failures map[string]int    // number of supervisors that died before they created a journal, by exec ID
	busy     map[string]int    // number of failed attempts to lock, by exec ID
	parking  parking
	draining bool
	rescanAt time.Time
}

// child is one supervisor.
type child struct {
	id      string
	pid     int
	lock    int
	link    int // init's end of the supervisor's linkFd
	request fileID
	fed     fill // the inbox as last announced to the supervisor
}

func runInit(at Places, o options) int {
	// A runtime may have left descriptors open; commands must not inherit them. Kernels before 5.11 lack CLOSE_RANGE_CLOEXEC, so there they
	// stay open.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	handleSignals()
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
	for _, name := range []string{execjournal.TerminatedName, execjournal.StartedName} { // left by an earlier run of the container, if any
		_ = unix.Unlink(filepath.Join(at.Logs, name))
	}
	p := &initProcess{
		score:  score,
		places: at, options: o, logs: -1, stop: stop, sig: sig, inbox: newInbox(at.Ctl),
		children: make(map[string]*child), settled: make(map[string]fileID),
		failures: make(map[string]int), busy: make(map[string]int), starting: starting{since: make(map[string]time.Time)},
		entry: entry{listener: -1, held: -1},
	}
	if o.probe {
		p.unable, p.run = inability(), rand.Text()
	}
	p.channel = newChannelEnd(p)
	if !o.gated {
		p.release()
	}
	return p.loop()
}

func (p *initProcess) loop() int {
	for {
		p.reap()
		p.purge()
		p.awaitEntry(time.Now())
		if p.sig.consume(askedToEnd) || p.sig.consume(interrupted) {
			p.noteTerm()
			p.park(time.Now())
		}
		p.parked(time.Now())
		if p.draining && p.mainPid == 0 && p.entry.pid == 0 && len(p.children) == 0 && len(p.dead) == 0 {
			p.reserve.release()
			return p.exitCode
		}
		if now := time.Now(); !now.Before(p.rescanAt) {
			p.rescan(now)
		}
		p.wait()
	}
}

// noteTerm creates a file which records that PID 1 received TERM or INT. agboxd uses it to distinguish docker stop from a crash.
func (p *initProcess) noteTerm() {
	if err := execjournal.Touch(unix.AT_FDCWD, filepath.Join(p.places.Logs, execjournal.TerminatedName), 0); err != nil {
		say("note the TERM: %v", err)
	}
}

// drain notifies every supervisor, once, that the container stops.
func (p *initProcess) drain() {
	if p.draining {
		return
	}
	p.draining, p.parking = true, parking{}
	if len(p.command) > 0 && !p.released {
		p.exitCode = stoppedEarly
	}
	_, _ = unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only if the counter is full, and thus readable
}

// wait blocks until a signal, an inotify event, a supervisor that finished starting, or the next due time, and handles these events.
func (p *initProcess) wait() {
	fds := []unix.PollFd{{Fd: int32(p.sig.fd), Events: unix.POLLIN}}
	if p.inbox.fd >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(p.inbox.fd), Events: unix.POLLIN})
	}
	begin := len(fds)
	fds = p.starting.watch(fds)
	entry := len(fds)
	fds = p.entry.watch(fds)
	links, launched := len(fds), p.launched()
	for _, c := range launched {
		fds = append(fds, unix.PollFd{Fd: int32(c.link), Events: unix.POLLIN})
	}
	control := len(fds)
	fds = p.channel.watch(fds)
	due := earlier(earlier(p.rescanAt, p.entry.due), p.parking.due())
	if len(p.dead) > 0 {
		due = earlier(due, p.purgeAt())
	}
	if n, err := unix.Poll(fds, pollTimeout(due)); n <= 0 || err != nil {
		return
	}
	p.sig.clear()
	if p.starting.settle(fds[begin:entry]) {
		p.startWaiting()
	}
	for i, c := range launched {
		if fds[links+i].Revents != 0 {
			p.freed(c)
		}
	}
	if control < len(fds) && fds[control].Revents != 0 {
		p.channel.read()
	}
	if p.inbox.fd >= 0 && fds[begin-1].Revents != 0 {
		names, overflow := p.inbox.read()
		if overflow {
			p.retryIn(0)
		}
		for _, name := range names {
			p.consider(name)
		}
	}
}

// startWaiting retries the execs that wait for memory, before any that came later.
func (p *initProcess) startWaiting() {
	for _, id := range p.starting.waiting() {
		p.start(id)
	}
}

// retryIn makes the next rescan happen no later than in d.
func (p *initProcess) retryIn(d time.Duration) { p.rescanAt = earlier(p.rescanAt, time.Now().Add(d)) }

// rescan handles every request and cancel file, and keeps the memory reserve running.
func (p *initProcess) rescan(now time.Time) {
	p.rescanAt = now.Add(rescanEvery)
	if !p.inbox.watch() || p.unwoken() {
		p.rescanAt = now.Add(rescanEveryUnwoken)
	}
	p.reportStart()
	p.startWaiting()
	names := p.inbox.list()
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = true
		p.consider(name)
	}
	p.prune(present)
	p.pruneSecrets(present)
	if !p.draining {
		p.reserve.keep(p.score)
	}
	p.ready.prune(now)
}
