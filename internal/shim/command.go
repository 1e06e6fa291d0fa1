package shim

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/passwd"
)

// Exit codes of a command that could not be started; shells use the same ones.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// startError describes why a command could not be started. why contains no arguments and no environment variables.
type startError struct {
	exitCode int
	why      string
}

func (e *startError) Error() string { return e.why }

func cannotRun(format string, a ...any) *startError {
	return &startError{exitCannotRun, fmt.Sprintf(format, a...)}
}

// start starts a command in a new session with the given user, capabilities, environment and descriptors, in the directory cwd; an empty cwd is that of
// this process. With terminal, the first descriptor is the controlling terminal. It returns the process ID.
func start(command []string, cwd string, who passwd.Identity, caps caps, env []string, files [3]int, terminal bool) (int, *startError) {
	if why := checkCwd(cwd); why != nil {
		return 0, why
	}
	attr := &syscall.ProcAttr{
		Dir:   cwd,
		Env:   env,
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: terminal},
	}
	if unix.Geteuid() == 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: who.UID, Gid: who.GID, Groups: who.Groups}
		attr.Sys.AmbientCaps = caps
	} else if int(who.UID) != unix.Geteuid() {
		return 0, cannotRun("run as user %d: only root can", who.UID)
	}
	return startFirst(command, candidates(command[0], env), attr)
}

func checkCwd(cwd string) *startError {
	if cwd == "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(cwd, &st); err != nil {
		return cannotRun("working directory %q: %v", clip(cwd), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return cannotRun("working directory %q: not a directory", clip(cwd))
	}
	return nil
}

// candidates returns the paths to try, in order, like execvp(3).
func candidates(program string, env []string) []string {
	if strings.Contains(program, "/") {
		return []string{program}
	}
	var list []string
	for _, pair := range env {
		value, ok := strings.CutPrefix(pair, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(value) {
			path := filepath.Join(dir, program)
			var st unix.Stat_t
			if filepath.IsAbs(dir) && unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
				list = append(list, path)
			}
		}
	}
	return list
}

// startFirst starts the first candidate that exists and that the user may execute.
func startFirst(argv, paths []string, attr *syscall.ProcAttr) (int, *startError) {
	last := &startError{exitNotFound, fmt.Sprintf("command %q was not found", clip(argv[0]))}
	for _, path := range paths {
		pid, err := syscall.ForkExec(path, argv, attr)
		switch {
		case err == nil:
			return pid, nil
		case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
			last = &startError{exitNotFound, notFound(argv[0], path, attr.Dir)}
		case errors.Is(err, unix.EACCES):
			last = cannotRun("command %q%s: permission denied", clip(argv[0]), in(attr.Dir))
		case errors.Is(err, unix.EAGAIN):
			return 0, cannotRun("the sandbox has as many processes as it may have")
		default:
			return 0, cannotRun("command %q%s: %v", clip(argv[0]), in(attr.Dir), err)
		}
	}
	return 0, last
}

// notFound distinguishes a missing program from a missing interpreter; the kernel returns ENOENT for both.
func notFound(program, path, cwd string) string {
	if !filepath.IsAbs(path) && cwd != "" {
		path = filepath.Join(cwd, path)
	}
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		return fmt.Sprintf("command %q needs an interpreter or loader that was not found", clip(program))
	}
	return fmt.Sprintf("command %q was not found", clip(program))
}

func in(cwd string) string {
	if cwd == "" {
		return ""
	}
	return fmt.Sprintf(" in %q", clip(cwd))
}

// clip shortens a name to 100 bytes for an error message.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "..."
	}
	return s
}
