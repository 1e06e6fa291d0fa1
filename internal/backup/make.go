package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Records holds the methods of the store that a Maker calls.
type Records interface {
	InstanceID() string
	// Snapshot writes a copy of the database, as of one moment, to f.
	Snapshot(ctx context.Context, f *os.File) (schema uint64, err error)
	// ExecIDs returns sorted IDs of the execs of a sandbox that follow the given one; none at the end.
	ExecIDs(ctx context.Context, sandboxID, after string) ([]string, error)
}

// Maker creates backups of one running daemon. Its methods may be called concurrently.
type Maker struct {
	Records Records
	// DataDir is the directory of the unlinked copy of the database while it is sent.
	DataDir string
	// LogRoot has one directory with logs per sandbox. It may not exist.
	LogRoot string
	// MainFiles and ExecFiles are the names of a sandbox's and of an exec's files in that directory.
	MainFiles []string
	ExecFiles func(execID string) []string
	// LogLimit returns the maximum length of a log in bytes; below 1: unlimited. It bounds the cost of a sparse file that a sandbox has
	// extended.
	LogLimit func() int64
}

// Write writes one backup to w. Only the copy of the database, on the same disk, blocks the database, however slow w is. The logs are read
// afterwards. Errors: those of Snapshot and of w; ctx's.
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

// nameless creates an unlinked file, which disappears with the process.
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

// addLogs adds the logs that the store's records name. So it need not list directories that sandboxes can write in.
func (m *Maker) addLogs(ctx context.Context, l *Logs) error {
	sandboxes, err := os.ReadDir(m.LogRoot) // only agboxd writes in LogRoot
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

// smallFile is the size, in bytes, up to which addFile adds a file only if it still has its name when it was read. Journals are smaller: the
// supervisor of an exec overwrites its former journal.
const smallFile = 64 << 10

// addTries is how often addFile tries. A journal is replaced once.
const addTries = 10

// addFile adds one file, if it exists and is a regular file.
func (m *Maker) addFile(ctx context.Context, l *Logs, dir int, sandboxID, name string) error {
	for range addTries {
		if added, err := m.addFileOnce(ctx, l, dir, sandboxID, name); added || err != nil {
			return err
		}
	}
	return nil // only a sandbox changes it that often
}

// addFileOnce is addFile, or returns false if another file has the name now.
func (m *Maker) addFileOnce(ctx context.Context, l *Logs, dir int, sandboxID, name string) (added bool, err error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return true, nil // missing, or not a regular file: sandboxes may change names there
	case err != nil:
		return false, fmt.Errorf("open log %s of %s: %w", name, sandboxID, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("read the status of log %s of %s: %w", name, sandboxID, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return true, nil
	}
	log := Log{Sandbox: sandboxID, File: name, Mode: st.Mode & 0o777, Modified: time.Unix(st.Mtim.Unix()), Bytes: m.bound(st)}
	if st.Size > smallFile {
		return true, l.Add(log, &untilDone{ctx, f})
	}
	data, err := io.ReadAll(io.LimitReader(f, log.Bytes))
	if err != nil {
		return false, fmt.Errorf("read log %s of %s: %w", name, sandboxID, err)
	}
	var named unix.Stat_t
	if err := unix.Fstatat(dir, name, &named, unix.AT_SYMLINK_NOFOLLOW); err != nil || named.Dev != st.Dev || named.Ino != st.Ino {
		return false, nil // the next try sees why
	}
	log.Bytes = int64(len(data))
	return true, l.Add(log, bytes.NewReader(data))
}

// bound returns the number of bytes of a file to back up: its size, but for a file beyond the present log limit at most its allocated
// space, or the limit if that is larger.
func (m *Maker) bound(st unix.Stat_t) int64 {
	limit := m.LogLimit()
	if limit < 1 || st.Size <= limit {
		return st.Size
	}
	return min(st.Size, max(limit, st.Blocks*512)) // st_blocks counts 512-byte units on every file system
}

// ignoreGone drops ErrNotExist: the sandbox was deleted while its logs were read.
func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
