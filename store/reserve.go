package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reserve keeps blocks of the file allocated after its last used page, so that commits succeed on a full disk: bbolt grows its file
// sparsely, and without the reserve the first write to a hole would find no space. Only the writer uses it, and Open before the writer
// starts.
//
// Allocating changes neither the content nor the length of the file, so a crash at any moment needs no repair, and a later call skips
// allocated blocks.
type reserve struct {
	file    *os.File
	want    int64 // bytes ahead; 0: none
	end     int64 // allocated up to here
	retryAt time.Time
}

// reserveRetry is the pause after an allocation that found no space, and minReserve the smallest allocation that extend tries.
const (
	reserveRetry = time.Second
	minReserve   = 64 << 10
)

func openReserve(path string, want int64) (*reserve, error) {
	r := &reserve{want: want}
	if want <= 0 {
		return r, nil
	}
	var err error
	if r.file, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("open %s for its reserve: %w", path, err)
	}
	return r, nil
}

// extend allocates ahead of used, in steps of half the reserve. If the disk lacks space, it allocates as much as fits. It never fails: on
// a file system that cannot allocate there is no reserve.
func (r *reserve) extend(used int64, now time.Time) {
	if r.want <= 0 || r.end >= used+r.want/2 || now.Before(r.retryAt) {
		return
	}
	target := used + r.want
	for ahead := target - r.end; ahead >= minReserve; ahead /= 2 {
		err := unix.Fallocate(int(r.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, r.end, ahead)
		switch {
		case err == nil:
			r.end += ahead
			if r.end >= target {
				return
			}
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP):
			r.want = 0
			return
		}
	}
	r.retryAt = now.Add(reserveRetry)
}

// again makes the next extend try at once, because space was freed.
func (r *reserve) again() { r.retryAt = time.Time{} }

func (r *reserve) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
