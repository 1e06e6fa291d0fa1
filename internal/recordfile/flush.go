package recordfile

import (
	"context"
	"maps"
	"slices"
	"time"
)

const (
	// flushAfter a change it is synced; with the sync itself half a second is kept. What comes meanwhile goes with it.
	flushAfter = 200 * time.Millisecond
	// retryAfter an error what could not be written is tried again.
	retryAfter = time.Second
	// flushBatch bounds how many files are open at once.
	flushBatch = 64
)

// Run syncs what was written, tries again what failed, and keeps the files from growing, until ctx ends and all is
// synced. What is handed over after that needs Flush.
func (d *Dir) Run(ctx context.Context) {
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			d.Flush()
			return
		}
		for again := true; again; {
			if !d.pause(ctx) {
				d.Flush()
				return
			}
			again = d.Flush()
		}
	}
}

func (d *Dir) pause(ctx context.Context) bool {
	d.mu.Lock()
	wait := flushAfter
	if len(d.failing) > 0 {
		wait = retryAfter
	}
	d.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Flush does the work of Run once, and reports whether there is more.
func (d *Dir) Flush() (more bool) {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	for batch := range slices.Chunk(d.takeActive(), flushBatch) {
		d.flushSome(batch)
	}
	if d.newDirs {
		err := d.syncRoot()
		d.newDirs = err != nil
		d.note(nil, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.active) > 0 || d.newDirs
}

func (d *Dir) takeActive() []*box {
	d.mu.Lock()
	defer d.mu.Unlock()
	boxes := slices.Collect(maps.Keys(d.active))
	clear(d.active)
	return boxes
}

// flushSome begins to write all files of the batch before it waits for the first: one commit of the file system's journal
// then carries most of them.
func (d *Dir) flushSome(boxes []*box) {
	all := make([]*syncing, 0, len(boxes))
	for _, b := range boxes {
		s := b.prepareSync()
		s.begin()
		d.newDirs = d.newDirs || s.made
		all = append(all, s)
	}
	for _, s := range all {
		s.end()
		d.note(s.box, s.err)
		if s.err != nil || s.again {
			d.mu.Lock()
			d.active[s.box] = struct{}{}
			d.mu.Unlock()
		}
	}
}
