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

// oomKills returns the number of processes of this container that the kernel killed for lack of memory; 0 if the kernel does not report it.
func oomKills() int64 { return numbers(memoryFile("memory.oom_control", "memory.events"))["oom_kill"] }

// memoryLimit returns the memory limit of this container in bytes; 0 if there is none or the kernel does not report it.
func memoryLimit() int64 {
	n, _ := limitBytes(memoryFile("memory.limit_in_bytes", "memory.max"))
	return n
}

// memoryFree returns the bytes between the container's limit and its present use. The use includes page cache, which the kernel could
// reclaim. Without a limit it returns unlimited.
func memoryFree() int64 {
	limit := memoryLimit()
	used, ok := limitBytes(memoryFile("memory.usage_in_bytes", "memory.current"))
	if limit == 0 || !ok {
		return unlimited
	}
	return limit - used
}

// supervisorMemory is the memory, in bytes, that a supervisor shares with no other process: 1 MiB was measured, and this adds a margin.
const supervisorMemory = 3 << 19

// memoryUnused returns the bytes that the kernel can allocate without killing a process: free memory and page cache. Without a limit it
// returns unlimited.
func memoryUnused() int64 {
	free := memoryFree()
	if free == unlimited {
		return free
	}
	_, cache := memoryHeld()
	return free + cache
}

// memoryAvailable returns the bytes that the kernel can allocate for a new process without killing PID 1 or one of its supervisors: unused
// memory, and the memory of commands and of the reserve, which the kernel kills first. Without a limit it returns unlimited.
func memoryAvailable(supervisors int) int64 {
	free := memoryFree()
	if free == unlimited {
		return free
	}
	anonymous, cache := memoryHeld()
	return free + cache + max(0, anonymous-ownMemory()-int64(supervisors)*supervisorMemory)
}

// memoryHeld returns the bytes of anonymous memory and of page cache in this container; 0 if the kernel does not report them.
func memoryHeld() (anonymous, cache int64) {
	return memoryUse(memoryFile("memory.stat", "memory.stat"))
}

// memoryUse parses memory.stat of cgroup v1 or v2. In v1, lines with the prefix total_ include the child groups.
func memoryUse(text string) (anonymous, cache int64) {
	use := numbers(text)
	if total, ok := use["total_rss"]; ok {
		return total, use["total_inactive_file"] + use["total_active_file"]
	}
	return use["anon"], use["inactive_file"] + use["active_file"]
}

// ownMemory returns the bytes of anonymous memory of this process; 0 if the kernel does not report them.
func ownMemory() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 3 {
		return 0
	}
	resident, err := strconv.ParseInt(fields[1], 10, 64)
	shared, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || err2 != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

func memoryFile(v1, v2 string) string { return cgroupFile("memory", v1, v2) }

// cgroupFile returns the content of a file of a controller of the container, by its name in cgroup v1 or v2; empty if there is none. In v1
// the mount shows the container's own directory. In v2 it does so only in a private cgroup namespace; otherwise the directory is below the
// path in /proc/self/cgroup.
func cgroupFile(controller, v1, v2 string) string {
	files := []string{"/sys/fs/cgroup/" + controller + "/" + v1, "/sys/fs/cgroup/" + v2}
	if own, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(own)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				files = append(files, "/sys/fs/cgroup"+path+"/"+v2)
			}
		}
	}
	for _, file := range files {
		if data, err := readRegular(file, 4096); err == nil {
			return string(data)
		}
	}
	return ""
}

// numbers parses lines of a name and a number.
func numbers(text string) map[string]int64 {
	all := make(map[string]int64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

// unlimited is larger than the memory of any machine. For no limit v1 writes the largest multiple of the page size.
const unlimited = 1 << 62

func limitBytes(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n >= unlimited {
		return 0, strings.TrimSpace(text) == "max" || err == nil
	}
	return n, true
}

// When the container's memory is used up, the kernel kills the process with the highest score: its memory, in thousandths of the limit,
// plus oom_score_adj, which is set here. PID 1 and supervisors keep the oom_score_adj that the engine gave PID 1, which is 0. The shim
// never lowers it below that: this needs a capability that containers lack, and commands would inherit the minimum.
const (
	// commandScore is added for every command and its children. While one of them lives, the kernel kills no shim process.
	commandScore = 750
	// startingScore is added for a supervisor until its command runs. The command begins with it, since Go runs no code between fork and
	// exec, and gets commandScore right after. So it is as high as every command has to be, and lower than reserveScore: a start allocates
	// memory, and if neither a command nor the reserve is left to kill, the kernel kills the starting supervisor, which has little to
	// lose, and not PID 1.
	startingScore = 500
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
	s.set(os.Getpid(), 0)
	_, _ = unix.Write(linkFd, []byte{begun}) // fails only if init has died
}

// raisedByInit waits until init has raised this supervisor's score, which it does in case the kernel kills the supervisor before
// startingOOMScore. Without the wait, init's late write could undo settle.
func raisedByInit() {
	raised := []unix.PollFd{{Fd: linkFd, Events: unix.POLLIN}}
	if n, err := unix.Poll(raised, 1000); n == 0 || err != nil {
		say("wait for init: %d, %v", n, err)
	}
	var b [1]byte
	_, _ = unix.Read(linkFd, b[:])
}

// raiseForked sets the score of children that the command forked before it had commandScore itself. Their later children inherit it.
func (s oomScore) raiseForked() {
	for range lookAgain {
		raised := false
		for _, p := range (tree{root: os.Getpid()}).list() {
			if is, err := scoreOf(p.pid); err == nil && is.base < min(s.base+commandScore, maxScore) {
				s.set(p.pid, commandScore)
				raised = true
			}
		}
		if !raised {
			return
		}
	}
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
