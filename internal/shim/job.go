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

	pid      int // process ID of the command; 0: it was not started
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
	if err := startUnprivileged(); err != nil {
		return who, fmt.Errorf("give up privileges: %w", err)
	}
	return who, nil
}

// start opens the outputs of the command and starts it. It closes stdin.
func (j *job) start(command []string, cwd string, who passwd.Identity, env []string, stdin int) (why *startError) {
	defer unix.Close(stdin)
	files := [3]int{stdin}
	for i, st := range j.streams {
		end, err := st.open(who)
		if err != nil {
			return cannotRun("%v", err)
		}
		defer unix.Close(end)
		files[i+1] = end
	}
	j.pid, why = start(command, cwd, who, env, files)
	return why
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
	fds := []unix.PollFd{{Fd: int32(j.sig.fd), Events: unix.POLLIN}, {Fd: stopFd, Events: unix.POLLIN}}
	if j.stopping {
		fds[1].Fd = -1 // it stays readable
	}
	polled := []*stream{nil, nil}
	for _, st := range j.copied() {
		if st.readable() {
			fds = append(fds, unix.PollFd{Fd: int32(st.pipe), Events: unix.POLLIN})
			polled = append(polled, st)
		}
	}
	input, feeds := j.in.interest()
	if feeds {
		fds = append(fds, input)
	}
	if n, err := unix.Poll(fds, pollTimeout(earlier(j.retryAt, due))); n <= 0 || err != nil {
		return
	}
	j.sig.clear()
	if last := fds[len(fds)-1]; feeds && last.Revents != 0 {
		j.in.feed(last.Revents)
	}
	for i, st := range polled {
		if st != nil && fds[i].Revents != 0 {
			st.pump(buf)
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
