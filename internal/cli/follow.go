package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// turnBytes is how much of one log is printed before the other.
	turnBytes = 1 << 20
	// lookAgain is the pause between two looks at logs that did not grow.
	lookAgain = 50 * time.Millisecond
)

// follower prints growing log files.
type follower struct{ tails []*tail }

// run prints until ended is closed and the files are printed up to their sizes at that time. It returns the first error of
// reading or printing, or that of ctx once it ends.
func (f *follower) run(ctx context.Context, ended <-chan struct{}) error {
	defer f.close()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		more, err := f.turn()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-ended:
			return f.rest(ctx)
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// turn prints some of each log and reports whether there may be more.
func (f *follower) turn() (more bool, err error) {
	for _, t := range f.tails {
		n, err := t.copy(turnBytes)
		if err != nil {
			return false, err
		}
		more = more || n == turnBytes
	}
	return more, nil
}

// rest prints the logs up to their present size. It does not wait for children of the command that still write.
func (f *follower) rest(ctx context.Context) error {
	for _, t := range f.tails {
		size, err := t.remaining()
		if err != nil {
			return err
		}
		for size > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := t.copy(min(size, turnBytes))
			if err != nil {
				return err
			}
			if n == 0 {
				break // the file shrank
			}
			size -= n
		}
	}
	return nil
}

func (f *follower) close() {
	for _, t := range f.tails {
		if t.file != nil {
			_ = t.file.Close() // read only
		}
	}
}

// tail is one log file, which need not exist yet.
type tail struct {
	path   string
	out    io.Writer
	file   *os.File
	offset int64
}

// copy prints at most limit bytes.
func (t *tail) copy(limit int64) (int64, error) {
	if err := t.open(); err != nil || t.file == nil {
		return 0, err
	}
	n, err := io.Copy(t.out, io.LimitReader(t.file, limit))
	t.offset += n
	if err != nil {
		return n, fmt.Errorf("print %s: %w", t.path, err)
	}
	return n, nil
}

func (t *tail) remaining() (int64, error) {
	if err := t.open(); err != nil || t.file == nil {
		return 0, err
	}
	info, err := t.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the size of log %s: %w", t.path, err)
	}
	return max(info.Size()-t.offset, 0), nil
}

// open opens the file if it exists. Processes in the sandbox can write to the directory, so open refuses a link to a file of the
// host, a FIFO or a device. Because opening some devices has side effects, it checks the type on an O_PATH descriptor, and then
// opens the same inode.
func (t *tail) open() error {
	if t.file != nil {
		return nil
	}
	handle, err := os.OpenFile(t.path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open log %s: %w", t.path, err)
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return fmt.Errorf("read the size of log %s: %w", t.path, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("log %s is not a regular file: a process in the sandbox has replaced it", t.path)
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", handle.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open log %s: %w", t.path, err)
	}
	t.file = f
	return nil
}
