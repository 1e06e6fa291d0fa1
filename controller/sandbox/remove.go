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
	// maxFileRemovals is how many file trees are removed concurrently after each has had its first slice; maxContainerRemovals is the same
	// for containers.
	maxFileRemovals, maxContainerRemovals = 2, 8
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
	return p.background(ctx, s, "", removePatience, removing(0), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, removalLimit)
		defer cancel()
		removed := 0
		err := slice(id)
		for ctx.Err() == nil {
			unfinished, ok := errors.AsType[*execjournal.UnfinishedError](err)
			if !ok {
				return p.o.MakeRoom(err)
			}
			removed += unfinished.Removed
			p.scratch.setStatus(id, removing(removed))
			err = p.fileRemovals.do(ctx, func() error { return slice(id) })
		}
		return nil // the next pass continues
	})
}

func removing(files int) string {
	if files == 0 {
		return "removing its files"
	}
	return fmt.Sprintf("removing its files: %d so far", files)
}

// removeContainer makes the engine kill and remove a container, which takes minutes if its writable layer has very many files.
func (p *pass) removeContainer(ctx context.Context, s plan.Step) error {
	return p.background(ctx, s, s.ID, removePatience, "removing a container", func(ctx context.Context) error {
		return p.containerRemovals.do(ctx, func() error {
			return p.audited(s, s.ID, func(ctx context.Context) error { return p.removeWithOutputKept(ctx, s) })(ctx)
		})
	})
}
