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

// proves reports whether PID 1 handles the file called name before its release: those of the command that proves the runtime.
func (p *initProcess) proves(name string) bool {
	return p.probe && (name == execjournal.RequestName(execid.Runtime) || name == execjournal.CancelName(execid.Runtime))
}

// unwoken reports whether inotify may not tell of files that the host writes: that is so in a container with a kernel of its own, and
// unknown until the runtime is proven.
func (p *initProcess) unwoken() bool {
	if !p.probe {
		return false
	}
	var st unix.Stat_t
	return !p.released || unix.Lstat(filepath.Join(p.inbox.dir, execjournal.PrivateName), &st) == nil
}

// inability says why no supervisor could work here; empty: nothing is known against it. PID 1 itself reaps orphans anyway.
func inability() string {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return "the kernel that it gives to containers has no child subreapers (prctl PR_SET_CHILD_SUBREAPER: " + err.Error() +
			"), without which agbox can't end all that a command has started"
	}
	return ""
}

// runProbe is the command of the proof: it makes a file among the container's own, prints word, which the daemon reads from its log, and
// waits for the daemon's cancel. Once it reaches the engine's DNS server it also prints ProofNames; the server is away while the engine
// restarts.
func runProbe(word string) int {
	cancelled := make(chan os.Signal, 1)
	signal.Notify(cancelled, unix.SIGTERM)
	file := execjournal.ProofFile(word)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		say("write a file of the container: %v", err)
		return exitCannotRun
	}
	defer func() { _ = os.Remove(file) }() // it goes with the container otherwise
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
	// namesPause is the time between two tries to reach the engine's DNS server.
	namesPause = 100 * time.Millisecond
	// namesTimeout bounds a try. The server is on the container's loopback.
	namesTimeout = 500 * time.Millisecond
)

// reachesNames reports whether Docker's DNS server, which each container on a network of its own has at 127.0.0.11, takes a connection.
// True where the container uses another one.
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
