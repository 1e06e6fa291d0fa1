package recordfile

import (
	"context"
	"slices"
	"time"
)

const (
	// flushAfter a change it is synced; with the sync itself half a second is kept. What comes meanwhile goes with it.
	flushAfter = 200 * time.Millisecond
	// retryAfter an error what could not be written or synced is tried again.
	retryAfter = time.Second
	// flushBatch bounds how many files are open at once.
	flushBatch = 64
)

// Run syncs what was written, tries again what failed, and keeps the files from growing, until ctx ends and all is
// synced. What is handed over after that needs Flush.
func (d *Dir) Run(ctx context.Context) {
	flushes(ctx, d.wake, func() bool { return d.flush(time.Now()) })
	d.Flush()
}

// flushes calls flush flushAfter each wake, and again for as long as there is more, until ctx ends.
func flushes(ctx context.Context, wake <-chan struct{}, flush func() (more bool)) {
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
		for more := true; more; more = flush() {
			if !pause(ctx) {
				return
			}
		}
	}
}

func pause(ctx context.Context) bool {
	timer := time.NewTimer(flushAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Flush does the work of Run once, tries again at once what failed, and reports whether there is more.
func (d *Dir) Flush() (more bool) {
	return d.flush(time.Now().Add(retryAfter))
}

// flush tries again what is due.
func (d *Dir) flush(due time.Time) (more bool) {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	for batch := range slices.Chunk(d.takeActive(due), flushBatch) {
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

// takeActive leaves those that failed a moment ago.
func (d *Dir) takeActive(due time.Time) []*box {
	d.mu.Lock()
	defer d.mu.Unlock()
	var boxes []*box
	for b := range d.active {
		if !d.failing[b].After(due) {
			boxes = append(boxes, b)
			delete(d.active, b)
		}
	}
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
