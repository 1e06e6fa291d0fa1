package store

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Options configure Open. Only Path is required.
type Options struct {
	// Path of the file, usually ".../ids.db". Open creates its directory with mode 0700, the file with 0600. Next to it are
	// Path+".running", see marker.go, and the directory "log", see package txlog.
	Path string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// BootID is the host's boot ID, for execs that are dispatched as they are accepted; empty: their journals are durable before they start.
	BootID string
	// LockTimeout is how long to wait for another process to release the file; default 1 s.
	LockTimeout time.Duration
	// InitialMmapSize in bytes; default 16 GiB of address space (less if that does not fit). When the file outgrows it, open readers block
	// the writer.
	InitialMmapSize int
	// EventHistoryLimit is how many events a live sandbox may have before its oldest exec events are dropped; below 1: none are. See
	// SetEventHistoryLimit.
	EventHistoryLimit int
	// Observe is called once per commit, from the writer, with its duration, the number of accepted writes in it, and its error. Nil: not
	// called.
	Observe func(commit time.Duration, writes int, err error)
	// ReserveBytes of disk space stay allocated after the last used page of the file, for commits on a full disk; 0: none.
	ReserveBytes int64
	// MakeRoom is called from the writer when a commit found no disk space, up to 64 times for one commit. If it returns true, the writer
	// retries the commit. Nil: the commit fails.
	MakeRoom func() bool
	// NoRoom returns why no snapshot can be written now because the disk is nearly full, in one sentence; "": there is space. Nil: there
	// is.
	NoRoom func() string
	// LogFailed is called with each error of the log. Nil: not called.
	LogFailed func(error)
	// Logger; nil: slog.Default().
	Logger *slog.Logger
	// CheckProgram is the program and arguments that check the file in a child process after an unclean end; the path is appended. Nil: no
	// check.
	CheckProgram []string
	// Instance is the UUID of a newly created file; empty: a random one. An existing file keeps its own.
	Instance string
	// Rebuild marks a newly created file as the replacement of a lost one: see RebuildPending. The engine's marker is then recorded as
	// written.
	Rebuild bool
	// OnFatal is called from the writer after an error that leaves the content of the file unknown, such as a failed fsync. Every later
	// write returns ErrUnavailable. Default: log and os.Exit(70).
	OnFatal func(error)

	// Replaced by tests.
	commit      func(*bolt.Tx) error
	minLogBytes int64
	maxLogged   int
}

const (
	defaultLockTimeout = time.Second
	// defaultMmapSize is address space only. A smaller file is never remapped, so no reader delays a commit.
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
	o.Logger, o.minLogBytes = cmp.Or(o.Logger, slog.Default()), cmp.Or(o.minLogBytes, minLogBytes)
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
	if o.commit == nil {
		o.commit = (*bolt.Tx).Commit
	}
	return o
}

func exitOnFatal(log *slog.Logger) func(error) {
	return func(err error) {
		log.Error("the store failed", "err", err)
		os.Exit(exitSoftware) //nolint:forbidigo // no work may follow a failed fsync
	}
}
