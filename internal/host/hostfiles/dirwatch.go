package hostfiles

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/inotify"
)

// DirWatch wakes its owner when names in directories get other files: by a rename, a new link, or a writer that closes its file. One
// goroutine uses it. Without an inotify instance it only waits.
type DirWatch struct {
	file    *os.File
	fd      int
	watches map[uint32]bool // descriptors
}

// NewDirWatch returns a watch of no directory. Errors: the kernel has no inotify instance left; the watch can be used all the same.
func NewDirWatch() (*DirWatch, error) {
	fd, err := inotify.Open()
	if err != nil {
		return &DirWatch{fd: -1}, err
	}
	return &DirWatch{fd: fd, file: os.NewFile(uintptr(fd), "inotify"), watches: map[uint32]bool{}}, nil
}

// Set watches exactly these directories from now on. Those that can't be watched, such as missing ones, are left out.
func (w *DirWatch) Set(dirs []string) {
	if w.fd < 0 {
		return
	}
	const changes = unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_ONLYDIR
	now := map[uint32]bool{}
	for _, dir := range dirs {
		if wd, err := unix.InotifyAddWatch(w.fd, dir, changes); err == nil { // the same descriptor for the same directory
			now[uint32(wd)] = true
		}
	}
	for wd := range w.watches {
		if !now[wd] {
			_, _ = unix.InotifyRmWatch(w.fd, wd) // it is gone already if the directory is
		}
	}
	w.watches = now
}

// Wait returns after d, or when something has changed since the last Wait, or when wake has a value or ctx ends.
func (w *DirWatch) Wait(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		w.read(ctx)
	}()
	select {
	case <-wake:
		cancel()
	case <-changed:
	}
	<-changed
}

// read returns when there were events, or ctx ends.
func (w *DirWatch) read(ctx context.Context) {
	if w.fd < 0 {
		<-ctx.Done()
		return
	}
	_ = w.file.SetReadDeadline(time.Time{})
	defer context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Now()) })()
	if _, err := w.file.Read(make([]byte, 16<<10)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done()
	}
}

// Close ends the watch.
func (w *DirWatch) Close() {
	if w.fd >= 0 {
		_ = w.file.Close()
	}
}
