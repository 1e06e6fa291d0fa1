package shim

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/passwd"
)

// etcLimit is the largest size in bytes of /etc/passwd and /etc/group. The image's author controls both files.
const etcLimit = 1 << 20

// identify resolves spec in the passwd and group files of the directory etc; see passwd.Lookup. An empty spec means agbox if passwd has
// that user, else fallback, else root. A missing file counts as empty.
func identify(etc, spec, fallback string) (passwd.Identity, error) {
	users, err := readTable(filepath.Join(etc, "passwd"))
	if err != nil {
		return passwd.Identity{}, err
	}
	groups, err := readTable(filepath.Join(etc, "group"))
	if err != nil {
		return passwd.Identity{}, err
	}
	if spec == "" {
		spec = passwd.Default(users, fallback)
	}
	return passwd.Lookup(users, groups, spec)
}

func readTable(path string) ([]byte, error) {
	data, err := readRegular(path, etcLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// readRegular reads a regular file of at most limit bytes. It follows symlinks and does not block on a FIFO.
func readRegular(path string, limit int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit)) // files of /proc and /sys have size 0
}
