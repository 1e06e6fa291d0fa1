package shim

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process is one process of /proc.
type process struct {
	pid, parent int
	state       byte // as in proc(5): R, S, D, T, Z, ...
}

// processes lists all processes of the PID namespace. Processes that start or exit during the listing may be missing; callers repeat it.
func processes() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readStat(pid); ok {
			list = append(list, p)
		}
	}
	return list, nil
}

func readStat(pid int) (process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	defer unix.Close(fd)
	var buf [512]byte
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return process{}, false
	}
	return parseStat(pid, buf[:n])
}

// parseStat parses "pid (comm) state ppid ...". comm may contain any characters, also parentheses.
func parseStat(pid int, line []byte) (process, bool) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return process{}, false
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) < 2 || len(fields[0]) != 1 {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{pid: pid, parent: parent, state: fields[0][0]}, err == nil
}

// below returns the descendants of root, without the processes in except and their descendants.
func below(list []process, root int, except map[int]bool) []process {
	children := make(map[int][]process)
	for _, p := range list {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range children[queue[0]] {
			if !except[p.pid] {
				found = append(found, p)
				queue = append(queue, p.pid)
			}
		}
	}
	return found
}

// tree is the set of processes that one process has to kill: all its descendants, except some. A signal can reach a reused process ID only
// if the kernel hands out all of its at least 32768 IDs between the listing and the signal.
type tree struct {
	root   int
	except map[int]bool
}

func (t tree) list() []process {
	var all []process
	for range lookAgain {
		var err error
		if all, err = processes(); err != nil {
			say("list processes: %v", err)
		}
		if whole(all) {
			break
		}
	}
	return below(all, t.root, t.except)
}

// lookAgain is the largest number of listings of a process tree that changes while it is read.
const lookAgain = 5

// whole reports whether the list contains the parent of every process. If a process exits during the listing, its parent entry is missing
// and its children, which have a new parent by now, would not be found as descendants.
func whole(list []process) bool {
	there := map[int]bool{0: true}
	for _, p := range list {
		there[p.pid] = true
	}
	return !slices.ContainsFunc(list, func(p process) bool { return !there[p.parent] })
}

// terminate sends TERM to every process, and CONT to stopped ones so that they can handle it.
func (t tree) terminate() {
	for _, p := range t.list() {
		_ = unix.Kill(p.pid, unix.SIGTERM)
		if p.state == 'T' {
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
}

// freezeRounds bounds the rounds of STOP; 32 suffice for a fork bomb. A stopped process does not fork and keeps its place under the pids
// limit, so each round finds fewer new processes. Killing at once would free places for forks by the remaining processes.
const freezeRounds = 32

// kill sends STOP to every process it finds until a round finds no new one, then sends KILL to all of them. It returns the number of
// processes found. A later call kills processes that were being forked meanwhile.
func (t tree) kill() int {
	met := make(map[int]bool)
	for range freezeRounds {
		before := len(met)
		for _, p := range t.list() {
			if !met[p.pid] {
				met[p.pid] = true
				_ = unix.Kill(p.pid, unix.SIGSTOP)
			}
		}
		if len(met) == before {
			break
		}
	}
	for pid := range met {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return len(met)
}

// reason is why the supervisor ends a running command.
type reason int

const (
	notEnding reason = iota
	byCancel
	byStop     // the container stops
	byLogLimit // the command exceeded its log limit
	byTimeout  // the command ran longer than its timeout
)

// The first and the longest pause between two rounds of KILL. The longest applies to a process that the kernel does not let die. The death
// of a child starts the next round at once.
const (
	killEvery    = 10 * time.Millisecond
	killEveryMax = 640 * time.Millisecond
)

// killer ends a process tree: TERM, then KILL after the grace period, repeated until no process is left. Its caller calls step when due has
// passed or a child has died, until no child is left.
type killer struct {
	tree   tree
	grace  time.Duration
	why    reason // of the first call of begin
	killed bool   // KILL was sent
	due    time.Time
	pause  time.Duration
}

// begin sends TERM, unless the grace period is 0, and makes KILL due after the grace period. Later calls do nothing.
func (k *killer) begin(why reason, now time.Time) {
	if k.why != notEnding {
		return
	}
	k.why = why
	if k.grace > 0 {
		k.tree.terminate()
	}
	k.due = now.Add(k.grace)
}

// step sends KILL if due has passed.
func (k *killer) step(now time.Time) {
	if k.why == notEnding || now.Before(k.due) {
		return
	}
	k.killed = true
	k.tree.kill()
	k.pause = min(max(2*k.pause, killEvery), killEveryMax)
	k.due = now.Add(k.pause)
}

// hurry makes the next round of KILL due at once, if there was one: a process died and may have left orphans.
func (k *killer) hurry() {
	if k.killed {
		k.due, k.pause = time.Time{}, 0
	}
}
