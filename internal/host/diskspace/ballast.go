package diskspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/fault"
)

// chunk is how much of a ballast is made under the lock, which a writer that needs room waits for.
const chunk = 1 << 20

// ballast is a file that holds space. Its methods may be called concurrently.
type ballast struct {
	path string

	mu       sync.Mutex
	releases int // how often it was released; tells a make that it was overtaken
}

// held returns how many bytes on disk the file takes; 0 when it is missing.
func (b *ballast) held() int64 {
	var st unix.Stat_t
	if err := unix.Lstat(b.path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Blocks * 512 // the unit of st_blocks
}

// release gives the space back and reports whether there was any.
func (b *ballast) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releases++
	if b.held() == 0 {
		return false
	}
	return fault.Around(fault.Disk, "release_ballast", func() error { return os.Remove(b.path) }) == nil
}

// make fills the file up to size. It stops when release is called meanwhile. On an error the file is removed, so that what
// is left of the disk is everybody's. Errors: ENOSPC and EDQUOT where there is no room.
func (b *ballast) make(size int64) error {
	return fault.Around(fault.Disk, "make_ballast", func() error { return b.makeFile(size) })
}

func (b *ballast) makeFile(size int64) error {
	f, err := os.OpenFile(b.path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("make the ballast: %w", err)
	}
	defer f.Close()
	b.mu.Lock()
	releases := b.releases
	b.mu.Unlock()
	err = b.fill(f, size, releases)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && b.held() < size && b.current(releases) {
		err = b.scribble(f, size, releases) // the file system promises space that it does not keep
	}
	if err != nil {
		b.release()
		return fmt.Errorf("make the ballast of %s: %w", b.path, err)
	}
	return nil
}

func (b *ballast) current(releases int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.releases == releases
}

// fill allocates blocks without writing to them.
func (b *ballast) fill(f *os.File, size int64, releases int) error {
	return b.inChunks(size, releases, func(at, n int64) error {
		err := unix.Fallocate(int(f.Fd()), 0, at, n)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return writeNoise(f, at, n)
		}
		return err
	})
}

// scribble writes what no file system can compress away.
func (b *ballast) scribble(f *os.File, size int64, releases int) error {
	err := b.inChunks(size, releases, func(at, n int64) error { return writeNoise(f, at, n) })
	return errors.Join(err, f.Sync())
}

// inChunks calls do for each part of the file until the ballast is released.
func (b *ballast) inChunks(size int64, releases int, do func(at, n int64) error) error {
	part := func(at int64) (done bool, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.releases != releases {
			return true, nil
		}
		return false, fault.Around(fault.Disk, "fill_ballast", func() error { return do(at, min(chunk, size-at)) })
	}
	for at := int64(0); at < size; at += chunk {
		if done, err := part(at); done || err != nil {
			return err
		}
	}
	return nil
}

func writeNoise(f *os.File, at, n int64) error {
	noise := make([]byte, n)
	if _, err := rand.Read(noise); err != nil {
		return err
	}
	_, err := f.WriteAt(noise, at)
	return err
}

// isFull reports whether err says that there is no room.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// read looks at the file system of path, without the ballast.
func read(path string) (r Reading, device uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return r, 0, fmt.Errorf("look at %s: %w", path, err)
	}
	var f unix.Statfs_t
	if err := unix.Statfs(path, &f); err != nil {
		return r, 0, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	block := f.Frsize
	if block == 0 {
		block = f.Bsize
	}
	r = Reading{Total: int64(f.Blocks) * block, Free: int64(f.Bavail) * block, Inodes: int64(f.Files), FreeInodes: int64(f.Ffree)}
	return r, st.Dev, nil
}
