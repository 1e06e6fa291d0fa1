package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// ownWorkspace gives the working directory to the user that execs run as by default, if the engine made it just now: then
// it is empty, root's, and part of the container's own file system. Nothing else is ever touched.
func ownWorkspace(who identity) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	if who.uid == 0 || dir == "/" || isMount(dir) {
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
	if st.Sys().(*syscall.Stat_t).Uid != 0 {
		return nil
	}
	if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
		return err // nil: not empty
	}
	return f.Chown(int(who.uid), int(who.gid))
}

// isMount tells whether something is mounted at dir; when in doubt it is.
func isMount(dir string) bool {
	data, err := os.ReadFile("/proc/self/mountinfo")
	return err != nil || mountedAt(string(data), dir)
}

// mountedAt looks for dir among the mount points, the fifth field of each line, where odd characters are \ooo.
func mountedAt(mountinfo, dir string) bool {
	escaped := strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(dir)
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && f[4] == escaped {
			return true
		}
	}
	return false
}
