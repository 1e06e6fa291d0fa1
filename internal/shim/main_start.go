package shim

import (
	"time"

	"golang.org/x/sys/unix"
)

// stoppedEarly is the exit code of a main process that was stopped before it was started.
const stoppedEarly = 128 + int(unix.SIGTERM)

// release begins what waited for the daemon's word: the main process, and every request there is.
func (p *initProcess) release() {
	if p.released || p.draining {
		return
	}
	p.released = true
	p.rescanAt = time.Time{}
	if len(p.command) > 0 {
		p.startMain()
	}
}

// startMain starts the supervisor of the main process. It is a process of its own, so that PID 1
// carries no output, waits for no disk, and can tell what belongs to the main process.
func (p *initProcess) startMain() {
	pid, err := p.starting.spawn(p.mainArgs(), p.score, p.stop)
	if err != nil {
		say("start the main process: %v", err)
		p.exitCode = exitCannotRun
		p.drain()
		return
	}
	p.mainPid = pid
}

// mainEnded makes the end of the main process that of the container.
func (p *initProcess) mainEnded(ws unix.WaitStatus) {
	p.mainPid = 0
	switch {
	case !ws.Signaled():
		p.exitCode = ws.ExitStatus()
	case p.draining && ws.Signal() == unix.SIGUSR1: // it was too young to know the signal
		p.exitCode = stoppedEarly
	default:
		say("the supervisor of the main process was killed by signal %d", ws.Signal())
		p.exitCode = 128 + int(ws.Signal())
	}
	p.drain()
}
