package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execjournal"
)

// prove does what every exec needs of the runtime: it becomes a reaper of orphans, as supervisors do, and takes a lock for as long as
// PID 1 lives. The lock file appears with its lock held, so a daemon that finds it free does not share locks with this container.
func (p *initProcess) prove() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a child subreaper: %w", err)
	}
	if !p.openLogs() {
		return errors.New("the log directory can't be opened")
	}
	if _, err := p.lock(execjournal.ProofID); err != nil { // closed by the kernel with the process
		return fmt.Errorf("take a lock: %w", err)
	}
	return nil
}
