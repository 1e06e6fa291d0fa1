package txlog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/host/disk"
)

// partBytes is the payload size of a snapshot frame; a single larger operation gets a larger frame.
const partBytes = 64 << 10

// WriteSnapshot writes and syncs the snapshot of that number, gives it its name, and then removes the files older than the previous
// snapshot. each calls its function with the operations that create the database as of transaction txid, which is not older than the start
// of the segment with the same number. Errors: each's, the files'; the log is then unchanged.
func (l *Log) WriteSnapshot(number uint32, txid uint64, each func(func(Op) error) error) error {
	path := filepath.Join(l.o.Dir, snapshotName(number))
	size, err := l.writeFile(path+tmpSuffix, txid, each)
	if err == nil {
		err = l.Sync() // the segments must be on disk before the snapshot that needs them has its name
	}
	if err == nil {
		err = fault.Around(fault.Log, "name_snapshot", func() error {
			return errors.Join(os.Rename(path+tmpSuffix, path), disk.Sync(l.o.Dir))
		})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write a snapshot of the database: %w", err), disk.Remove(path+tmpSuffix))
	}
	l.mu.Lock()
	l.snapshot, l.behind = size, l.gap
	l.mu.Unlock()
	if err := l.removeOlder(number); err != nil {
		return fmt.Errorf("remove the older part of the log: %w", err)
	}
	return nil
}

func (l *Log) writeFile(path string, txid uint64, each func(func(Op) error) error) (size int64, err error) {
	err = fault.Around(fault.Log, "write_snapshot", func() error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		if err = writeSnapshot(f, head{l.o.Lineage, txid}, each); err == nil {
			err = f.Sync()
		}
		if err == nil {
			size, err = f.Seek(0, io.SeekCurrent)
		}
		return errors.Join(err, f.Close())
	})
	return size, err
}

func writeSnapshot(f io.Writer, h head, each func(func(Op) error) error) error {
	w := bufio.NewWriterSize(f, 2*partBytes) // after an error, each write returns it
	_, _ = w.Write(appendHead(nil, kindSnapshot, h))
	part, at := begin(nil, kindData)
	count := uint64(0)
	flush := func() error {
		if len(part) == headerBytes {
			return nil
		}
		_, err := w.Write(end(part, at))
		part, at = begin(part[:0], kindData)
		return err
	}
	err := each(func(op Op) error {
		part = appendOp(part, op)
		count++
		switch {
		case len(part) > maxPayload:
			return fmt.Errorf("a record of %d bytes is too large", len(part))
		case len(part) < partBytes:
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	b, at := begin(nil, kindWhole)
	_, _ = w.Write(end(binary.AppendUvarint(b, count), at))
	return w.Flush()
}

// removeOlder removes the files older than the snapshot before number. That snapshot and its segments stay, because they restore the same
// database if the new snapshot is damaged; one of another database file is removed. The snapshots are removed first, because a replay of
// one without its segments would lose transactions.
func (l *Log) removeOlder(number uint32) error {
	return fault.Around(fault.Log, "remove_older", func() error {
		snapshots, segments, err := list(l.o.Dir)
		first := l.previous(snapshots, number)
		older, _ := slices.BinarySearch(snapshots, first)
		oldSegments, _ := slices.BinarySearch(segments, first)
		err = errors.Join(err, removeFiles(l.o.Dir, snapshots[:older], snapshotName), removeFiles(l.o.Dir, segments[:oldSegments], segmentName))
		size := int64(0)
		for _, n := range segments {
			if info, err := os.Stat(filepath.Join(l.o.Dir, segmentName(n))); n >= number && err == nil {
				size += info.Size()
			}
		}
		l.mu.Lock()
		l.size = size
		l.mu.Unlock()
		return err
	})
}

// previous returns the number of the last snapshot of this database before number; number if there is none.
func (l *Log) previous(snapshots []uint32, number uint32) uint32 {
	for _, n := range slices.Backward(snapshots) {
		if n >= number {
			continue
		}
		f, r, err := openFile(filepath.Join(l.o.Dir, snapshotName(n)))
		if err != nil {
			return number
		}
		h, err := r.head(kindSnapshot)
		_ = f.Close() // only read
		if err == nil && h.lineage == l.o.Lineage {
			return n
		}
		return number
	}
	return number
}
