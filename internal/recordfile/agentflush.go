package recordfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Run syncs what was written, tries again what failed, and rewrites files from src that need it, until ctx ends and all is
// synced. What is handed over after that needs Flush.
func (d *Agents) Run(ctx context.Context, src AgentSource) {
	flushes(ctx, d.wake, func() bool { return d.flush(ctx, src, time.Now()) })
	d.Flush()
}

// Flush syncs what was written. It rewrites nothing.
func (d *Agents) Flush() {
	d.flush(context.Background(), nil, time.Now().Add(retryAfter))
}

// flush does what is due, and reports whether there is more.
func (d *Agents) flush(ctx context.Context, src AgentSource, due time.Time) (more bool) {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	files := d.takeActive(due)
	for batch := range slices.Chunk(files, flushBatch) {
		d.again(batch, d.syncFiles(batch))
	}
	d.note(nil, d.syncDir())
	for _, a := range files {
		if err := d.mend(ctx, src, a); err != nil && ctx.Err() == nil {
			d.again([]*agentFile{a}, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, unsynced := d.failing[nil]
	return len(d.active) > 0 || unsynced
}

// again notes the outcome for some files, which are tried again after an error.
func (d *Agents) again(files []*agentFile, err error) {
	for _, a := range files {
		d.note(a, err)
		if err != nil {
			d.mu.Lock()
			d.active[a] = struct{}{}
			d.mu.Unlock()
		}
	}
}

func (d *Agents) takeActive(due time.Time) (files []*agentFile) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.active {
		if !d.failing[a].After(due) {
			files = append(files, a)
			delete(d.active, a)
		}
	}
	return files
}

// mend removes what is to be gone, and rewrites what is behind or has grown.
func (d *Agents) mend(ctx context.Context, src AgentSource, a *agentFile) error {
	a.mu.Lock()
	gone, rewrite := a.gone, a.behind || a.full(d.slack)
	a.mu.Unlock()
	switch {
	case gone:
		return d.remove(a)
	case !rewrite:
		return nil
	case src == nil:
		return nil // at the end: the next start finds out
	}
	err := d.rewrite(ctx, src, a)
	d.mu.Lock()
	d.active[a] = struct{}{} // the new one is to be synced
	d.mu.Unlock()
	return err
}

// syncFiles begins to write all of them before it waits for the first.
func (d *Agents) syncFiles(files []*agentFile) error {
	dirfd, err := openDir(d.root)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	var opened []*os.File
	defer func() {
		for _, f := range opened {
			f.Close()
		}
	}()
	var errs error
	for _, a := range files {
		if !a.takeDirty() {
			continue
		}
		f, _, err := openFile(dirfd, a.name, unix.O_RDONLY)
		if isGone(err) {
			continue
		}
		if err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // a hint: the sync tells of errors
		opened = append(opened, f)
	}
	for _, f := range opened {
		errs = errors.Join(errs, f.Sync())
	}
	if errs != nil {
		for _, a := range files {
			a.setDirty()
		}
	}
	return errs
}

func (a *agentFile) takeDirty() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.dirty && !a.gone
	a.dirty = false
	return was
}

func (a *agentFile) setDirty() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dirty = true
}

// syncDir makes names durable: an fsync of a directory without changes costs little.
func (d *Agents) syncDir() error {
	dirfd, err := openDir(d.root)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(dirfd)
	if err := errors.Join(d.past.sync(dirfd), syncDir(dirfd)); err != nil {
		return fmt.Errorf("sync %s: %w", d.root, err)
	}
	d.mu.Lock()
	made := d.newDir
	d.newDir = false
	d.mu.Unlock()
	if !made {
		return nil
	}
	parent, err := openDir(filepath.Dir(d.root))
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	return syncDir(parent)
}
