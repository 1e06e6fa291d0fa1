package recordfile

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// Dir writes the files of all sandboxes. It is a mirror of the store: its methods return nothing, since nobody could do
// better with an error than Dir does, which logs the first one and tries again. Run or Flush tries again and syncs. One
// caller at a time may hand over changes of one sandbox.
type Dir struct {
	runRoot string
	log     *slog.Logger
	failed  func(error)

	mu      sync.Mutex
	boxes   map[string]*box    // those that are not gone
	active  map[*box]struct{}  // those that the flusher has to look at
	failing map[*box]time.Time // and when they are tried again
	wake    chan struct{}      // holds one: active is not empty

	flushing sync.Mutex // one flush at a time
	newDirs  bool       // the root is to be synced
}

// New returns the Dir for the directories below runRoot, the one that execjournal.New is given. It touches nothing. failed
// is called with each error, for a metric; nil is fine.
func New(runRoot string, log *slog.Logger, failed func(error)) *Dir {
	if failed == nil {
		failed = func(error) {}
	}
	return &Dir{
		runRoot: runRoot, log: log, failed: failed,
		boxes: map[string]*box{}, active: map[*box]struct{}{}, failing: map[*box]time.Time{}, wake: make(chan struct{}, 1),
	}
}

// Sandbox writes the record of a sandbox. r is kept while it can't be written.
func (d *Dir) Sandbox(r *storev1.SandboxRecord) {
	b := d.box(r.GetSandboxId())
	d.after(b, b.sandbox(r))
}

// Exec writes the record of an exec. r is kept while it can't be written.
func (d *Dir) Exec(sandboxID string, r *storev1.ExecRecord) {
	b := d.box(sandboxID)
	d.after(b, b.exec(r))
}

// Gone removes the files of a sandbox, whether or not it was handed over before, and the directory if it is empty then.
func (d *Dir) Gone(sandboxID string) {
	b := d.box(sandboxID)
	err := b.remove()
	d.mu.Lock()
	delete(d.boxes, sandboxID)
	d.mu.Unlock()
	d.after(b, err)
}

func (d *Dir) box(id string) *box {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.boxes[id]
	if b == nil {
		b = newBox(id, filepath.Join(d.runRoot, execjournal.RunName(id)))
		d.boxes[id] = b
	}
	return b
}

// after notes the outcome of a write, and leaves the rest to the flusher.
func (d *Dir) after(b *box, err error) {
	d.note(b, err)
	d.mu.Lock()
	d.active[b] = struct{}{}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// note logs the first error of many, and the end of the last one. b is nil for the root.
func (d *Dir) note(b *box, err error) {
	d.mu.Lock()
	_, was := d.failing[b]
	first, last := err != nil && len(d.failing) == 0, err == nil && was && len(d.failing) == 1
	if err != nil {
		d.failing[b] = time.Now().Add(retryAfter)
	} else {
		delete(d.failing, b)
	}
	d.mu.Unlock()
	switch {
	case err != nil:
		d.failed(err)
		if first {
			d.log.Error("the records beside the database can't be written; it is tried again", "err", err)
		}
	case last:
		d.log.Info("the records beside the database are written again")
	}
}

// syncRoot makes new directories durable.
func (d *Dir) syncRoot() error {
	fd, err := openDir(d.runRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := syncDir(fd); err != nil {
		return fmt.Errorf("sync %s: %w", d.runRoot, err)
	}
	return nil
}
