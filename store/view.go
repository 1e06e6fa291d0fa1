package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// maxRead limits what one read transaction copies: an open reader blocks the writer's next remap, and keeps freed pages from being reused.
const maxRead = 256

// view runs fn in a read transaction of a durable commit and closes it. fn must copy what it needs and must not block. If the newest
// commit is not synced yet, view waits for it and retries.
func (s *Store) view(ctx context.Context, fn func(tx *bolt.Tx) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		wait, err := s.tryView(fn)
		if wait == nil {
			return err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// viewed is view for a function with a result, which is the zero value after an error.
func viewed[T any](ctx context.Context, s *Store, fn func(tx *bolt.Tx) (T, error)) (T, error) {
	var out, zero T
	err := s.view(ctx, func(tx *bolt.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	if err != nil {
		return zero, err
	}
	return out, nil
}

// tryView returns a channel to wait for if the file names a transaction that is not durable yet.
func (s *Store) tryView(fn func(tx *bolt.Tx) error) (wait <-chan struct{}, err error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	switch d := s.durable.Load(); {
	case tx.ID() <= d.txid:
		return nil, fn(tx)
	case d.down != nil:
		return nil, d.down
	default:
		return d.next, nil
	}
}

func readError(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return errClosed()
	}
	return fmt.Errorf("begin read: %w: %w", err, errdefs.ErrUnavailable)
}

// records yields the records of a bucket with a key of at least from, in order; nil: all. They are valid until the next write of tx.
func records(tx *bolt.Tx, bucket string, from []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return
		}
		c := b.Cursor()
		for k, v := c.Seek(from); k != nil && yield(k, v); k, v = c.Next() {
		}
	}
}

// recordsBack yields the records of a bucket whose numeric key is below before, from the newest to the oldest.
func recordsBack(tx *bolt.Tx, bucket string, before uint64) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return
		}
		c := b.Cursor()
		step := c.Prev
		if k, _ := c.Seek(encodeInt(before)); k == nil {
			step = c.Last
		}
		for k, v := step(); k != nil && yield(k, v); k, v = c.Prev() {
		}
	}
}

// lastKey returns the last key of a bucket; nil: none.
func lastKey(tx *bolt.Tx, bucket string) []byte {
	for k := range recordsBack(tx, bucket, noSequence) {
		return k
	}
	return nil
}

// page returns at most limit or 256 records that follow number after (limit < 1: 256), and fewer if they would exceed maxBytes. A single
// larger record is returned alone. A record that read cannot decode ends the page; page returns its error if there is no record before it.
func page[R any](tx *bolt.Tx, bucket string, after uint64, limit, maxBytes int, read decoder[R]) (list []R, err error) {
	if after == noSequence {
		return nil, nil
	}
	if limit < 1 || limit > maxRead {
		limit = maxRead
	}
	bytes := 0
	for k, v := range records(tx, bucket, encodeInt(after+1)) {
		if bytes += len(v); len(list) == limit || bytes > maxBytes && len(list) > 0 {
			break
		}
		r, err := read(k, v)
		if err != nil && len(list) > 0 {
			break // the next page returns the error
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}
