package shim

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// mainSupervisor is one run of the main process. It is an exec without journal, lock and fence: it runs again with each start of the
// container, and its end is the end of the container, which the engine stores.
//
//   - It exits with the main process's exit code once that process has exited and its output is stored. The kernel kills the remaining
//     process tree with the PID namespace.
//   - On a stop it sends TERM to the whole tree. The engine sends KILL; its grace period started with the same stop.
type mainSupervisor struct {
	options
	job
	logs   int // the log directory; -1 until it is open
	report report
}

// runMain is the main function of the main process's supervisor. It returns the main process's exit code, 128 + signal if a signal killed
// it, and 126 or 127 if it could not be started.
func runMain(at Places, o options) int {
	score := startingOOMScore()
	s := &mainSupervisor{options: o, logs: -1}
	if err := s.prepare(at); err != nil {
		say("start the main process: %v", err)
		s.reportFailure(err.Error())
		return exitCannotRun
	}
	if stops() {
		return stoppedEarly
	}
	if why := s.launch(); why != nil {
		s.refuse(why)
		return why.exitCode
	}
	s.report = report{due: s.reports, warn: s.warn}
	raisedByInit()
	s.settle(score)
	return s.loop()
}

func (s *mainSupervisor) prepare(at Places) error {
	var err error
	if s.sig, err = becomeSupervisor(); err != nil {
		return err
	}
	if s.logs, err = execjournal.OpenDir(at.Logs); err != nil {
		return err
	}
	for _, name := range []string{execjournal.StdoutName(execid.Main), execjournal.StderrName(execid.Main)} {
		st, err := continueLog(s.logs, name, s.logLimit)
		if err != nil {
			return err
		}
		s.streams = append(s.streams, st)
	}
	return nil
}

// continueLog opens a log that earlier starts of the container have written to. A log larger than its limit has its marker already.
func continueLog(logs int, name string, limit int64) (*stream, error) {
	fd, err := openLog(logs, name)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	return &stream{
		pipe: -1, log: fd, dir: logs, limit: limit, taken: min(st.Size, limit), mark: st.Size <= limit, final: -1,
		times: continueTimes(logs, execjournal.TimesName(name), st.Size),
	}, nil
}

// launch opens the main process's three descriptors and starts it.
func (s *mainSupervisor) launch() *startError {
	who, err := s.become(s.user)
	if err != nil {
		return cannotRun("%v", err)
	}
	null, why := openNull()
	if why != nil {
		return why
	}
	s.job.caps = s.options.caps
	return s.start(s.command, s.dir, who, environment(os.Environ(), who, nil), null)
}

// refuse writes to the main process's stderr log and to the container's log why the main process was not started.
func (s *mainSupervisor) refuse(why *startError) {
	say("start the main process: %v", why)
	errOut := s.streams[1]
	errOut.accept([]byte("agbox-shim: start the main process: " + execjournal.Sentence(why.why) + "\n"))
	_ = errOut.sync() // the container's log has the line as well
	s.reportFailure(why.why)
}

// reportFailure tries once to report why the main process could not be started. The end of the container shows that it was not.
func (s *mainSupervisor) reportFailure(why string) {
	s.report = report{due: s.reports && s.logs >= 0, why: why}
	s.report.write(s.logs)
}

// loop runs until the main process has exited and its output is stored, and returns the exit code.
func (s *mainSupervisor) loop() int {
	buf := make([]byte, 64<<10)
	for {
		var retry time.Time
		if !s.report.write(s.logs) {
			retry = time.Now().Add(retryEvery)
		}
		deadChildren(func(pid int, ws unix.WaitStatus) {
			if pid == s.pid {
				s.exited, s.status = true, ws
			}
		})
		if !s.stopping && stops() {
			s.stopping, s.giveUp, s.retryAt = true, true, time.Time{}
			tree{root: os.Getpid()}.terminate()
		}
		s.retry(time.Now())
		if s.exited && s.retryAt.IsZero() {
			done, lost := s.store(buf)
			if lost {
				say("the disk is full: the last output of the main process is missing")
			}
			if done {
				return exitCode(s.status)
			}
		}
		s.wait(retry, buf)
	}
}

// stoppedEarly is the exit code of a main process whose container stopped before it was started.
const stoppedEarly = 128 + int(unix.SIGTERM)

// release starts the sandbox when agboxd releases it: the image's ENTRYPOINT, if that is to run, and then all the rest.
func (p *initProcess) release() {
	if p.released || p.draining || p.entry.pid != 0 {
		return
	}
	if p.runsEntry() {
		p.startEntry()
		return
	}
	p.proceed()
}

// proceed starts the main process and makes init handle all requests.
func (p *initProcess) proceed() {
	if p.draining {
		return
	}
	p.released = true
	p.settleUser() // not before the release: a wrong mount might be the host's /etc
	p.deliverAll()
	p.retryIn(0)
	if len(p.command) > 0 {
		p.startMain()
		return
	}
	p.report.due = p.reports
	if _, err := p.identify(p.user); err != nil {
		p.report.why = err.Error()
	}
}

// startMain starts the supervisor of the main process. It is a separate process, so that PID 1 copies no output, does not block on a disk,
// and can identify the descendants of the main process.
func (p *initProcess) startMain() {
	p.warn = p.report.warn
	pid, link, err := p.starting.spawn(p.mainArgs(), p.score, p.stop)
	if err != nil {
		say("start the main process: %v", err)
		p.report = report{due: p.reports, why: "the sandbox has no room for another process: " + err.Error()}
		p.reportStart()
		p.exitCode = exitCannotRun
		p.drain()
		return
	}
	p.mainPid, p.mainLink = pid, link
}

// mainEnded stores the main process's exit code as that of the container and drains.
func (p *initProcess) mainEnded(ws unix.WaitStatus) {
	p.mainPid = 0
	p.closeLink(p.mainLink)
	p.exitCode = exitCode(ws)
	if ws.Signaled() {
		say("the supervisor of the main process was killed by signal %d", ws.Signal())
	}
	p.drain()
}
