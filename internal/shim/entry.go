package shim

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/passwd"
)

// entryTimeout is how long the image's ENTRYPOINT has to execute its arguments. It is part of the documentation.
const entryTimeout = 30 * time.Second

// entry is the run of the image's ENTRYPOINT, as root, before everything else of the sandbox: such as one that makes the user of commands.
//
//   - Its arguments are `agbox-shim hold NAME`, which connects to init: then they were executed, and the rest of the sandbox starts.
//   - One that ends before fails the start, or without entryMust is a warning.
//   - One that lives on for entryTimeout is the main process; beside a main process of the spec it fails the start, or is a warning.
//
// It runs again at each start of the container.
type entry struct {
	pid      int       // process ID of its supervisor; 0: none runs
	link     int       // init's end of its linkFd
	listener int       // abstract socket to which hold connects; -1: nothing is awaited
	held     int       // the connection of hold; -1: there is none
	due      time.Time // the end of entryTimeout; zero: nothing is awaited
}

// watch appends the descriptor for poll(2) to fds.
func (e *entry) watch(fds []unix.PollFd) []unix.PollFd {
	if e.listener >= 0 {
		fds = append(fds, unix.PollFd{Fd: int32(e.listener), Events: unix.POLLIN})
	}
	return fds
}

// settle ends the wait.
func (e *entry) settle() {
	unix.Close(e.listener)
	e.listener, e.due = -1, time.Time{}
}

// runsEntry reports whether the image's ENTRYPOINT runs. Under entryNew the first start of the container decides: later the image's own
// ENTRYPOINT, or init, has made the user agbox.
func (p *initProcess) runsEntry() bool {
	if len(p.entrypoint) == 0 || p.entryNew && !p.lacksOwn() {
		return false
	}
	if p.hardened {
		p.report.warn = "the image's ENTRYPOINT did not run: the security profile is hardened"
	}
	return !p.hardened
}

// lacksOwn reports whether the image has no user agbox. If that can't be recorded, a later start decides again.
func (p *initProcess) lacksOwn() bool {
	if !p.openLogs() {
		return false
	}
	if said, err := execjournal.ReadFile(p.logs, execjournal.EntrypointName, execjournal.MaxJournalBytes); err == nil {
		return string(said) == execjournal.RunsEntrypoint
	}
	users, _, err := readTables("/etc")
	if err != nil {
		say("look for the user %s: %v", passwd.DefaultName, err)
		return false
	}
	decision, temp := execjournal.RunsEntrypoint, execjournal.TempName(execid.Main, execjournal.EntrypointName)
	if (passwd.Own{}).In(users) {
		decision = execjournal.SkipsEntrypoint
	}
	if err := execjournal.Replace(p.logs, temp, execjournal.EntrypointName, []byte(decision), execjournal.PrivateMode, true); err != nil {
		say("record whether the ENTRYPOINT runs: %v", err)
	}
	return decision == execjournal.RunsEntrypoint
}

// startEntry starts the image's ENTRYPOINT under a supervisor like that of a main process, whose logs it shares.
func (p *initProcess) startEntry() {
	name := rand.Text()
	self, err := os.Executable()
	if err == nil {
		p.entry.listener, err = listenHold(name)
	}
	if err == nil {
		p.entry.due = time.Now().Add(entryTimeout)
		o := p.options
		o.user, o.reports, o.dir = strconv.Itoa(os.Geteuid()), false, ""
		o.command = append(slices.Clone(p.entrypoint), self, execjournal.HoldVerb, name)
		p.entry.pid, p.entry.link, err = p.starting.spawn(o.mainArgs(), p.score, p.stop)
	}
	if err != nil {
		p.entryFailed("could not be started: "+err.Error(), exitCannotRun)
	}
}

// awaitEntry goes on when the ENTRYPOINT has executed its arguments, or when it has not within entryTimeout.
func (p *initProcess) awaitEntry(now time.Time) {
	if p.entry.listener < 0 {
		return
	}
	conn, _, err := unix.Accept4(p.entry.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	switch {
	case err == nil:
		p.entry.settle()
		p.entry.held = conn
		p.proceed()
	case now.Before(p.entry.due):
	case len(p.command) > 0:
		p.entryFailed(fmt.Sprintf("has not executed its arguments within %s, and the spec has a command", entryTimeout), exitCannotRun)
	default:
		p.entry.settle()
		p.mainPid, p.mainLink, p.entry.pid, p.report.main = p.entry.pid, p.entry.link, 0, true
		p.proceed()
	}
}

// entryEnded handles the end of the ENTRYPOINT's supervisor. It changes nothing once the arguments were executed: a command of the sandbox
// may kill hold.
func (p *initProcess) entryEnded(ws unix.WaitStatus) {
	p.awaitEntry(time.Time{}) // hold may have connected since
	p.entry.pid = 0
	p.closeLink(p.entry.link)
	if p.entry.listener >= 0 {
		code := exitCode(ws)
		p.entryFailed(fmt.Sprintf("exited with code %d before it executed its arguments", code), cmp.Or(code, exitCannotRun))
	}
}

// entryFailed fails the start, or goes on with a warning.
func (p *initProcess) entryFailed(how string, code int) {
	if p.entry.listener >= 0 {
		p.entry.settle()
	}
	how = "the image's ENTRYPOINT " + how
	say("%s", how)
	switch {
	case p.draining:
	case p.entryMust:
		p.report = report{due: p.reports, why: how}
		p.reportStart()
		p.drain()
		p.exitCode = code
	default:
		p.report.warn = how
		p.proceed()
	}
}

// listenHold listens on the abstract socket of an ENTRYPOINT: its processes may run as any user, and close the descriptors they inherit.
func listenHold(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(fd, holdAddress(name)); err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("listen", err)
	}
	return fd, nil
}

func holdAddress(name string) unix.Sockaddr { return &unix.SockaddrUnix{Name: "@agbox-hold-" + name} }

// runHold shows init that the ENTRYPOINT has executed its arguments, and holds until a signal ends it: so an ENTRYPOINT that waits for its
// arguments lives as long as the sandbox. It returns 1 if init no longer waits for it.
func runHold(name string) int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, holdAddress(name))
	}
	if err != nil {
		say("%s: connect to PID 1: %v", execjournal.HoldVerb, err)
		return 1
	}
	for {
		var b [1]byte
		if _, err := unix.Read(fd, b[:]); err != unix.EINTR { // init never writes: this is its end
			return 0
		}
	}
}
