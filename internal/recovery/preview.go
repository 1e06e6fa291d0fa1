package recovery

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// Preview replays the log to a temporary file and returns its live sandboxes and a line that summarizes it.
func (s Site) Preview(log *slog.Logger) (known []Known, line string, err error) {
	dir, err := os.MkdirTemp("", "agboxd-rehydrate-*")
	if err != nil {
		return nil, "", fmt.Errorf("make a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	found, list, err := store.Preview(store.Options{Path: s.Database, Logger: log}, filepath.Join(dir, "ids.db"))
	if errdefs.IsNotFound(err) {
		return nil, "log: none usable; records are derived from labels and inspections", nil
	}
	if err != nil {
		return nil, "", err
	}
	for _, r := range list {
		known = append(known, Known{Record: r.Record, Execs: r.Execs, Torn: found.Missing != ""})
	}
	state := "complete: every record is recovered"
	if found.Missing != "" {
		state = "incomplete, so live sandboxes are derived from the engine: " + found.Missing
	}
	return known, fmt.Sprintf("log: %d sandboxes, %d agents; %s", found.Sandboxes, found.Agents, state), nil
}

// LifeSince returns the boot time of the host, or the later start time of an engine without live restore, whose containers end with it.
func LifeSince(engine dockerx.Info, now time.Time) time.Time { return lifeSince(bootTime(now), engine) }

func lifeSince(boot time.Time, engine dockerx.Info) time.Time {
	if !engine.LiveRestore && engine.StartedAt.After(boot) {
		return engine.StartedAt
	}
	return boot
}

// bootTime returns when the host booted, including time asleep; zero if the kernel does not report it.
func bootTime(now time.Time) time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(up.Nano()))
}
