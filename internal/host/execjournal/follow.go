package execjournal

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/wait"
)

// followPoll is the pause between two notifications of a follower while the kernel has no inotify instance or watch for it.
const followPoll = 50 * time.Millisecond

// followers are the readers of logs that grow. All state is in memory and belongs to the readers.
type followers struct {
	mu      sync.Mutex
	watcher *watchSet                          // nil while WatchOutput does not run, or has no instance
	all     map[execKey]map[chan struct{}]bool // by exec
	polled  map[execKey]bool                   // execs that the kernel refused to watch
}

// WatchOutput serves the followers of logs until ctx ends; it then returns nil. At most one may run.
func (d *Dir) WatchOutput(ctx context.Context) error {
	f := &d.followers
	var polling sync.WaitGroup
	defer polling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	polling.Go(func() {
		for wait.For(ctx, followPoll) == nil {
			f.poll()
		}
	})
	i, err := newWatchSet()
	for err != nil { // fs.inotify.max_user_instances is exhausted
		if wait.For(ctx, pollRetry) != nil {
			return nil
		}
		i, err = newWatchSet()
	}
	return d.run(ctx, i, watchLoop{
		mu: &f.mu, slot: &f.watcher, install: d.installFollowers, changed: d.changedOutput, pause: func(int) time.Duration { return 0 },
	}, f.notify)
}

// Follow calls for a reader of the two logs of an exec, which need not exist. changed receives an element after they may have grown; stop ends
// it. Read after the call: earlier changes are not notified.
func (d *Dir) Follow(sandboxID, execID string) (changed <-chan struct{}, stop func()) {
	f, k, c := &d.followers, execKey{sandboxID, execID}, make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all, f.polled = map[execKey]map[chan struct{}]bool{}, map[execKey]bool{}
	}
	first := f.all[k] == nil
	if first {
		f.all[k] = map[chan struct{}]bool{}
	}
	f.all[k][c] = true
	if first {
		d.followExec(k)
	}
	return c, func() { f.drop(k, c) }
}

func (f *followers) drop(k execKey, c chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all[k], c)
	if len(f.all[k]) > 0 {
		return
	}
	delete(f.all, k)
	delete(f.polled, k)
	last := true // of its sandbox: the directory needs no watch either
	for other := range f.all {
		last = last && other.sandboxID != k.sandboxID
	}
	if f.watcher != nil {
		f.watcher.remove(func(w execKey) bool { return w == k || last && w == execKey{sandboxID: k.sandboxID} })
	}
}

func (d *Dir) installFollowers() error {
	for k := range d.followers.all {
		d.followExec(k)
	}
	return nil
}

// followExec watches the directory before the files in it. f.mu is held.
func (d *Dir) followExec(k execKey) {
	f := &d.followers
	f.polled[k] = true
	if f.watcher == nil {
		return
	}
	dir, err := OpenDir(d.Paths(k.sandboxID).Logs)
	if err != nil {
		return // removed
	}
	defer unix.Close(dir)
	if f.watcher.add(pathOf(dir), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR, execKey{sandboxID: k.sandboxID}) != nil {
		return
	}
	for _, name := range []string{StdoutName(k.execID), StderrName(k.execID)} {
		if addFile(f.watcher, dir, name, k) != nil {
			return
		}
	}
	delete(f.polled, k)
}

// changedOutput returns the exec that an event concerns, and watches a new file. f.mu is held.
func (d *Dir) changedOutput(k execKey, name string) execKey {
	if k.execID != "" {
		return k
	}
	k.execID, _ = ownerOf(name, stdoutSuffix, stderrSuffix)
	if d.followers.all[k] == nil {
		return execKey{}
	}
	d.followExec(k)
	return k
}

// notify wakes the followers of an exec, or all of them.
func (f *followers) notify(sandboxID, execID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if execID == "" {
		for _, readers := range f.all {
			wakeAll(readers)
		}
		return
	}
	wakeAll(f.all[execKey{sandboxID, execID}])
}

// poll wakes the followers that the kernel does not.
func (f *followers) poll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, readers := range f.all {
		if f.watcher == nil || f.polled[k] {
			wakeAll(readers)
		}
	}
}

func wakeAll(readers map[chan struct{}]bool) {
	for c := range maps.Keys(readers) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Output is an open log of an exec, whose content is untrusted.
type Output struct{ file *os.File }

// OpenOutput opens a log. It follows no symlink, opens no device and waits for no FIFO. Errors: invalid argument; not found while it does not
// exist; ErrMalformed for anything but a regular file; else the I/O error.
func (d *Dir) OpenOutput(sandboxID, execID string, stderr bool) (*Output, error) {
	f, err := d.openOutput(sandboxID, execID, stderr, func(log string) string { return log })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFoundf("%w", err)
	}
	if err != nil {
		return nil, err
	}
	return &Output{f}, nil
}

// ReadAt reads like io.ReaderAt.
func (o *Output) ReadAt(p []byte, offset int64) (int, error) {
	n, err := o.file.ReadAt(p, offset)
	if errors.Is(err, io.EOF) && n > 0 {
		err = nil
	}
	return n, err
}

// Size returns the present size of the log in bytes.
func (o *Output) Size() (int64, error) { return sizeOf(o.file) }

// Close closes the log.
func (o *Output) Close() error { return o.file.Close() }

// LogLimit returns the limit of each log of an exec in bytes, 0 for none. ok is false once the end of the exec is about to be recorded, and before
// it was requested.
func (d *Dir) LogLimit(sandboxID, execID string) (limit int64, ok bool, err error) {
	if err := checkIDs(sandboxID, execID); err != nil {
		return 0, false, err
	}
	err = inDir(d.execDir(sandboxID), func(fd int) error {
		r, err := ReadRequest(fd, execID)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		limit, ok = r.LogLimitBytes, err == nil
		return err
	})
	return limit, ok, err
}

// OutputBytes returns how many bytes of a log of the given size are output: a log of which output was dropped may end with a DroppedMarker.
func (o *Output) OutputBytes(size int64) int64 {
	for digits := 1; digits <= 19; digits++ {
		limit := size - int64(len(DroppedMarker(0))-1+digits)
		if limit < 0 {
			break
		}
		marker := DroppedMarker(limit)
		if limit+int64(len(marker)) != size {
			continue
		}
		tail := make([]byte, len(marker))
		if n, _ := o.ReadAt(tail, limit); string(tail[:n]) == marker {
			return limit
		}
	}
	return size
}
