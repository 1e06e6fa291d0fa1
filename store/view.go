package store

import (
	"context"
	"errors"
	"fmt"

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

// tryView returns a channel to wait for if the file names a transaction that is not durable yet.
func (s *Store) tryView(fn func(tx *bolt.Tx) error) (wait <-chan struct{}, err error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, readError(err)
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	ok, moved, down := s.durable.reached(tx.ID())
	switch {
	case ok:
		return nil, fn(tx)
	case down != nil:
		return nil, down
	}
	return moved, nil
}

func readError(err error) error {
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return errClosed()
	}
	return fmt.Errorf("begin read: %w: %w", err, errdefs.ErrUnavailable)
}
