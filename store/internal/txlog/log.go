package txlog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/host/disk"
)

// keepBuffer is the size of the largest buffer that Append keeps for the next one.
const keepBuffer = 1 << 20

// ErrGap is returned by Append while the log lacks transactions, until Rotate.
var ErrGap = errors.New("the log has a gap until its next snapshot")

// Log is the log of one database. Only the database's one writer may call Append and Rotate; all other methods may be called at any time.
type Log struct {
	o Options

	mu       sync.Mutex
	f        *os.File     // the segment that Append writes to; nil: none yet
	number   uint32       // of f
	at       int64        // offset of the end mark of f
	room     disk.Reserve // of f
	txid     uint64       // the last one passed to Open or Append
	gap      bool         // f cannot be appended to
	behind   bool         // transactions are missing, or may be after a power failure, until the next snapshot
	size     int64        // of the segments after the snapshot
	snapshot int64        // size of the snapshot in bytes; 0: none
	dirty    []*os.File   // not synced; Sync then closes all but f
	buf      []byte
}

// Options of Open.
type Options struct {
	// Dir is created with mode 0700.
	Dir string
	// Lineage identifies the database file.
	Lineage uint64
	// Boot is the ID of the host's current boot.
	Boot string
	// Reserve is the number of bytes kept allocated after the end of the log; 0: none.
	Reserve int64
	// MaxTransaction is the size of the largest logged transaction in bytes; 0: 256 MiB. A larger one leaves a gap.
	MaxTransaction int
}

// Open opens the log of a database whose last transaction is txid. whole is false if the log does not restore exactly that state: it then
// needs a snapshot, and Append fails before Rotate. l is usable after an error too. Errors: ErrUnavailable.
func Open(o Options, txid uint64) (l *Log, whole bool, err error) {
	o.MaxTransaction = cmp.Or(o.MaxTransaction, maxPayload)
	l = &Log{o: o, txid: txid, gap: true, behind: true}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return l, false, fmt.Errorf("make the directory of the log: %w: %w", err, errdefs.ErrUnavailable)
	}
	if err := l.removeUnfinished(); err != nil {
		return l, false, err
	}
	snapshots, segments, err := list(o.Dir)
	if err != nil || len(segments) == 0 || len(snapshots) == 0 {
		return l, false, err
	}
	l.number = segments[len(segments)-1]
	if snapshots[len(snapshots)-1] != l.number { // the snapshot of this segment was not finished
		return l, false, nil
	}
	whole, err = l.resume()
	return l, whole, err
}

// removeUnfinished removes snapshots whose writer died.
func (l *Log) removeUnfinished() error {
	names, err := filepath.Glob(filepath.Join(l.o.Dir, "*"+tmpSuffix))
	for _, name := range names {
		err = errors.Join(err, disk.Remove(name))
	}
	if err != nil {
		return fmt.Errorf("remove an unfinished snapshot: %w: %w", err, errdefs.ErrUnavailable)
	}
	return nil
}

// resume continues after the end mark of the newest segment, if the mark names the database's last transaction.
func (l *Log) resume() (whole bool, err error) {
	info, err := os.Stat(filepath.Join(l.o.Dir, snapshotName(l.number)))
	if err != nil {
		return false, fmt.Errorf("stat the snapshot: %w: %w", err, errdefs.ErrUnavailable)
	}
	f, err := os.OpenFile(filepath.Join(l.o.Dir, segmentName(l.number)), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, fmt.Errorf("open the log: %w: %w", err, errdefs.ErrUnavailable)
	}
	at, err := l.findEnd(f)
	if err != nil || at == 0 {
		return false, errors.Join(err, f.Close())
	}
	l.use(f, at)
	l.behind, l.snapshot, l.size = false, info.Size(), at
	if err := l.writeMark(kindEnd); err != nil {
		l.breakOff()
		return false, nil
	}
	return true, unix.Fdatasync(int(f.Fd())) // otherwise a power failure could leave the closed mark
}

// use makes f the segment that Append writes to; at is the offset of its end mark.
func (l *Log) use(f *os.File, at int64) {
	l.f, l.at, l.gap = f, at, false
	l.room = disk.Reserve{File: f, Bytes: l.o.Reserve, End: at}
}

