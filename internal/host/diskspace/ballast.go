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

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/fault"
)

// Sizes of a piece of the ballast. With a used-up quota on btrfs a commit needs 20 KiB for each page, and
// a rename 180 KiB for a moment; see also outputRoom and spareRoom of agbox-shim.
const (
	leastPiece = 512 << 10
	mostPieces = 128
)

// ballast is a directory of files that hold space. Its methods may be called concurrently.
//
// It is released piece by piece: other writers on a full disk take whatever a commit does not, so a ballast that is released at
// once is good for one commit. Each piece is a file, since with a used-up quota btrfs refuses truncate(2), but never unlink(2).
type ballast struct {
	path string

	mu       sync.Mutex
	releases int // how often a piece was released; tells a make that it was overtaken
}

// pieceSize is the size of a piece of a ballast of size bytes, in whole pages.
func pieceSize(size int64) int64 {
	const page = 4096
	return max(leastPiece, (size/mostPieces+page-1)/page*page)
}

// piece is the path of the piece with index i.
func (b *ballast) piece(i int64) string { return filepath.Join(b.path, fmt.Sprintf("%03d", i)) }

// held returns how many bytes on disk the pieces take together; 0 when there are none.
func (b *ballast) held() (all int64) {
	files, _ := os.ReadDir(b.path) // without a directory there are no pieces
	for _, f := range files {
		all += allocated(filepath.Join(b.path, f.Name()))
	}
	return all
}

// allocated returns how many bytes on disk a file takes; 0 when it is missing or not a regular file.
func allocated(path string) int64 {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0
	}
	return st.Blocks * 512 // the unit of st_blocks
}

// files are the paths of the pieces; or of the one file that an earlier version made, which stays until there is room for pieces.
func (b *ballast) files() (paths []string) {
	if allocated(b.path) > 0 {
		return []string{b.path}
	}
	entries, _ := os.ReadDir(b.path) // without a directory there are no pieces
	for _, e := range entries {
		paths = append(paths, filepath.Join(b.path, e.Name()))
	}
	return paths
}

// release gives the space of one piece back and reports whether there was any.
func (b *ballast) release() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.releases++
	for _, path := range slices.Backward(b.files()) {
		held := allocated(path)
		err := fault.Around(fault.Disk, "release_ballast", func() error { return os.Remove(path) })
		if err == nil && held > 0 {
			return true
		}
	}
	return false
}

// make makes the missing pieces of a ballast of size bytes. It stops when release is called meanwhile. On an error it keeps
// the pieces that are whole: with a quota, which statfs does not show, it has taken them while others waited for space, and would not
// get them again. Errors: ENOSPC and EDQUOT where there is no room.
func (b *ballast) make(size int64) error {
	return fault.Around(fault.Disk, "make_ballast", func() error { return b.makePieces(size) })
}

func (b *ballast) makePieces(size int64) error {
	_ = os.Remove(b.path) // a file of this name; a directory with pieces stays
	if err := os.Mkdir(b.path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the ballast: %w", err)
	}
	b.mu.Lock()
	releases := b.releases
	b.mu.Unlock()
	each := pieceSize(size)
	for i := int64(0); i*each < size; i++ {
		if done, err := b.makePiece(b.piece(i), each, releases); done || err != nil {
			return err
		}
	}
	return nil
}

// makePiece makes one piece under the lock, which a writer that needs room waits for. On an error there is no such piece.
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
		_ = os.Remove(path) // it may not have come to be
		return false, fmt.Errorf("make a piece of the ballast: %w", err)
	}
	return false, nil
}

// fill makes a file that holds size bytes of disk: allocated, or written where the file system does not allocate, or does not keep
// what it has promised.
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
	noise := make([]byte, size) // which no file system can compress
	if _, err := rand.Read(noise); err != nil {
		return err
	}
	if _, err := f.WriteAt(noise, 0); err != nil {
		return err
	}
	return f.Sync()
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
