package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// When the container's memory is used up, the kernel kills the process with the highest score: its memory, in thousandths of the limit,
// plus oom_score_adj, which is set here. PID 1 and supervisors keep the oom_score_adj that the engine gave PID 1, which is 0. The shim
// never lowers it below that: this needs a capability that containers lack, and commands would inherit the minimum.
const (
	// commandScore is added for every command and its children. While one of them lives, the kernel kills no shim process.
	commandScore = 500
	// startingScore is added for a supervisor until its command runs. The command inherits it until it gets commandScore. A start allocates
	// memory: if no command is left to kill, the kernel kills the starting supervisor, which has little to lose, and not PID 1.
	startingScore = 250
	maxScore      = 1000
)

// oomScore is the oom_score_adj of PID 1, which a supervisor gets once its command runs.
type oomScore struct {
	base  int
	known bool
}

// startingOOMScore raises the score of this supervisor until settle. If the kernel refuses, the score stays unchanged.
func startingOOMScore() oomScore {
	s, err := scoreOf(os.Getppid())
	if err != nil {
		say("read the OOM score: %v", err)
		return s
	}
	s.set(os.Getpid(), startingScore)
	return s
}

// settle sets the scores of the command and of this supervisor, and notifies init that the start is over. pid is 0 if no command runs.
func (s oomScore) settle(pid int) {
	if pid > 0 {
		s.set(pid, commandScore)
	}
	// init raises this supervisor's score as well, in case the kernel kills it before startingOOMScore. init writes to startFd when it has
	// done so; without this wait its late write could undo the next line.
	raised := []unix.PollFd{{Fd: startFd, Events: unix.POLLIN}}
	if n, err := unix.Poll(raised, 1000); n == 0 || err != nil {
		say("wait for init: %d, %v", n, err)
	}
	s.set(os.Getpid(), 0)
	unix.Close(startFd)
}

func scoreOf(pid int) (oomScore, error) {
	text, err := os.ReadFile(scoreFile(pid))
	if err != nil {
		return oomScore{}, err
	}
	base, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return oomScore{base: base, known: err == nil}, err
}

// set sets the score of a process. It ignores a process that has exited.
func (s oomScore) set(pid, more int) {
	if !s.known {
		return
	}
	err := os.WriteFile(scoreFile(pid), []byte(strconv.Itoa(min(s.base+more, maxScore))), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		say("set the OOM score of process %d: %v", pid, err)
	}
}

func scoreFile(pid int) string { return fmt.Sprintf("/proc/%d/oom_score_adj", pid) }
