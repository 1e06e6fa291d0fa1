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

// compact writes a file anew that has become full. The long part, with the sync, is done without the box's lock: what is
// appended meanwhile is copied at the end.
func (b *box) compact(l *logFile) error {
	b.mu.Lock()
	full, upTo := l.full() && !b.gone, l.size
	b.mu.Unlock()
	if !full {
		return nil
	}
	dirfd, err := openDir(b.path)
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	old, _, err := openFile(dirfd, l.name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer old.Close()
	temp, err := createTemp(dirfd, l.temp)
	if err != nil {
		return err
	}
	defer temp.Close()
	base, err := l.copyCounting(old, temp, upTo)
	if err == nil {
		err = b.swap(l, dirfd, old, temp, upTo, base)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact: %w", err), remove(dirfd, l.temp))
	}
	return nil
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

// swap puts temp in the place of old, with what was appended to that behind upTo.
func (b *box) swap(l *logFile, dirfd int, old, temp *os.File, upTo, base int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone || !l.known {
		return remove(dirfd, l.temp)
	}
	late, err := io.Copy(io.NewOffsetWriter(temp, base), section(old, upTo, l.size))
	if err != nil {
		return err
	}
	if late != l.size-upTo {
		return errShrunk
	}
	if err := rename(dirfd, l.temp, l.name); err != nil {
		return err
	}
	l.base, l.size, l.dirty, l.entry = base, base+late, true, true
	return nil
}
