package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Records is what a Maker needs of the store.
type Records interface {
	InstanceID() string
	// Snapshot writes a copy of the database, as it was at one moment, to f.
	Snapshot(ctx context.Context, f *os.File) (schema uint64, err error)
	// ExecIDs returns sorted IDs of the execs of a sandbox that come after the given one; none: there are no more.
	ExecIDs(ctx context.Context, sandboxID, after string) ([]string, error)
}

// Maker makes backups of one running daemon. Its methods may be called concurrently.
type Maker struct {
	Records Records
	// DataDir is where the copy of the database lies, without a name, while it is sent.
	DataDir string
	// LogRoot has a directory of each sandbox's logs. It need not exist.
	LogRoot string
	// MainFiles and ExecFiles are the names of a sandbox's and of an exec's files there.
	MainFiles []string
	ExecFiles func(execID string) []string
	// LogLimit is how long a log may be, in bytes; below 1: any length. It bounds what a file that a sandbox has made to look
	// huge costs.
	LogLimit func() int64
}

// Write writes one backup to w. However slow w is, the database is held up only while the copy is made, on the same disk. The
// logs are read afterwards. Errors: those of Snapshot and of w; ctx's.
func (m *Maker) Write(ctx context.Context, w io.Writer, withLogs bool) error {
	f, err := m.nameless()
	if err != nil {
		return fmt.Errorf("make a place for the backup: %w", err)
	}
	defer f.Close()
	h := Header{Created: time.Now(), Instance: m.Records.InstanceID(), WithLogs: withLogs}
	if h.Schema, err = m.Records.Snapshot(ctx, f); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	if h.DatabaseBytes, err = f.Seek(0, io.SeekCurrent); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	database := &untilDone{ctx, io.NewSectionReader(f, 0, h.DatabaseBytes)}
	return Write(w, h, database, func(l *Logs) error { return m.addLogs(ctx, l) })
}

// nameless makes a file that is gone with the process, however that ends.
func (m *Maker) nameless() (*os.File, error) {
	f, err := os.OpenFile(m.DataDir, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) {
		return f, err
	}
	if f, err = os.CreateTemp(m.DataDir, ".backup-*"); err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// addLogs adds what the store knows to be there, and so needs no look at directories that sandboxes can write in.
func (m *Maker) addLogs(ctx context.Context, l *Logs) error {
	sandboxes, err := os.ReadDir(m.LogRoot) // ours alone
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the logs: %w", err)
	}
	for _, sb := range sandboxes {
		if !sb.IsDir() || checkName(sb.Name()+"/_") != nil {
			continue
		}
		if err := m.addSandbox(ctx, l, sb.Name()); err != nil {
			return err
		}
	}
	return nil
}

func (m *Maker) addSandbox(ctx context.Context, l *Logs, id string) error {
	dir, err := unix.Open(filepath.Join(m.LogRoot, id), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(fmt.Errorf("open the logs of %s: %w", id, err))
	}
	defer unix.Close(dir)
	if err := m.addFiles(ctx, l, dir, id, m.MainFiles); err != nil {
		return err
	}
	for after := ""; ; {
		execs, err := m.Records.ExecIDs(ctx, id, after)
		if err != nil || len(execs) == 0 {
			return err
		}
		for _, execID := range execs {
			if err := m.addFiles(ctx, l, dir, id, m.ExecFiles(execID)); err != nil {
				return err
			}
		}
		after = execs[len(execs)-1]
	}
}

func (m *Maker) addFiles(ctx context.Context, l *Logs, dir int, sandboxID string, names []string) error {
	for _, name := range names {
		if err := m.addFile(ctx, l, dir, sandboxID, name); err != nil {
			return ignoreGone(err)
		}
	}
	return nil
}

// addFile adds one file, if it is there and a regular one.
func (m *Maker) addFile(ctx context.Context, l *Logs, dir int, sandboxID, name string) error {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return nil // none, or no file: the sandbox's own doing
	case err != nil:
		return fmt.Errorf("open log %s of %s: %w", name, sandboxID, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("read the status of log %s of %s: %w", name, sandboxID, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil
	}
	log := Log{Sandbox: sandboxID, File: name, Mode: st.Mode & 0o777, Modified: time.Unix(st.Mtim.Unix()), Bytes: m.bound(st)}
	return l.Add(log, &untilDone{ctx, f})
}

// bound is how much of a file is taken: all, but of one that is longer than logs may be now no more than takes space.
func (m *Maker) bound(st unix.Stat_t) int64 {
	limit := m.LogLimit()
	if limit < 1 || st.Size <= limit {
		return st.Size
	}
	return min(st.Size, max(limit, st.Blocks*512)) // the kernel's unit, whatever the file system's
}

// ignoreGone: a sandbox is deleted while its logs are read.
func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
