package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	execsInARow  = 200 // of each side
	execsAtOnce  = 200 // of each side
	execsClients = 16  // that share them
)

// measureExecs measures execs in one sandbox: one after another, and by many clients at once.
func measureExecs(ctx context.Context, d *daemon, b *bare) ([]row, error) {
	id := fmt.Sprintf("bench-%d-execs", os.Getpid())
	for _, s := range []side{d, b} {
		if err := s.create(ctx, id); err != nil {
			return nil, err
		}
		defer func() { _ = s.remove(context.WithoutCancel(ctx), id) }()
	}
	row1 := row{what: "exec true, in a row", most: mostExec}
	for i := range execsInARow {
		progress("exec %d of %d", i+1, execsInARow)
		for _, s := range []side{d, b} {
			took, err := operation{s.exec, 1}.measure(ctx, id)
			if err != nil {
				return nil, err
			}
			row1.add(s == side(d), took)
		}
	}
	progressEnds()
	row2 := row{what: fmt.Sprintf("exec true, %d at once, time of each", execsClients), most: mostExec}
	for _, s := range []side{d, b} {
		took, err := atOnce(ctx, s, id)
		if err != nil {
			return nil, err
		}
		row2.add(s == side(d), []time.Duration{took})
	}
	return []row{row1, row2}, nil
}

func (r *row) add(ours bool, times []time.Duration) {
	if ours {
		r.agbox = append(r.agbox, times...)
	} else {
		r.bare = append(r.bare, times...)
	}
}

// atOnce returns the time in which execsClients clients make execsAtOnce execs, divided by their number.
func atOnce(ctx context.Context, s side, id string) (time.Duration, error) {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(execsClients)
	begin := time.Now()
	for range execsAtOnce {
		g.Go(func() error { return s.exec(ctx, id) })
	}
	err := g.Wait()
	return time.Since(begin) / execsAtOnce, err
}
