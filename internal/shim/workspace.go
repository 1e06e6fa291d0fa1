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

// ownWorkspace gives the working directory to the user that commands run as, if it looks as the engine makes one that the
// image does not have: root's, with mode 0755, part of the container's own file system, and empty but for mount points.
// Nothing else is ever touched: a /tmp that all may write stays root's.
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

// onlyMounts tells whether all entries of the directory are mount points, or were made on the way to one.
func onlyMounts(f *os.File, mounts, dir string) (bool, error) {
	const most = 256 // more of them are no mounts
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

// mounted looks for dir, or with within also for what is below it, among the mount points: the fifth field of each line of
// mountinfo, where odd characters are \ooo.
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
