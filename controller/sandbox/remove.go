package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
)

const (
	// removePatience is how long a pass waits for a removal: an ordinary one ends within it and needs no second pass, and a long one does
	// not block a worker.
	removePatience = time.Second
	// fileRemovals is how many file trees are removed concurrently after each has had its first slice; containerRemovals is the same for
	// containers.
	fileRemovals, containerRemovals = 2, 8
	// removalLimit bounds one operation; the next pass starts another, which has less left to remove.
	removalLimit = 5 * time.Minute
)

// pool bounds the concurrency of an operation.
type pool chan struct{}

// do calls fn when the pool has room. Errors: that of ctx, or of fn.
func (p pool) do(ctx context.Context, fn func() error) error {
	select {
	case p <- struct{}{}:
		defer func() { <-p }()
		return fn()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeFiles removes the files of a sandbox. A container may leave millions of files in any layout, so they are removed in slices, in turn
// with those of other sandboxes.
func (p *pass) removeFiles(ctx context.Context, s plan.Step, slice func(sandboxID string) error) error {
	id := p.rec.ID
	ended, err := p.ops.Await(ctx, operation(id, s.Kind, ""), removePatience, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, removalLimit)
		defer cancel()
		removed := 0
		err := slice(id)
		for ctx.Err() == nil {
			unfinished, ok := errors.AsType[*execjournal.UnfinishedError](err)
			if !ok {
				return err
			}
			removed += unfinished.Removed
			p.scratch.setStatus(id, removing(removed))
			err = p.removals.files.do(ctx, func() error { return slice(id) })
		}
		return nil // the next pass continues
	})
	if err == nil && !ended {
		return &waitingError{removing(0)}
	}
	return err
}

func removing(files int) string {
	if files == 0 {
		return "removing its files"
	}
	return fmt.Sprintf("removing its files: %d so far", files)
}

// removeContainer makes the engine kill and remove a container, which takes minutes if its writable layer has very many files.
func (p *pass) removeContainer(ctx context.Context, s plan.Step) error {
	ended, err := p.ops.Await(ctx, operation(p.rec.ID, s.Kind, s.ID), removePatience, func(ctx context.Context) error {
		return p.removals.containers.do(ctx, func() error {
			err := p.audited(s, s.ID, func(ctx context.Context) error { return p.o.Engine.RemoveContainer(ctx, s.ID) })(ctx)
			if err == nil && s.Reason == plan.BecauseOrphan {
				p.o.Metrics.OrphanRemoved()
			}
			return err
		})
	})
	if err == nil && !ended {
		return &waitingError{"removing a container"}
	}
	return err
}

// removals are the pools of removals; they use no workers of the queues.
type removals struct{ files, containers pool }