// findEnd returns the offset of the end mark if f is complete up to the database's last transaction; else 0.
func (l *Log) findEnd(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	h, err := newReader(f, info.Size()).head(kindSegment)
	if errors.Is(err, errDamaged) || err == nil && h.lineage != l.o.Lineage {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	size := int64(len(appendMark(nil, kindEnd, mark{0, l.o.Boot})))
	at := info.Size() - size
	if at <= 0 {
		return 0, nil
	}
	kind, payload, err := newReader(io.NewSectionReader(f, at, size), size).next()
	if errors.Is(err, errDamaged) || err == nil && kind != kindEnd && kind != kindClosed {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	m, err := readMark(payload)
	if err != nil || m.txid != l.txid || kind == kindEnd && m.boot != l.o.Boot {
		return 0, nil
	}
	return at, nil
}

func (l *Log) writeMark(kind byte) error {
	_, err := l.f.WriteAt(appendMark(nil, kind, mark{l.txid, l.o.Boot}), l.at)
	return err
}

// Append logs the operations of the committed transaction txid. each calls its function with every operation, in order. After an error the
// log lacks transactions: a replay reports it as incomplete, and Append returns ErrGap until Rotate. Errors: ErrGap; the file's.
func (l *Log) Append(txid uint64, each func(func(Op))) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.txid
	l.txid = txid
	if l.gap {
		return ErrGap
	}
	b, at := begin(l.buf[:0], kindTxn)
	b = binary.AppendUvarint(binary.AppendUvarint(b, before), txid)
	each(func(op Op) { b = appendOp(b, op) })
	if len(b) > l.o.MaxTransaction {
		l.breakOff()
		return fmt.Errorf("append a transaction of %d bytes to the log: it is too large", len(b))
	}
	b = end(b, at)
	n := len(b)
	b = appendMark(b, kindEnd, mark{txid, l.o.Boot})
	if cap(b) <= keepBuffer {
		l.buf = b
	}
	l.room.Extend(l.at + int64(len(b)))
	err := fault.Around(fault.Log, "append", func() error {
		_, err := l.f.WriteAt(b, l.at)
		return err
	})
	if err != nil {
		l.breakOff()
		return fmt.Errorf("append to the log: %w", err)
	}
	l.at += int64(n)
	l.size += int64(n)
	l.soil(l.f)
	return nil
}

// breakOff destroys the end mark, because a log without one is not complete. On most file systems overwriting it needs no space; if that
// fails, breakOff truncates or removes the file, which needs none either.
func (l *Log) breakOff() {
	l.gap, l.behind = true, true
	size := len(appendMark(nil, kindEnd, mark{0, l.o.Boot}))
	if _, err := l.f.WriteAt(make([]byte, size), l.at); err == nil {
		return
	}
	if l.f.Truncate(l.at) != nil {
		_ = os.Remove(l.f.Name()) // nothing else is left to try; the caller reports the error of the append
	}
}

func (l *Log) soil(f *os.File) {
	if !slices.Contains(l.dirty, f) {
		l.dirty = append(l.dirty, f)
	}
}

// Rotate starts a new segment after the last transaction passed to Append, and returns its number. The log is complete again when
// WriteSnapshot has written a snapshot of that number, of that transaction or a later one.
func (l *Log) Rotate() (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	number, err := l.nextNumber()
	if err != nil {
		return 0, err
	}
	path := filepath.Join(l.o.Dir, segmentName(number))
	b := appendHead(nil, kindSegment, head{l.o.Lineage, l.txid})
	at := int64(len(b))
	var f *os.File
	err = fault.Around(fault.Log, "rotate", func() (err error) {
		if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600); err != nil {
			return err
		}
		_, err = f.Write(appendMark(b, kindEnd, mark{l.txid, l.o.Boot}))
		return err
	})
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.Close(), disk.Remove(path))
		}
		return 0, fmt.Errorf("begin a segment of the log: %w", err)
	}
	if l.f != nil {
		if !l.gap {
			_ = l.writeMark(kindNext) // a replay also continues after an end mark, but only this one shows the loss of the new segment
		}
		l.soil(l.f)
	}
	l.use(f, at)
	l.number = number
	l.size += at
	l.soil(f)
	return number, nil
}

// nextNumber returns a number above that of every file in the directory.
func (l *Log) nextNumber() (uint32, error) {
	if err := os.MkdirAll(l.o.Dir, 0o700); err != nil {
		return 0, fmt.Errorf("make the directory of the log: %w: %w", err, errdefs.ErrUnavailable)
	}
	snapshots, segments, err := list(l.o.Dir)
	if err != nil {
		return 0, err
	}
	return slices.Max(append(slices.Concat(snapshots, segments), l.number)) + 1, nil
}

// Sync makes all appended transactions survive a power failure. One caller at a time.
func (l *Log) Sync() error {
	l.mu.Lock()
	list, current := l.dirty, l.f
	l.dirty = nil
	l.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	var errs []error
	for _, f := range list {
		errs = append(errs, fault.Around(fault.Log, "sync", func() error { return unix.Fdatasync(int(f.Fd())) }))
		if f != current {
			errs = append(errs, f.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		l.mu.Lock()
		l.behind = true
		l.mu.Unlock()
		return fmt.Errorf("sync the log: %w", err)
	}
	return nil
}

// State describes a log.
type State struct {
	// Whole reports whether the log has every transaction passed to Append.
	Whole bool
	// Appendable reports whether Append can write; if not, it returns ErrGap.
	Appendable bool
	// Segments is the size in bytes of the segments after the newest snapshot, and Snapshot that of the snapshot; 0: there is none.
	Segments, Snapshot int64
}

// State returns the present state.
func (l *Log) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{!l.behind, !l.gap, l.size, l.snapshot}
}

// Close syncs the log and marks it as closed, so that it also counts as complete after a restart of the host. Do not append afterwards.
func (l *Log) Close() error {
	err := l.Sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return err
	}
	if err == nil && !l.gap {
		err = errors.Join(l.writeMark(kindClosed), unix.Fdatasync(int(l.f.Fd())))
	}
	if err = errors.Join(err, l.f.Close()); err != nil {
		return fmt.Errorf("close the log: %w", err)
	}
	return nil
}
