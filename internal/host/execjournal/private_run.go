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

// PrivateName is the file in ctl/exec that marks a run of the container whose locks are not visible to the host, because the
// container has a kernel of its own, such as gVisor's. Then a started exec without a .lost marker counts as alive while the
// container's process on the host lives; an exec whose journal names an earlier run is dead. The daemon writes the file before
// the release and removes it before each start. It is not flushed: a host crash that loses it also ends the container.
const PrivateName = "private"

// privateRun identifies one run of such a container.
type privateRun struct {
	Version int     `json:"version"`
	Run     string  `json:"run"` // Journal.Run of its execs
	Process process `json:"process"`
}

// process identifies a process of the host. Process IDs alone are reused.
type process struct {
	Pid    int    `json:"pid"`
	Start  string `json:"start"` // field 22 of /proc/PID/stat: clock ticks since the host's boot
	BootID string `json:"boot_id"`
}

// livesUnseen reports whether a started exec whose lock is free lives in a container whose locks are not visible to the host.
func (d *Dir) livesUnseen(logs int, sandboxID string, j Journal) (bool, error) {
	var data []byte
	err := inDir(d.execDir(sandboxID), func(ctl int) (err error) {
		data, err = ReadFile(ctl, PrivateName, MaxJournalBytes)
		return err
	})
	if data == nil && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var r privateRun
	if err := json.Unmarshal(data, &r); err != nil || r.Version != Version {
		return false, unavailablef("%s of sandbox %s is not valid", PrivateName, sandboxID) // only the daemon writes it; a damaged one gives no verdict
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

// lives reports whether the process still exists.
func (p process) lives() (bool, error) {
	now, err := processOf(p.Pid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return now == p, err
}

// processOf returns the process with that ID. fs.ErrNotExist: there is none, or it is a zombie.
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
	// "pid (comm) state ppid ...", where comm may contain any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return process{}, fmt.Errorf("read /proc/%d/stat: unexpected content %q", pid, stat)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return process{}, fs.ErrNotExist
	}
	return process{Pid: pid, Start: string(fields[19]), BootID: strings.TrimSpace(string(boot))}, nil
}

// inContainer reports whether the process belongs to the container: its control group contains the container's ID. Without
// the check, a daemon in another PID namespace could mistake another process for it.
func inContainer(pid int, containerID string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && containerID != "" && bytes.Contains(data, []byte(containerID))
}
