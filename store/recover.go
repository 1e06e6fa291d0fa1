package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"github.com/agbox/agbox/internal/host/disk"
	"github.com/agbox/agbox/store/internal/txlog"
)

// Recovery describes the content of a lost database's log.
type Recovery struct {
	// Sandboxes is the number of live sandboxes.
	Sandboxes int
	// Agents is the number of agents.
	Agents int
	// Missing says why the newest transactions may be missing; "": none is, and the database is complete. Otherwise the live sandboxes are
	// hidden until the daemon has observed the engine: see Store.Unproven.
	Missing string
}

// Recover creates the database at o.Path from its log; there must be no file of that name. A crash leaves no file, and Recover may be
// repeated. Errors: ErrNotFound when there is no usable log; ErrAlreadyExists when there is a file; ErrFailedPrecondition when a newer
// agboxd wrote the log; ErrUnavailable when a process has the database open, or there is no space.
func Recover(ctx context.Context, o Options) (r Recovery, err error) {
	o = o.withDefaults()
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		return r, fmt.Errorf("make store directory: %w: %w", err, errdefs.ErrUnavailable)
	}
	mark, err := lockMarker(ctx, o.Path+markerSuffix, o.LockTimeout)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, mark.release()) }()
	if _, err := os.Lstat(o.Path); !errors.Is(err, os.ErrNotExist) {
		return r, fmt.Errorf("recover %s: there is a file of that name (%w): %w", o.Path, err, errdefs.ErrAlreadyExists)
	}
	tmp := o.Path + ".replay"
	if r, err = replayTo(o, tmp); err != nil {
		if errdefs.IsNotFound(err) {
			err = errors.Join(err, keepLog(LogDir(o.Path), "damaged", o.Now()))
		}
		return r, errors.Join(err, disk.Remove(tmp))
	}
	if err := errors.Join(CheckFile(tmp), mark.set(markOpen)); err != nil {
		return r, fmt.Errorf("check the replayed database: %w", err)
	}
	if err := os.Rename(tmp, o.Path); err != nil {
		return r, fmt.Errorf("put the replayed database in place: %w: %w", err, errdefs.ErrUnavailable)
	}
	return r, disk.Sync(filepath.Dir(o.Path))
}

// Preview creates at path to the database that Recover would create, returns its content with the records of the live sandboxes, and
// removes it. The daemon may run. Errors: as Recover.
func Preview(o Options, to string) (r Recovery, list []Rebuilt, err error) {
	o = o.withDefaults()
	defer func() { err = errors.Join(err, disk.Remove(to)) }()
	if r, err = replayTo(o, to); err != nil {
		return r, nil, err
	}
	err = viewFile(to, func(tx *bolt.Tx) error {
		l := loader{tx, func(Corrupt) {}}
		for _, id := range liveIn(tx) {
			if b, ok := l.rebuilt(id, instanceIn(tx)); ok {
				list = append(list, b)
			}
		}
		return nil
	})
	return r, list, err
}

// keepLog renames a log to dir.why-<UTC time>, because the next log would remove its files.
func keepLog(dir, why string, now time.Time) error {
	if snapshots, err := txlog.Snapshots(dir); err != nil || len(snapshots) == 0 {
		return err
	}
	if err := os.Rename(dir, dir+"."+why+"-"+now.UTC().Format("20060102T150405.000000000Z")); err != nil {
		return fmt.Errorf("keep the log: %w: %w", err, errdefs.ErrUnavailable)
	}
	return nil
}

// replayTo creates a database file from the newest usable snapshot.
func replayTo(o Options, to string) (Recovery, error) {
	dir := LogDir(o.Path)
	snapshots, err := txlog.Snapshots(dir)
	if err != nil {
		return Recovery{}, err
	}
	for _, n := range snapshots {
		r, err := replayOne(o, dir, n, to)
		if err == nil || !errdefs.IsDataLoss(err) {
			return r, err
		}
		o.Logger.Error("a snapshot of the lost database can't be used", "path", dir, "number", n, "err", err)
	}
	return Recovery{}, fmt.Errorf("there is no usable log in %s: %w", dir, errdefs.ErrNotFound)
}

