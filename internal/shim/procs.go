package shim

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is one line of /proc.
type process struct {
	pid, parent int
	state       byte // as in proc(5): R, S, D, T, Z, ...
}

// processes reads all processes of the PID namespace. Those that come or go meanwhile may be missing: repeat.
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

// parseStat reads "pid (comm) state ppid ...". The command's name may hold anything, parentheses too.
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

// below returns the descendants of root, without the processes in except and what is below them.
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

// tree is what one process has to kill: all its descendants, except some. A process ID that we read could be another
// process's by the time we signal it only if the kernel handed out all of its at least 32768 IDs within that instant.
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

// lookAgain bounds the looks at a tree that changes while it is read.
const lookAgain = 5

// whole reports whether every process's parent is in the list. One that died in the middle of the reading is not, and its
// children, by now somebody else's, would be taken for strangers.
func whole(list []process) bool {
	there := map[int]bool{0: true}
	for _, p := range list {
		there[p.pid] = true
	}
	return !slices.ContainsFunc(list, func(p process) bool { return !there[p.parent] })
}

// terminate sends TERM to every process, and lets stopped ones run so that they can act on it.
func (t tree) terminate() {
	for _, p := range t.list() {
		_ = unix.Kill(p.pid, unix.SIGTERM)
		if p.state == 'T' {
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
}

// freezeRounds is enough for a fork bomb: a stopped process forks no more, and holds its place under the pids limit, so
// each round leaves less. Killing at once would free places for the others' children.
const freezeRounds = 32

// kill stops every process it can find until a round finds no new one, then kills them all. It returns how many it met;
// what was being forked meanwhile is the next call's.
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
