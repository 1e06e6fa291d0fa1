package dockerx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// hostFreezer is the kernel's freezer of containers on this host, below the engine.
type hostFreezer struct {
	proc   string // a mounted procfs
	cgroup string // where the cgroup hierarchies are mounted
}

var theHostFreezer = hostFreezer{proc: "/proc", cgroup: "/sys/fs/cgroup"}

// freezerFiles are where one kind of cgroup says that it is frozen itself, its parents aside, and what thaws it.
type freezerFiles struct {
	dir, frozen, state string
	thawed             string // to be written to state
}

// thaw thaws the container with the full ID id whose PID 1 is pid, and reports whether it was frozen. Nothing happens
// where no cgroup of that container can be seen: the engine is on another host, or hidden from us. Errors:
// ErrPermissionDenied.
func (h hostFreezer) thaw(pid int, id string) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(h.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return false, nil
	}
	thawed := false
	for line := range strings.Lines(string(raw)) {
		for _, f := range h.files(strings.TrimSpace(line), id) {
			was, err := f.thaw()
			if err != nil {
				return thawed, fmt.Errorf("thaw cgroup of container %s: %w", id, err)
			}
			thawed = thawed || was
		}
	}
	return thawed, nil
}

// files are those that a line of /proc/<pid>/cgroup, "6:freezer:/path" or "0::/path", leads to.
func (h hostFreezer) files(line, id string) []freezerFiles {
	_, rest, _ := strings.Cut(line, ":")
	controllers, path, _ := strings.Cut(rest, ":")
	dir, ours := containerCgroup(path, id)
	switch {
	case !ours:
		return nil
	case controllers == "freezer":
		return []freezerFiles{{filepath.Join(h.cgroup, "freezer", dir), "freezer.self_freezing", "freezer.state", "THAWED"}}
	case controllers == "":
		f := freezerFiles{filepath.Join(h.cgroup, dir), "cgroup.freeze", "cgroup.freeze", "0"}
		hybrid := f
		hybrid.dir = filepath.Join(h.cgroup, "unified", dir)
		return []freezerFiles{f, hybrid}
	}
	return nil
}

// containerCgroup cuts path at the container's own cgroup: its PID 1 may be in one below.
func containerCgroup(path, id string) (string, bool) {
	at := strings.Index(path, id)
	if len(id) < 64 || at < 0 || strings.Contains(path, "..") {
		return "", false
	}
	if end := strings.IndexByte(path[at:], '/'); end >= 0 {
		path = path[:at+end]
	}
	return path, true
}

// thaw thaws the cgroup if it is frozen, and reports whether it was.
func (f freezerFiles) thaw() (bool, error) {
	raw, err := os.ReadFile(filepath.Join(f.dir, f.frozen))
	if err != nil || strings.TrimSpace(string(raw)) != "1" {
		return false, nil
	}
	err = os.WriteFile(filepath.Join(f.dir, f.state), []byte(f.thawed), 0)
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return false, fmt.Errorf("%w: %w", errdefs.ErrPermissionDenied, err)
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // it has ended
	}
	return err == nil, err
}
