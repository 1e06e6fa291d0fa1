package shim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/passwd"
)

// retryEvery is the pause between two attempts to write to a full disk.
const retryEvery = 500 * time.Millisecond

// raiseAfter is the time between the start of a command and the search for children that it forked before it had its OOM score. A process
// becomes visible only when its fork is over.
const raiseAfter = 500 * time.Millisecond

// job is the command of a supervisor with its input and output.
type job struct {
	sig     *signals
	streams []*stream // stdout and stderr
	in      *feeder   // nil without an inbox
	words   *outbox   // nil without an inbox
	typed   *typed    // nil without a standard input of clients or a terminal

	linked, unlinked bool // clients reach this job over the link to init; init has died
	att              attachments
	live             bool      // readers get all output, also beyond the limit of the logs
	liveUntil        time.Time // until when output beyond the limit waits for a reader; zero: there is one, or no such output

	caps     caps // capabilities of the command
	pid      int  // process ID of the command; 0: it was not started
	exited   bool
	status   unix.WaitStatus
	stopping bool      // the container stops
	giveUp   bool      // cancelled or stopped: do not wait for space on the disk
	retryAt  time.Time // next retry of a write after a full disk; zero: none

	score   oomScore
	raiseAt time.Time // when to call score.raiseForked; zero: never
}

// become identifies the user of the command and, if commands are to start without privileges, gives them up.
func (o options) become(user string) (passwd.Identity, error) {
	who, err := o.identify(user)
	if err != nil || !o.hardened {
		return who, err
	}
	if err := startUnprivileged(o.caps, o.gain); err != nil {
		return who, fmt.Errorf("give up privileges: %w", err)
	}
	return who, nil
}

// start opens the outputs of the command and starts it. It closes stdin. A terminal is also its output.
func (j *job) start(command []string, cwd string, who passwd.Identity, env []string, stdin int) (why *startError) {
	defer unix.Close(stdin)
	files := [3]int{stdin, stdin, stdin}
	if j.typed != nil && j.typed.terminal {
		if why := j.copyTerminal(who); why != nil {
			return why
		}
		j.pid, why = start(command, cwd, who, j.caps, env, files, true)
		return why
	}
	for i, st := range j.streams {
		end, err := st.open(who)
		if err != nil {
			return cannotRun("%v", err)
		}
		defer unix.Close(end)
		files[i+1] = end
	}
	j.pid, why = start(command, cwd, who, j.caps, env, files, false)
	return why
}

// copyTerminal makes the output of the terminal that of stdout.
func (j *job) copyTerminal(who passwd.Identity) *startError {
	out := j.streams[0]
	err := shareLog(out.dir, out.log, who)
	if err == nil {
		out.pipe, err = unix.FcntlInt(uintptr(j.typed.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return cannotRun("%v", err)
	}
	return nil
}

// settle ends the start: it sets the OOM scores of the command, if one runs, and of this supervisor.
func (j *job) settle(score oomScore) {
	score.settle(j.pid)
	if j.score = score; j.pid > 0 {
		j.raiseAt = time.Now().Add(raiseAfter)
	}
}

// copied returns the streams that are copied into files: stdout, stderr and the outbox, if there is one.
func (j *job) copied() []*stream {
	if j.words == nil {
		return j.streams
	}
	return append(slices.Clip(j.streams), j.words.stream)
}

// store stores and syncs the output. If the disk is full, it schedules a retry and is not done, or gives up and the last output is lost.
func (j *job) store(buf []byte) (done, lost bool) {
	for _, st := range j.copied() {
		stored := st.drain(buf)
		if len(st.over) > 0 && !j.giveUp {
			return false, false // its readers wake this loop
		}
		if err := st.sync(); err != nil {
			stored = false
		}
		if !stored && !j.giveUp {
			j.later()
			return false, false
		}
		lost = lost || !stored
	}
	return true, lost
}

func (j *job) later() { j.retryAt = time.Now().Add(retryEvery) }

// retry flushes output that a full disk refused, once retryAt has passed.
func (j *job) retry(now time.Time) {
	if j.retryAt.IsZero() || now.Before(j.retryAt) {
		return
	}
	j.retryAt = time.Time{}
	for _, st := range j.copied() {
		st.flush()
	}
}

// wait blocks until a signal, output, space for input, or due (zero: never), and copies what is available: one piece per stream, so that
// continuous output delays no signal.
func (j *job) wait(due time.Time, buf []byte) {
	if !j.raiseAt.IsZero() && !time.Now().Before(j.raiseAt) {
		j.raiseAt = time.Time{}
		j.score.raiseForked()
	}
	due = earlier(due, j.raiseAt)
	full := func(st *stream) bool { return len(st.pending) > 0 } // the disk did not accept it
	if j.retryAt.IsZero() && slices.ContainsFunc(j.copied(), full) {
		j.later()
	}
	list := []watched{{fd: j.sig.fd, events: unix.POLLIN, ready: func(int16) { j.sig.clear() }}}
	if !j.stopping { // it stays readable
		list = append(list, watched{fd: stopFd, events: unix.POLLIN, ready: func(int16) {}})
	}
	for _, st := range j.copied() {
		if st.readable() {
			list = append(list, watched{fd: st.pipe, events: unix.POLLIN, ready: func(int16) { st.pump(buf) }})
		}
	}
	if input, feeds := j.in.interest(); feeds {
		list = append(list, watched{fd: int(input.Fd), events: input.Events, ready: j.in.feed})
	}
	list = j.typed.watch(list)
	list = j.watchAttached(list)
	poll(list, pollTimeout(earlier(j.retryAt, due)))
}

// watched is a descriptor for poll(2) and what to do with its events.
type watched struct {
	fd     int
	events int16
	ready  func(revents int16)
}

// poll waits until a descriptor is ready, at most for a number of milliseconds, and handles all that are.
func poll(list []watched, timeout int) {
	fds := make([]unix.PollFd, len(list))
	for i, w := range list {
		fds[i] = unix.PollFd{Fd: int32(w.fd), Events: w.events}
	}
	if n, err := unix.Poll(fds, timeout); n <= 0 || err != nil {
		return
	}
	for i, w := range list {
		if fds[i].Revents != 0 {
			w.ready(fds[i].Revents)
		}
	}
}

// pollTimeout returns the time until due in milliseconds, rounded up; -1, forever, for a zero due.
func pollTimeout(due time.Time) int {
	if due.IsZero() {
		return -1
	}
	return int(max(0, time.Until(due)+time.Millisecond-1) / time.Millisecond)
}

// earlier returns the earlier of two times; a zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// exitCode returns the exit code of a process, or 128 + signal if a signal killed it.
func exitCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// deadChildren reaps the children that are dead by now and calls dead for each. It reports whether no child is left.
func deadChildren(dead func(pid int, ws unix.WaitStatus)) (alone bool) {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return errors.Is(err, unix.ECHILD)
		}
		dead(pid, ws)
	}
}
