package recordfile

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// errShrunk: somebody else has written to the file.
var errShrunk = fmt.Errorf("the file is shorter than what was written: %w", errdefs.ErrDataLoss)

// compaction rewrites one file. It writes and syncs the frames up to upTo without the box's lock, and copies those that were appended
// meanwhile at the end, under the lock.
type compaction struct {
	dirfd     int
	old, temp *os.File
	upTo      int64
}

func (c *compaction) close() {
	c.old.Close()
	c.temp.Close()
	unix.Close(c.dirfd)
}

// compact rewrites a full file.
func (b *box) compact(l *logFile) error {
	c, err := b.beginCompaction(l)
	if c == nil {
		return err
	}
	defer c.close()
	base, err := l.copyCounting(c.old, c.temp, c.upTo)
	if err == nil {
		err = b.swap(l, c, base)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact: %w", err), remove(c.dirfd, l.temp))
	}
	return nil
}

// beginCompaction makes the new file, under the lock: remove finds it, or it is not made. Nil is for a file that is not full.
func (b *box) beginCompaction(l *logFile) (*compaction, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !l.full() {
		return nil, nil
	}
	dirfd, err := openDir(b.path)
	if err != nil {
		return nil, err
	}
	old, _, err := openFile(dirfd, l.name, unix.O_RDONLY)
	if err != nil {
		unix.Close(dirfd)
		return nil, err
	}
	temp, err := createTemp(dirfd, l.temp)
	if err != nil {
		old.Close()
		unix.Close(dirfd)
		return nil, err
	}
	return &compaction{dirfd, old, temp, l.size}, nil
}

// copyCounting copies what counts in the first upTo bytes of old, in its order, and syncs it.
func (l *logFile) copyCounting(old, temp *os.File, upTo int64) (base int64, err error) {
	c, good, err := l.look(old, upTo)
	if err != nil {
		return 0, err
	}
	if good != upTo {
		return 0, errShrunk
	}
	places := c.others
	for _, at := range c.at {
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.offset, b.offset) })
	w := bufio.NewWriterSize(temp, scanBuffer)
	plain, buffer := struct{ io.Writer }{w}, make([]byte, 32<<10) // or each copy would have a buffer of its own
	for _, at := range places {
		n, err := io.CopyBuffer(plain, section(old, at.offset, at.offset+at.size), buffer)
		base += n
		if err != nil {
			return base, err
		}
	}
	if err := w.Flush(); err != nil {
		return base, err
	}
	return base, temp.Sync()
}

// swap replaces the old file by the new one, with the frames that were appended to the old one meanwhile.
func (b *box) swap(l *logFile, c *compaction, base int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !l.known {
		return remove(c.dirfd, l.temp)
	}
	late, err := io.Copy(io.NewOffsetWriter(c.temp, base), section(c.old, c.upTo, l.size))
	if err != nil {
		return err
	}
	if late != l.size-c.upTo {
		return errShrunk
	}
	if _, err := c.temp.WriteAt(endMark[:l.mark], base+late); err != nil {
		return err
	}
	if err := rename(c.dirfd, l.temp, l.name); err != nil {
		return err
	}
	l.base, l.size, l.dirty, l.entry = base, base+late, true, true
	return nil
}
