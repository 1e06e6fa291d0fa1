package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
)

const (
	// snapshotTimeout limits how long a snapshot holds its transaction; enough for some 10 GB to a slow disk.
	snapshotTimeout = 5 * time.Minute
	// snapshotReserve bytes of the disk stay free for the writer. 16 MiB is the step by which bbolt grows its file.
	snapshotReserve = 16 << 20
)

// Snapshot writes a copy of the file, as of one durable commit, to f, which should be empty and on a local disk: during the copy, bbolt
// cannot reuse freed pages. The copy is a complete file that Open accepts. Snapshot neither syncs nor closes f. It returns the schema
// version of the copy. Errors: Refusal BACKUP_NO_SPACE; ctx's; ErrUnavailable, also when the copy took longer than 5 minutes. After an
// error f is incomplete.
func (s *Store) Snapshot(ctx context.Context, f *os.File) (schema uint64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotTimeout,
		fmt.Errorf("copy the store: it took longer than %s: %w", snapshotTimeout, errdefs.ErrUnavailable))
	defer cancel()
	return viewed(ctx, s, func(tx *bolt.Tx) (uint64, error) {
		if err := checkRoom(f, tx.Size()); err != nil {
			return 0, err
		}
		schema, err := decodeInt(get(tx, bucketMeta, []byte(keySchema)))
		if err != nil {
			return 0, fmt.Errorf("read schema version: %w: %w", err, errdefs.ErrDataLoss)
		}
		_, err = tx.WriteTo(&untilDone{ctx, f})
		return schema, copied(err, tx.Size())
	})
}

// copied returns the error of a copy of need bytes that ended with err. A quota shows only in the write: checkRoom does not see it.
func copied(err error, need int64) error {
	if isNoSpace(err) {
		return noRoom(need, 0)
	}
	return err
}

// checkRoom refuses a copy of need bytes that does not fit on the file system of f.
func checkRoom(f *os.File, need int64) error {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("look for free space: %w: %w", err, errdefs.ErrUnavailable)
	}
	free := int64(min(st.Bavail, 1<<40)) * st.Bsize
	if free < need+snapshotReserve {
		return noRoom(need+snapshotReserve, free)
	}
	return nil
}

func noRoom(need, free int64) error {
	const mib = 1 << 20
	return &Refusal{
		Reason: "BACKUP_NO_SPACE", Class: errdefs.ErrUnavailable,
		Message: fmt.Sprintf("a backup needs %d MiB of free space in the data directory while it is made, and there are %d MiB; make room and try again",
			(need+mib-1)/mib, free/mib),
	}
}

// untilDone is a writer that returns an error once ctx has ended. It has only Write, so that io.Copy copies in small steps.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u *untilDone) Write(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.w.Write(p)
}

// ExecIDs returns the sorted IDs of the execs of a sandbox, active or ended, that sort after the given one, at most 256. An unknown
// sandbox has none. Errors: ErrUnavailable.
func (s *Store) ExecIDs(ctx context.Context, sandboxID, after string) ([]string, error) {
	return viewed(ctx, s, func(tx *bolt.Tx) (ids []string, err error) {
		for k := range records(tx, prefixExecConfig+sandboxID, []byte(after)) {
			if len(ids) == maxRead {
				break
			}
			if string(k) != after {
				ids = append(ids, string(k))
			}
		}
		return ids, nil
	})
}
