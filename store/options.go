package store

import (
	"log/slog"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Options configure Open. Only Path is needed.
type Options struct {
	// Path of the file, usually ".../ids.db". Its directory is made with mode 0700, the file with 0600. Beside it lies
	// Path+".running", see marker.go, and the directory "log", see package txlog.
	Path string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// LockTimeout is how long to wait for another process to let go of the file; default 1 s.
	LockTimeout time.Duration
	// InitialMmapSize in bytes; default 16 GiB of address space (less where it does not fit). Readers that are open when
	// the file outgrows it stop the writer.
	InitialMmapSize int
	// EventHistoryLimit is how many events a live sandbox may have before the oldest ones of execs go; below 1: none go.
	// See SetEventHistoryLimit.
	EventHistoryLimit int
	// Observe is called once per commit, from the writer: how long it took, how many accepted writes it held, and its
	// error. Nil is fine.
	Observe func(commit time.Duration, writes int, err error)
	// ReserveBytes of disk space are kept allocated behind the last used page of the file, for commits on a full disk; 0: none.
	ReserveBytes int64
	// MakeRoom is called from the writer when a commit found no room on the disk. True: there may be room now, and the commit
	// is tried again; it is called up to 64 times for one commit. Nil: the commit fails.
	MakeRoom func() bool
	// NoRoom says in one sentence why no snapshot is written now, as the disk is nearly full; "": there is room. Nil: there is.
	NoRoom func() string
	// LogFailed is called with each error of the log. Nil is fine.
	LogFailed func(error)
	// Logger; nil: slog.Default().
	Logger *slog.Logger
	// CheckProgram is the program and arguments that check the file in a process of its own after an unclean end; the
	// path is appended. Nil: no check.
	CheckProgram []string
	// Instance is the UUID of a file that is made now; empty: a new one. A file that is there keeps its own.
	Instance string
	// Rebuild marks a file that is made now as one that takes the place of a lost one: see RebuildPending. The engine's marker
	// counts as written in it.
	Rebuild bool
	// OnFatal is called from the writer after an error that leaves unknown what the file holds, such as a failed fsync.
	// Every write after it is ErrUnavailable. Default: log and os.Exit(70).
	OnFatal func(error)

	// What tests replace.
	commit      func(*bolt.Tx) error
	minLogBytes int64
	maxLogged   int
	migrations  []migration
}

const (
	defaultLockTimeout = time.Second
	// defaultMmapSize: address space only. A file that stays below is never remapped, so no reader delays a commit.
	defaultMmapSize int64 = 16 << 30
	// exitSoftware is EX_SOFTWARE of sysexits.h.
	exitSoftware = 70
)

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Observe == nil {
		o.Observe = func(time.Duration, int, error) {}
	}
	if o.MakeRoom == nil {
		o.MakeRoom = func() bool { return false }
	}
	if o.OnFatal == nil {
		o.OnFatal = exitOnFatal(o.Logger)
	}
	if o.NoRoom == nil {
		o.NoRoom = func() string { return "" }
	}
	if o.LogFailed == nil {
		o.LogFailed = func(error) {}
	}
	if o.minLogBytes == 0 {
		o.minLogBytes = minLogBytes
	}
	if o.commit == nil {
		o.commit = (*bolt.Tx).Commit
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	return o
}

func exitOnFatal(log *slog.Logger) func(error) {
	return func(err error) {
		log.Error("store cannot go on", "err", err)
		os.Exit(exitSoftware) //nolint:forbidigo // nobody may go on after an fsync that failed
	}
}
