package shim

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// proves reports whether PID 1 handles the file called name before its release: only the request and the cancel of the command that probes
// the runtime.
func (p *initProcess) proves(name string) bool {
	return p.probe && (name == execjournal.RequestName(execid.Runtime) || name == execjournal.CancelName(execid.Runtime))
}

// unwoken reports whether inotify may miss files that the host writes. It does in a container with a kernel of its own; before the release
// this is unknown, so unwoken returns true.
func (p *initProcess) unwoken() bool {
	if !p.probe {
		return false
	}
	var st unix.Stat_t
	return !p.released || unix.Lstat(filepath.Join(p.inbox.dir, execjournal.PrivateName), &st) == nil
}

// inability returns why no supervisor can work on this runtime; empty if no reason is known. PID 1 itself reaps orphans without
// PR_SET_CHILD_SUBREAPER.
func inability() string {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return "the kernel that it gives to containers has no child subreapers (prctl PR_SET_CHILD_SUBREAPER: " + err.Error() +
			"), without which agbox can't end all that a command has started"
	}
	return ""
}

// runProbe is the command that probes the runtime: it creates a file in the container's file system, prints word, which agboxd reads from
// its log, and waits for agboxd's cancel. When the engine's DNS server is reachable it also prints ProofNames; that server is unreachable
// while the engine restarts, so runProbe retries.
func runProbe(word string) int {
	cancelled := make(chan os.Signal, 1)
	signal.Notify(cancelled, unix.SIGTERM)
	file := execjournal.ProofFile(word)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		say("write a file of the container: %v", err)
		return exitCannotRun
	}
	defer func() { _ = os.Remove(file) }() // otherwise the file is removed with the container
	names := reachesNames()
	if names {
		fmt.Fprintln(os.Stdout, execjournal.ProofNames)
	}
	fmt.Fprintln(os.Stdout, word)
	for {
		select {
		case <-cancelled:
			return 0
		case <-time.After(namesPause):
			if !names && reachesNames() {
				names = true
				fmt.Fprintln(os.Stdout, execjournal.ProofNames)
			}
		}
	}
}

const (
	// namesPause is the pause between two attempts to reach the engine's DNS server.
	namesPause = 100 * time.Millisecond
	// namesTimeout bounds one attempt. The server listens on the container's loopback.
	namesTimeout = 500 * time.Millisecond
)

// reachesNames reports whether Docker's DNS server accepts a connection. Docker provides it at 127.0.0.11 in each container on a
// user-defined network. It returns true if the container uses another DNS server.
func reachesNames() bool {
	const resolvConf = "/etc/resolv.conf"
	data, err := os.ReadFile(resolvConf)
	if err != nil || !bytes.Contains(data, []byte("nameserver 127.0.0.11")) {
		return true
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	bound := unix.NsecToTimeval(namesTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &bound); err != nil {
		return false
	}
	return unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 11}}) == nil
}
