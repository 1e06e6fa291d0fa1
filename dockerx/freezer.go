package dockerx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// hostFreezer freezes and thaws containers on this host through the kernel's cgroups, bypassing the engine.
type hostFreezer struct {
	proc   string // a mounted procfs
	cgroup string // where the cgroup hierarchies are mounted
}

var theHostFreezer = hostFreezer{proc: "/proc", cgroup: "/sys/fs/cgroup"}

// freezerFiles are the files of one cgroup that report whether the cgroup itself, not a parent, is frozen, and that change it.
type freezerFiles struct {
	dir, frozen, state string
	thaws, freezes     string // values to write to state
}

// thaw thaws the container with the full ID id whose PID 1 is pid, and reports whether it was frozen. It does nothing where
// the container's cgroup is not visible: the engine is on another host, or in another namespace. Errors:
// ErrPermissionDenied.
func (h hostFreezer) thaw(pid int, id string) (bool, error) {
	thawed := false
	for _, f := range h.of(pid, id) {
		if !f.isFrozen() {
			continue
		}
		did, err := f.write(f.thaws)
		if err != nil {
			return thawed, fmt.Errorf("thaw cgroup of container %s: %w", id, err)
		}
		thawed = thawed || did
	}
	return thawed, nil
}

// freeze freezes the same container as its runtime does, and reports whether it did; false for one that is frozen already.
// It does nothing where thaw does nothing. Errors: ErrPermissionDenied.
func (h hostFreezer) freeze(pid int, id string) (bool, error) {
	all := h.of(pid, id)
	if slices.ContainsFunc(all, freezerFiles.isFrozen) {
		return false, nil
	}
	for _, f := range all { // where v1 and v2 are both mounted, v1 comes first and is the one in use
		did, err := f.write(f.freezes)
		if err != nil {
			return false, fmt.Errorf("freeze cgroup of container %s: %w", id, err)
		}
		if did {
			return true, nil
		}
	}
	return false, nil
}

// of returns the files of the container whose PID 1 is pid.
func (h hostFreezer) of(pid int, id string) []freezerFiles {
	raw, err := os.ReadFile(filepath.Join(h.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil
	}
	var all []freezerFiles
	for line := range strings.Lines(string(raw)) {
		all = append(all, h.files(strings.TrimSpace(line), id)...)
	}
	return all
}

// files returns the files for one line of /proc/<pid>/cgroup, "6:freezer:/path" or "0::/path".
func (h hostFreezer) files(line, id string) []freezerFiles {
	_, rest, _ := strings.Cut(line, ":")
	controllers, path, _ := strings.Cut(rest, ":")
	dir, ours := containerCgroup(path, id)
	switch {
	case !ours:
		return nil
	case controllers == "freezer":
		return []freezerFiles{{filepath.Join(h.cgroup, "freezer", dir), "freezer.self_freezing", "freezer.state", "THAWED", "FROZEN"}}
	case controllers == "":
		f := freezerFiles{filepath.Join(h.cgroup, dir), "cgroup.freeze", "cgroup.freeze", "0", "1"}
		hybrid := f
		hybrid.dir = filepath.Join(h.cgroup, "unified", dir)
		return []freezerFiles{f, hybrid}
	}
	return nil
}

// containerCgroup cuts path after the container's own cgroup: PID 1 may be in a nested one.
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

func (f freezerFiles) isFrozen() bool {
	raw, err := os.ReadFile(filepath.Join(f.dir, f.frozen))
	return err == nil && strings.TrimSpace(string(raw)) == "1"
}

// write changes the state of the cgroup, and reports whether the cgroup exists.
func (f freezerFiles) write(state string) (bool, error) {
	if _, err := os.Stat(filepath.Join(f.dir, f.frozen)); err != nil {
		return false, nil
	}
	file, err := os.OpenFile(filepath.Join(f.dir, f.state), os.O_WRONLY|os.O_TRUNC, 0) // never create it
	if err == nil {
		_, err = file.WriteString(state)
		err = errors.Join(err, file.Close())
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return false, fmt.Errorf("%w: %w", errdefs.ErrPermissionDenied, err)
	case errors.Is(err, fs.ErrNotExist):
		return false, nil // the container has exited
	}
	return err == nil, err
}
