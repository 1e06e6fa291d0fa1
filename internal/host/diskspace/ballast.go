package diskspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/fault"
)

// Sizes of a piece of the ballast. With an exhausted quota on btrfs a commit needs 20 KiB for each page, and
// a rename temporarily 180 KiB; see also outputRoom and spareRoom of agbox-shim.
const (
	leastPiece = 512 << 10
	mostPieces = 128
)

// ballast is a directory of files that reserve disk space. Its methods may be called concurrently.
//
// It is released piece by piece: on a full disk, other writers use up the space that a commit does not, so a ballast released at
// once would help one commit only. Each piece is a file, since with an exhausted quota btrfs refuses truncate(2), but never unlink(2).
type ballast struct {
	path string

	mu       sync.Mutex
	releases int // number of released pieces; make stops when it has changed
	counted  struct {
		mtime time.Time // of the directory; zero: it has to be counted again
		held  int64
	}
}

// mtimeGrain exceeds the granularity of a directory's mtime: a later change always has another one.
const mtimeGrain = 50 * time.Millisecond

// pieceSize returns the size of a piece for a ballast of size bytes, in whole pages.
func pieceSize(size int64) int64 {
	const page = 4096
	return max(leastPiece, (size/mostPieces+page-1)/page*page)
}

// held returns the disk space that the pieces use, in bytes; 0 when there are none. It counts again once a piece was added or removed.
func (b *ballast) held() (all int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	info, err := os.Lstat(b.path)
	if err != nil {
		return 0
	}
	if mtime := info.ModTime(); mtime.Equal(b.counted.mtime) {
		return b.counted.held
	}
	for _, path := range b.pieces() {
		all += allocated(path)
	}
	b.counted.mtime, b.counted.held = time.Time{}, all
	if now.Sub(info.ModTime()) > mtimeGrain {
		b.counted.mtime = info.ModTime()
	}
	return all
}

// allocated returns the disk space that a file uses, in bytes; 0 when it is missing or not a regular file.
func allocated(path string) int64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Blocks * 512 // the unit of st_blocks
}

// pieces returns the paths of the pieces.
func (b *ballast) pieces() (paths []string) {
	entries, _ := os.ReadDir(b.path) // without a directory there are no pieces
	for _, e := range entries {
		paths = append(paths, filepath.Join(b.path, e.Name()))
	}
	return paths
}

// release frees one piece and reports whether it freed any space.
func (b *ballast) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releases++
	for _, path := range slices.Backward(b.pieces()) {
		held := allocated(path)
		err := fault.Around(fault.Disk, "release_ballast", func() error { return os.Remove(path) })
		if err == nil && held > 0 {
			return true
		}
	}
	return false
}

// make creates the missing pieces of a ballast of size bytes. It stops when release is called meanwhile. After an error it keeps
// the complete pieces: with a quota, which statfs does not show, other writers are waiting for that space, and make would not
// get it again. Errors: ENOSPC and EDQUOT when the disk or quota is full.
func (b *ballast) make(size int64) error {
	return fault.Around(fault.Disk, "make_ballast", func() error { return b.makePieces(size) })
}

func (b *ballast) makePieces(size int64) error {
	_ = os.Remove(b.path) // a file in the way, or an empty directory
	if err := os.Mkdir(b.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the ballast directory: %w", err)
	}
	b.mu.Lock()
	releases := b.releases
	b.mu.Unlock()
	each := pieceSize(size)
	for i := int64(0); i*each < size; i++ {
		if done, err := b.makePiece(filepath.Join(b.path, fmt.Sprintf("%03d", i)), each, releases); done || err != nil {
			return err
		}
	}
	return nil
}

// makePiece creates one piece under the lock, which a writer that needs room waits for. After an error the piece does not exist.
func (b *ballast) makePiece(path string, size int64, releases int) (overtaken bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.releases != releases {
		return true, nil
	}
	if allocated(path) >= size {
		return false, nil
	}
	err = fault.Around(fault.Disk, "fill_ballast", func() error { return fill(path, size) })
	if err != nil {
		_ = os.Remove(path) // it may not exist
		return false, fmt.Errorf("create a piece of the ballast: %w", err)
	}
	return false, nil
}

// fill creates a file that uses size bytes of disk: by allocation, or by writing where the file system does not support
// allocation or does not honour it.
func fill(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return &fs.PathError{Op: "allocate", Path: path, Err: err}
	}
	if allocated(path) >= size {
		return nil
	}
	noise := make([]byte, size) // not compressible by a file system
	_, _ = rand.Read(noise)     // it never fails
	if _, err := f.WriteAt(noise, 0); err != nil {
		return err
	}
	return f.Sync()
}

// isFull reports whether err means that the disk or quota is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// read returns the reading of path's file system, without the ballast.
func read(path string) (r Reading, device uint64, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return r, 0, fmt.Errorf("stat %s: %w", path, err)
	}
	var f unix.Statfs_t
	if err := unix.Statfs(path, &f); err != nil {
		return r, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	r = Reading{Total: int64(f.Blocks) * f.Frsize, Free: int64(f.Bavail) * f.Frsize, Inodes: int64(f.Files), FreeInodes: int64(f.Ffree)}
	return r, st.Dev, nil
}
