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
	// removePatience is how long a pass waits for a removal: an ordinary one ends within it and costs no second pass, and one that
	// takes long holds no worker.
	removePatience = time.Second
	// fileRemovals is how many trees are removed at the same time once each has had its first slice, and containerRemovals how many
	// containers.
	fileRemovals, containerRemovals = 2, 8
	// removalLimit bounds one operation; the next pass starts another one, which has less to do.
	removalLimit = 5 * time.Minute
)

// pool bounds how many do something at the same time.
type pool chan struct{}

// do calls fn when there is room. Errors: that of ctx, or of fn.
func (p pool) do(ctx context.Context, fn func() error) error {
	select {
	case p <- struct{}{}:
		defer func() { <-p }()
		return fn()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeFiles removes the files of a sandbox. What a container left may be millions of files in any shape: they go in slices,
// in turn with those of other sandboxes.
func (p *pass) removeFiles(ctx context.Context, s plan.Step, slice func(sandboxID string) error) error {
	id := p.rec.ID
	ended, err := p.ops.Await(ctx, operation(id, s.Kind, ""), removePatience, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, removalLimit)
		defer cancel()
		removed := 0
		err := slice(id)
		for ctx.Err() == nil {
			var unfinished *execjournal.UnfinishedError
			if !errors.As(err, &unfinished) {
				return err
			}
			removed += unfinished.Removed
			p.scratch.setStatus(id, removing(removed))
			err = p.removals.files.do(ctx, func() error { return slice(id) })
		}
		return nil // the next pass goes on
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

// removeContainer has the engine kill and remove a container, which takes minutes where its writable layer has very many files.
func (p *pass) removeContainer(ctx context.Context, s plan.Step) error {
	ended, err := p.ops.Await(ctx, operation(p.rec.ID, s.Kind, s.ID), removePatience, func(ctx context.Context) error {
		return p.removals.containers.do(ctx, func() error {
			begun := time.Now()
			err := p.o.Engine.RemoveContainer(ctx, s.ID)
			p.audit(s, s.ID, time.Since(begun), err)
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

// removals are the pools of removals, which take no worker away from anything else.
type removals struct{ files, containers pool }

func newRemovals() removals {
	return removals{files: make(pool, fileRemovals), containers: make(pool, containerRemovals)}
}
