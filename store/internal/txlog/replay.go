package txlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/host/disk"
)

// Result is the result of a replay.
type Result struct {
	// Lineage identifies the logged database, and Txid is the last applied transaction.
	Lineage, Txid uint64
	// Missing says why transactions after Txid may be missing; empty: none is.
	Missing string
}

// Snapshots returns the numbers of the snapshots in dir, newest first. A missing directory has none.
func Snapshots(dir string) ([]uint32, error) {
	list, _, err := list(dir)
	if err != nil {
		return nil, err
	}
	slices.Reverse(list)
	return list, nil
}

// SnapshotTime returns the time at which the newest snapshot was written; zero: there is none.
func SnapshotTime(dir string) time.Time {
	list, err := Snapshots(dir)
	if err != nil || len(list) == 0 {
		return time.Time{}
	}
	info, err := os.Stat(filepath.Join(dir, snapshotName(list[0])))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Replay calls apply with the content of snapshot n and then with every transaction that follows it without a gap, in order, in batches of
// any size. The slice passed to apply is valid only during the call. boot is the ID of the host's current boot. Errors: ErrDataLoss when
// the snapshot is damaged (discard what was applied); ErrFailedPrecondition when a newer agboxd wrote it; apply's; the files'.
func Replay(dir string, n uint32, boot string, apply func([]Op) error) (Result, error) {
	h, err := replaySnapshot(filepath.Join(dir, snapshotName(n)), apply)
	if err != nil {
		return Result{}, fmt.Errorf("replay snapshot %d: %w", n, err)
	}
	c := chain{lineage: h.lineage, covered: h.txid, apply: apply}
	last, err := c.segments(dir, n)
	if err != nil && !errors.Is(err, errDamaged) {
		return Result{}, fmt.Errorf("replay the log: %w", err)
	}
	r := Result{Lineage: h.lineage, Txid: max(c.txid, h.txid)}
	switch {
	case err != nil:
		r.Missing = err.Error()
	case c.txid < h.txid:
		r.Missing = fmt.Sprintf("the log ends with transaction %d, before the snapshot", c.txid)
	case last.kind != kindClosed && last.boot != boot:
		r.Missing = "the host was started again, and the log was not closed before"
	}
	return r, nil
}

func replaySnapshot(path string, apply func([]Op) error) (h head, err error) {
	f, r, err := openFile(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	if h, err = r.head(kindSnapshot); err != nil {
		return h, err
	}
	for n := uint64(0); ; {
		kind, payload, err := r.next()
		if errors.Is(err, io.EOF) {
			err = damaged("it has no end")
		}
		if err != nil {
			return h, err
		}
		c := cursor{b: payload}
		if kind == kindWhole {
			if want := c.uint(); c.bad || want != n || r.left != 0 {
				return h, damaged("it has %d operations", n)
			}
			return h, nil
		}
		if kind != kindData {
			return h, damaged("a frame %q", kind)
		}
		ops, err := c.ops()
		if err != nil {
			return h, err
		}
		n += uint64(len(ops))
		if err := apply(ops); err != nil {
			return h, err
		}
	}
}

func openFile(path string) (*os.File, *reader, error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = damaged("%s is missing", filepath.Base(path))
		}
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, newReader(f, info.Size()), nil
}

func (r *reader) head(want byte) (head, error) {
	kind, payload, err := r.next()
	switch {
	case errors.Is(err, io.EOF):
		return head{}, damaged("it is empty")
	case err != nil:
		return head{}, err
	case kind != want:
		return head{}, damaged("it begins with a frame %q", kind)
	}
	return readHead(payload)
}

// endMark is the last frame of a segment.
type endMark struct {
	mark
	kind byte
}

// chain replays the transactions from segment to segment.
type chain struct {
	lineage uint64
	covered uint64 // by the snapshot
	txid    uint64 // of the newest transaction that was read
	apply   func([]Op) error
}

// segments reads segment n and all later ones. errDamaged: some logged transactions are unreachable.
func (c *chain) segments(dir string, n uint32) (last endMark, err error) {
	_, all, err := list(dir)
	if err != nil {
		return last, err
	}
	all = slices.DeleteFunc(all, func(s uint32) bool { return s < n })
	if len(all) == 0 || all[0] != n {
		return last, damaged("there is no segment behind the snapshot")
	}
	for i, s := range all {
		if last, err = c.segment(filepath.Join(dir, segmentName(s)), i == 0); err != nil {
			return last, fmt.Errorf("segment %d: %w", s, err)
		}
	}
	if last.kind == kindNext {
		return last, damaged("the last segment is missing")
	}
	return last, nil
}

func (c *chain) segment(path string, first bool) (last endMark, err error) {
	f, r, err := openFile(path)
	if err != nil {
		return last, err
	}
	defer f.Close()
	h, err := r.head(kindSegment)
	switch {
	case err != nil:
		return last, err
	case h.lineage != c.lineage:
		return last, damaged("it is of another database file")
	case first && h.txid > c.covered, !first && h.txid != c.txid:
		return last, damaged("it begins behind transaction %d", h.txid)
	}
	c.txid = h.txid
	for {
		kind, payload, err := r.next()
		if errors.Is(err, io.EOF) {
			err = damaged("it has no end mark")
		}
		if err != nil {
			return last, err
		}
		switch kind {
		case kindTxn:
			if err := c.transaction(payload); err != nil {
				return last, err
			}
		case kindEnd, kindClosed, kindNext:
			m, err := readMark(payload)
			if err == nil && (m.txid != c.txid || r.left != 0) {
				err = damaged("its end mark is not where it should be")
			}
			return endMark{m, kind}, err
		default:
			return last, damaged("a frame %q", kind)
		}
	}
}

// transaction applies a transaction unless the snapshot covers it.
func (c *chain) transaction(payload []byte) error {
	p := cursor{b: payload}
	before, txid := p.uint(), p.uint()
	ops, err := p.ops()
	switch {
	case err != nil:
		return err
	case before != c.txid, txid <= before, before < c.covered && txid > c.covered:
		return damaged("transaction %d follows %d, and says %d", txid, c.txid, before)
	}
	c.txid = txid
	if txid <= c.covered {
		return nil
	}
	return c.apply(ops)
}

// Remove deletes every file of the log. Without a log it does nothing.
func Remove(dir string) error {
	snapshots, segments, err := list(dir)
	if err != nil {
		return err
	}
	// The snapshots are removed first: a snapshot that lost its segments in a crash would be replayed as an incomplete log.
	err = errors.Join(removeFiles(dir, snapshots, snapshotName), removeFiles(dir, segments, segmentName))
	if err != nil || len(snapshots)+len(segments) == 0 {
		return err
	}
	return disk.Sync(dir)
}

func removeFiles(dir string, numbers []uint32, name func(uint32) string) (err error) {
	for _, n := range numbers {
		err = errors.Join(err, disk.Remove(filepath.Join(dir, name(n))))
	}
	return err
}

// list returns the sorted numbers of the files in dir.
func list(dir string) (snapshots, segments []uint32, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the log: %w: %w", err, errdefs.ErrUnavailable)
	}
	for _, e := range entries {
		var n uint32
		if _, err := fmt.Sscanf(e.Name(), snapshotFormat, &n); err == nil && e.Name() == snapshotName(n) {
			snapshots = append(snapshots, n)
		}
		if _, err := fmt.Sscanf(e.Name(), segmentFormat, &n); err == nil && e.Name() == segmentName(n) {
			segments = append(segments, n)
		}
	}
	return snapshots, segments, nil // ReadDir sorts, and the numbers have a fixed width
}

const (
	snapshotFormat = "snapshot-%08x"
	segmentFormat  = "segment-%08x"
	tmpSuffix      = ".tmp"
)

func snapshotName(n uint32) string { return fmt.Sprintf(snapshotFormat, n) }
func segmentName(n uint32) string  { return fmt.Sprintf(segmentFormat, n) }