func replayOne(o Options, dir string, n uint32, to string) (r Recovery, err error) {
	if err := disk.Remove(to); err != nil {
		return r, fmt.Errorf("remove an unfinished replay: %w: %w", err, errdefs.ErrUnavailable)
	}
	// Not synced before the end: an unfinished file is useless.
	db, err := bolt.Open(to, 0o600, &bolt.Options{NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return r, openError(to, err)
	}
	err = r.replay(db, o, dir, n)
	if err == nil {
		err = db.Sync()
	}
	if err = errors.Join(err, db.Close()); err != nil && !errdefs.IsDataLoss(err) && !errdefs.IsFailedPrecondition(err) {
		err = fmt.Errorf("%w: %w", classify(err), errdefs.ErrUnavailable)
	}
	if err != nil {
		return r, fmt.Errorf("replay the log: %w", err)
	}
	return r, nil
}

// replayBytes limits the size of one transaction of a replay.
const replayBytes = 16 << 20

// replay applies the log to an empty database.
func (r *Recovery) replay(db *bolt.DB, o Options, dir string, n uint32) error {
	err := bulkUpdate(db, func(put func(op) error) error {
		done, err := txlog.Replay(dir, n, bootID(), func(ops []op) error {
			for _, in := range ops {
				in.Value = bytes.Clone(in.Value)
				if err := put(in); err != nil {
					return err
				}
			}
			return nil
		})
		r.Missing = done.Missing
		return err
	})
	if err != nil {
		return err
	}
	return db.Update(func(tx *bolt.Tx) error { return r.finish(tx, o) })
}

// bulkUpdate calls fn with a function that writes to a database that no one reads, in transactions of bounded size.
func bulkUpdate(db *bolt.DB, fn func(put func(op) error) error) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	size := 0
	err = fn(func(in op) error {
		if err := apply(tx, in); err != nil {
			return fmt.Errorf("write to bucket %s: %w", in.Bucket, err)
		}
		if size += len(in.Key) + len(in.Value); size < replayBytes {
			return nil
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		next, err := db.Begin(true)
		if err == nil {
			tx, size = next, 0
		}
		return err
	})
	if err != nil {
		return err
	}
	return tx.Commit()
}

// finish gives the file a new lineage. If transactions may be missing, it marks the rebuild as pending and the live sandboxes as unproven.
// Errors: ErrDataLoss when it is not a database of agboxd; ErrFailedPrecondition.
func (r *Recovery) finish(tx *bolt.Tx, o Options) error {
	schema, err := decodeInt(get(tx, bucketMeta, []byte(keySchema)))
	if err != nil || instanceIn(tx) == "" {
		return fmt.Errorf("it has no schema version or instance: %w", errdefs.ErrDataLoss)
	}
	if err := CheckSchema(schema); err != nil {
		return err
	}
	live := liveIn(tx)
	r.Sandboxes = len(live)
	for range records(tx, bucketAgentDesired, nil) {
		r.Agents++
	}
	meta := tx.Bucket([]byte(bucketMeta))
	if err := meta.Put([]byte(keyLineage), newLineage()); err != nil || r.Missing == "" {
		return err
	}
	now := encodeInt(uint64(o.Now().UnixNano()))
	if err := markRebuild(meta, now); err != nil {
		return err
	}
	l := loader{tx, func(Corrupt) {}}
	for _, id := range live {
		if _, ok := l.rebuilt(id, ""); !ok {
			continue // Open quarantines it
		}
		if err := apply(tx, putOp(bucketUnproven, []byte(id), now)); err != nil {
			return err
		}
	}
	return nil
}
