package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/agbox/agbox/internal/host/passwd"
)

// ownWorkspace changes the owner of the working directory to the user that runs commands, if the directory looks like one that the engine
// created because the image lacks it: owned by root, mode 0755, on the container's own file system, and empty except for mount points. It
// changes no other directory: a world-writable /tmp stays root's.
func ownWorkspace(who passwd.Identity) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find the mounts: %w", err)
	}
	if who.UID == 0 || dir == "/" || mounted(string(mounts), dir, false) {
		return nil
	}
	f, err := os.Open(".")
	if err != nil {
		return fmt.Errorf("open the working directory: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat the working directory: %w", err)
	}
	if owner := st.Sys().(*syscall.Stat_t); owner.Uid != 0 || owner.Gid != 0 || st.Mode() != os.ModeDir|0o755 {
		return nil
	}
	if fresh, err := onlyMounts(f, string(mounts), dir); err != nil || !fresh {
		return err
	}
	return f.Chown(int(who.UID), int(who.GID))
}

// onlyMounts reports whether all entries of the directory are mount points or parents of mount points.
func onlyMounts(f *os.File, mounts, dir string) (bool, error) {
	const most = 256 // more entries than this cannot all be mounts
	names, err := f.Readdirnames(most)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("list the working directory: %w", err)
	}
	for _, name := range names {
		if !mounted(mounts, dir+"/"+name, true) {
			return false, nil
		}
	}
	return len(names) < most, nil
}

// mounted reports whether dir, or with within also any path below it, is a mount point: the fifth field of a line of mountinfo, where
// special characters are written as \ooo.
func mounted(mountinfo, dir string, within bool) bool {
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir)
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) > 4 && (f[4] == escaped || within && strings.HasPrefix(f[4], escaped+"/")) {
			return true
		}
	}
	return false
}
