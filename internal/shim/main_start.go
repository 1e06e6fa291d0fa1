package shim

import (
	"time"

	"golang.org/x/sys/unix"
)

// stoppedEarly is the exit code of a main process whose container stopped before it was started.
const stoppedEarly = 128 + int(unix.SIGTERM)

// release starts the main process and makes init handle all requests. Both wait for agboxd's release.
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

// startMain starts the supervisor of the main process. It is a separate process, so that PID 1 copies no output, does not block on a disk,
// and can identify the descendants of the main process.
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

// mainEnded stores the main process's exit code as that of the container and drains.
func (p *initProcess) mainEnded(ws unix.WaitStatus) {
	p.mainPid = 0
	switch {
	case !ws.Signaled():
		p.exitCode = ws.ExitStatus()
	case p.draining && ws.Signal() == unix.SIGUSR1: // it had not installed its signal handler
		p.exitCode = stoppedEarly
	default:
		say("the supervisor of the main process was killed by signal %d", ws.Signal())
		p.exitCode = 128 + int(ws.Signal())
	}
	p.drain()
}
