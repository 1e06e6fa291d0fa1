package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execjournal"
)

// proves reports whether PID 1 handles the file called name before its release: those of the command that proves the runtime.
func (p *initProcess) proves(name string) bool {
	return p.probe && (name == execjournal.RequestName(execjournal.ProofID) || name == execjournal.CancelName(execjournal.ProofID))
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
// waits for the daemon's cancel.
func runProbe(word string) int {
	cancelled := make(chan os.Signal, 1)
	signal.Notify(cancelled, unix.SIGTERM)
	file := execjournal.ProofFile(word)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		say("write a file of the container: %v", err)
		return exitCannotRun
	}
	defer func() { _ = os.Remove(file) }() // it goes with the container otherwise
	fmt.Fprintln(os.Stdout, word)
	<-cancelled
	return 0
}
