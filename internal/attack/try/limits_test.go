package try_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/try"
)

// A flood that nothing refuses ends at its ceiling, and leaves no process.
func TestFloodsThatNothingRefusesEnd(t *testing.T) {
	if done, why := try.Forks(300); done != "300 processes at the same time" {
		t.Errorf("of processes: %q, %q", done, why)
	}
	if done, why := try.Memory(16 << 20); done != "16MiB were used" {
		t.Errorf("of memory: %q, %q", done, why)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("of the children is left: %d, %v", pid, err)
	}
	if done, why := try.Memory(1 << 60); done != "" || !strings.HasPrefix(why, "not flooded: the host has") {
		t.Errorf("of more memory than there is: %q, %q", done, why)
	}
}

// mounted returns a directory in which a tmpfs of a size is mounted.
func mounted(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a mount needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// A disk is filled up to its limit, or up to a ceiling, on no other file system, and has its space back.
func TestTheFloodOfADisk(t *testing.T) {
	small, large := mounted(t, "8m"), mounted(t, "400m")
	for name, tt := range map[string]struct {
		limit      uint64
		root       string
		dirs       []string
		done, text string
	}{
		"refused":         {8 << 20, small, []string{small}, "", "refused after 8MiB: no space left on device"},
		"not refused":     {8 << 20, large, []string{t.TempDir(), large + "/none", large}, "72MiB were written", ""},
		"no place":        {8 << 20, large, []string{small}, "", "not flooded: there is no place to write in"},
		"no room to try":  {300 << 20, large, []string{large}, "", "not flooded: the disk has 400MiB left"},
		"no file system":  {8 << 20, small + "/none", []string{small}, "", "not flooded: no such file or directory"},
		"above the limit": {attack.MostDisk, small, []string{small}, "", "refused after 8MiB: no space left on device"},
	} {
		if done, text := try.Disk(tt.limit, tt.root, tt.dirs...); done != tt.done || text != tt.text {
			t.Errorf("%s: %q, %q", name, done, text)
		}
	}
	for _, dir := range []string{small, large} {
		var st unix.Statfs_t
		left, err := os.ReadDir(dir)
		if unix.Statfs(dir, &st) != nil || st.Bfree != st.Blocks || err != nil || len(left) > 0 {
			t.Errorf("of %d blocks are left %d; the files are %v, %v", st.Blocks, st.Bfree, left, err)
		}
	}
}
