package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	"github.com/agbox/agbox/internal/backoff"
	"github.com/agbox/agbox/store/internal/txlog"
)

// If the database file is lost, it is rebuilt from the log beside it: see package txlog and decision 0020. The writer appends each group
// after its commit and before it answers the callers. The keeper does all work that may wait for a disk.

const (
	// logSyncDelay is how much a power failure can lose if it also destroys the database file.
	logSyncDelay = 500 * time.Millisecond
	// logMaxAge of a snapshot. The previous snapshot is kept beside the newest one, so purged data leaves the log after twice this time.
	logMaxAge = 11 * time.Hour
	// minLogBytes is the size below which a log is not compacted; above, it is compacted when it is larger than its snapshot.
	minLogBytes = 8 << 20
	// maxLogReserve limits the space kept allocated after the log.
	maxLogReserve = 1 << 20
)

// logRetry is the pause after failed snapshots.
var logRetry = backoff.Backoff{Base: time.Second, Max: time.Minute}

// LogDir returns the log directory of the database at path.
func LogDir(path string) string { return filepath.Join(filepath.Dir(path), "log") }

// keeper owns the log. Its goroutine syncs the log and writes snapshots.
type keeper struct {
	s    *Store
	log  *txlog.Log
	wake chan struct{} // data to sync, or a snapshot is due
	// begun is the number of a segment whose snapshot is not written yet; 0: none.
	begun uint32
	ready chan struct{} // closed when the log is complete for the first time

	stop context.CancelFunc
	done chan struct{}
}

// openLog opens the log of a database before its writer starts. A log that cannot be written does not keep the store from opening.
func (s *Store) openLog() error {
	txid := s.durable.Load().txid
	lineage, err := s.lineage()
	if err != nil {
		return err
	}
	log, whole, err := txlog.Open(txlog.Options{
		Dir: LogDir(s.o.Path), Lineage: lineage, Boot: bootID(), Reserve: min(s.o.ReserveBytes, maxLogReserve), MaxTransaction: s.o.maxLogged,
	}, uint64(txid))
	s.keeper = &keeper{s: s, log: log, wake: make(chan struct{}, 1), ready: make(chan struct{}), done: make(chan struct{})}
	if whole && err == nil {
		close(s.keeper.ready)
		return nil
	}
	if err == nil {
		s.keeper.begun, err = log.Rotate()
	}
	if err != nil {
		s.keeper.failed("the log can't be written; the database is its own only copy until it can", err)
	}
	return nil
}

// lineage reads the lineage that identifies this file in its log; 0 in a file created before there was a log.
func (s *Store) lineage() (lineage uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) (err error) {
		if v := get(tx, bucketMeta, []byte(keyLineage)); v != nil {
			lineage, err = decodeInt(v)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the lineage of %s: %w", s.o.Path, err)
	}
	return lineage, nil
}

// newLineage returns a random lineage for a new file.
func newLineage() []byte {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // it never fails
	return encodeInt(binary.BigEndian.Uint64(b) | 1)
}

// bootID returns the host's boot ID; if it cannot be read, a random one that no other boot has.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(b)); err == nil && id != "" {
		return id
	}
	return rand.Text()
}

// append logs a committed group. After an error the keeper writes a snapshot.
func (k *keeper) append(txid int, accepted []*txn) {
	err := k.log.Append(uint64(txid), func(yield func(op)) {
		for _, t := range accepted {
			for _, o := range t.ops {
				yield(o)
			}
		}
	})
	if err != nil && !errors.Is(err, txlog.ErrGap) {
		k.failed("a transaction is not in the log; a new snapshot takes its place", err)
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *keeper) failed(what string, err error) {
	k.s.o.LogFailed(err)
	k.s.o.Logger.Error(what, "path", LogDir(k.s.o.Path), "err", err)
}

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.stop = cancel
	go k.run(ctx)
}

// close waits for the keeper's goroutine, which the caller has stopped like the writer, and closes the log.
func (k *keeper) close() error {
	<-k.done
	return k.log.Close()
}

// run syncs appended transactions within logSyncDelay, and writes a snapshot when one is due.
func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	taken := txlog.SnapshotTime(LogDir(k.s.o.Path)) // zero makes a snapshot due
	var sync, retry, aged <-chan time.Time
	failures := uint32(0)
	for {
		if retry == nil && k.due(taken) {
			if err := k.snapshot(ctx); err == nil {
				taken, failures = time.Now(), 0
			} else {
				if ctx.Err() != nil {
					return
				}
				k.failed("no snapshot of the database; it is tried again", err)
				failures++
				retry = time.After(logRetry.After(failures))
			}
		}
		if aged == nil && retry == nil {
			aged = time.After(logMaxAge - min(time.Since(taken), logMaxAge))
		}
		select {
		case <-ctx.Done():
			return
		case <-aged:
			aged = nil
		case <-k.wake:
			if sync == nil {
				sync = time.After(logSyncDelay)
			}
		case <-sync:
			sync = nil
			if err := k.log.Sync(); err != nil {
				k.failed("the log can't be synced", err)
			}
		case <-retry:
			retry = nil
		}
	}
}

// due reports whether a snapshot is due: the log is incomplete, large or old.
func (k *keeper) due(taken time.Time) bool {
	l := k.log.State()
	return !l.Whole || l.Segments > max(k.s.o.minLogBytes, l.Snapshot) || time.Since(taken) >= logMaxAge
}

// snapshot writes the snapshot of a new segment, or of the one that Open started.
func (k *keeper) snapshot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, snapshotTimeout, fmt.Errorf("it took longer than %s: %w", snapshotTimeout, errdefs.ErrUnavailable))
	defer cancel()
	if why := k.s.o.NoRoom(); why != "" {
		return fmt.Errorf("%s: %w", why, errdefs.ErrUnavailable)
	}
	if k.begun == 0 || !k.log.State().Appendable {
		err := k.s.update(ctx, func(*txn) (err error) { // between two transactions
			k.begun, err = k.log.Rotate()
			return err
		})
		if err != nil {
			return err
		}
	}
	err := k.s.view(ctx, func(tx *bolt.Tx) error {
		return k.log.WriteSnapshot(k.begun, uint64(tx.ID()), func(yield func(op) error) error {
			return eachOp(ctx, tx, yield)
		})
	})
	if err != nil {
		return err
	}
	k.begun = 0
	if !k.log.State().Whole {
		return fmt.Errorf("an append has failed meanwhile: %w", errdefs.ErrUnavailable)
	}
	select {
	case <-k.ready:
	default:
		close(k.ready)
	}
	return nil
}

// eachOp yields the operations that create the content of tx. It returns an error for a nested bucket or one with a sequence, which the
// schema does not have.
func eachOp(ctx context.Context, tx *bolt.Tx, yield func(op) error) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		bucket := string(name)
		if b.Sequence() != 0 {
			return fmt.Errorf("bucket %s has a sequence, which the log can't hold", bucket)
		}
		if err := yield(op{Kind: txlog.MakeBucket, Bucket: bucket}); err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case v == nil:
				return fmt.Errorf("bucket %s has a bucket in it, which the log can't hold", bucket)
			}
			return yield(putOp(bucket, k, v))
		})
	})
}

// LogReady returns a channel that is closed when the log is first complete after Open.
func (s *Store) LogReady() <-chan struct{} { return s.keeper.ready }

// LogWhole reports whether the log is complete; if not, it is after the next snapshot. From memory.
func (s *Store) LogWhole() bool { return s.keeper.log.State().Whole }
