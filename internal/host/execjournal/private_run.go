package execjournal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// PrivateName is the file in ctl/exec that says that the host does not see the locks of this run of the container, which has a kernel
// of its own, such as gVisor's. Then an exec that has started, and for which PID 1 has rung no bell, lives as long as the container's
// process on the host. An exec of an earlier run is dead: its journal names another one. The daemon writes it before the release and removes it before each start. Not flushed: a crash of the host that
// loses it has ended the container as well.
const PrivateName = "private"

// privateRun is one run of such a container.
type privateRun struct {
	Version int     `json:"version"`
	Run     string  `json:"run"` // as in its journals
	Process process `json:"process"`
}

// process is one of the host. A process ID alone is used again.
type process struct {
	Pid    int    `json:"pid"`
	Start  string `json:"start"` // field 22 of /proc/PID/stat: clock ticks since the host's boot
	BootID string `json:"boot_id"`
}

// livesUnseen reports whether an exec that has started, and whose lock is free, lives in a container whose locks the host does not see.
func (d *Dir) livesUnseen(logs int, sandboxID string, j Journal) (bool, error) {
	ctl, err := openDir(d.execDir(sandboxID))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(ctl)
	data, err := ReadFile(ctl, PrivateName, MaxJournalBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var r privateRun
	if err := json.Unmarshal(data, &r); err != nil || r.Version != Version {
		return false, unavailablef("%s of sandbox %s is not valid", PrivateName, sandboxID) // ours alone: no verdict on a damaged one
	}
	if r.Run != j.Run {
		return false, nil
	}
	if lives, err := r.Process.lives(); err != nil || !lives {
		return false, err
	}
	lost, err := Exists(logs, LostName(j.ExecID))
	return !lost, err
}

// lives reports whether the process still does.
func (p process) lives() (bool, error) {
	now, err := processOf(p.Pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return now == p, err
}

// processOf returns the process of that ID. fs.ErrNotExist: there is none, or it is dead and not yet reaped.
func processOf(pid int) (process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return process{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, err
	}
	// "pid (comm) state ppid ...", and comm may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, fmt.Errorf("read /proc/%d/stat: %q is not what the kernel writes", pid, stat)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return process{}, fs.ErrNotExist
	}
	return process{Pid: pid, Start: string(fields[19]), BootID: strings.TrimSpace(string(boot))}, nil
}

// inContainer reports whether the process is one of the container: its control group names the container. A daemon that does not see
// the host's processes would take another one for it.
func inContainer(pid int, containerID string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && containerID != "" && bytes.Contains(data, []byte(containerID))
}
