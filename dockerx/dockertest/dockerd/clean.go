package dockerd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// clean stops the engine, kills its remaining processes, and removes its mounts and namespace.
func (e *Engine) clean() {
	if e.proc != nil {
		e.Thaw()
		e.Kill()
	}
	e.killLeftovers()
	e.removeShimSockets()
	e.removeCgroups()
	e.unmount()
	e.ip("netns", "del", e.netns)
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Errorf("clean up after dockerd: %v", err)
	}
}

// killLeftovers kills the processes whose command line names the engine's directory (containerd and its shims), and their
// descendants, which are the containers.
func (e *Engine) killLeftovers() {
	for end := time.Now().Add(killTimeout); ; time.Sleep(10 * time.Millisecond) {
		pids := e.leftovers()
		if len(pids) == 0 {
			return
		}
		if time.Now().After(end) {
			e.t.Errorf("processes of %s still run: %v", e.dir, pids)
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func (e *Engine) leftovers() []int {
	var ours []int
	children := map[int][]int{}
	all, err := procfs.AllProcs()
	if err != nil {
		e.t.Errorf("list processes: %v", err)
	}
	for _, p := range all {
		cmdline, _ := p.CmdLine() // empty for a zombie
		if strings.Contains(strings.Join(cmdline, " "), e.dir+"/") && p.PID != os.Getpid() {
			ours = append(ours, p.PID)
		}
		if stat, err := p.Stat(); err == nil && len(cmdline) > 0 {
			children[stat.PPID] = append(children[stat.PPID], p.PID)
		}
	}
	for i := 0; i < len(ours); i++ { // ours grows, to cover all descendants
		ours = append(ours, children[ours[i]]...)
	}
	return ours
}

// unmount detaches the mounts at and below the engine's directory, the innermost first.
func (e *Engine) unmount() {
	mounts, err := procfs.GetMounts()
	if err != nil {
		e.t.Errorf("clean up after dockerd: %v", err)
	}
	for _, m := range slices.Backward(mounts) {
		if m.MountPoint != e.dir && !strings.HasPrefix(m.MountPoint, e.dir+"/") {
			continue
		}
		if err := unix.Unmount(m.MountPoint, unix.MNT_DETACH); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EINVAL) {
			e.t.Errorf("unmount %s: %v", m.MountPoint, err)
		}
	}
}

// removeShimSockets removes the sockets of killed shims, which lie outside the engine's directory; the files with their addresses lie in it.
func (e *Engine) removeShimSockets() {
	addresses, _ := filepath.Glob(filepath.Join(e.dir, "exec/containerd/daemon/io.containerd.runtime.v2.task/*/*/address"))
	for _, file := range addresses {
		if raw, err := os.ReadFile(file); err == nil {
			_ = os.Remove(strings.TrimPrefix(string(raw), "unix://")) // already removed by a shim that exited orderly
		}
	}
}

// removeCgroups removes the control groups of killed containers, in all hierarchies, the innermost first.
func (e *Engine) removeCgroups() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + e.netns)
	for _, root := range append(roots, "/sys/fs/cgroup/"+e.netns) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs)
		for _, dir := range dirs {
			_ = os.Remove(dir)
		}
	}
}
