package upgrade

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Pack writes a data directory to a tar.gz file, with modes and without owners and times; without the entries of its root whose names are in without.
// Sockets and pipes are left out.
func Pack(dir, file string, without ...string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == "." {
			return err
		}
		if slices.Contains(without, name) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return packOne(w, path, name, e)
	})
	return errors.Join(err, w.Close(), z.Close())
}

func packOne(w *tar.Writer, path, name string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil || info.Mode()&(fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, 0, 0, "", ""
	h.ModTime, h.AccessTime, h.ChangeTime, h.Format = time.Unix(0, 0), time.Time{}, time.Time{}, tar.FormatPAX
	if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, info.Size())
	return err
}

// Unpack makes the directory that Pack has written. Its files belong to the caller.
func Unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackOne(r, h, dir)
		}
		if err != nil {
			return fmt.Errorf("unpack %s: %w", file, err)
		}
	}
}

func unpackOne(r io.Reader, h *tar.Header, dir string) error {
	if !filepath.IsLocal(strings.TrimSuffix(h.Name, "/")) {
		return fmt.Errorf("%s leads out of the directory", h.Name)
	}
	path, mode := filepath.Join(dir, h.Name), h.FileInfo().Mode()
	switch h.Typeflag {
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeDir:
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	case tar.TypeReg:
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s is neither file nor directory nor link", h.Name)
	}
	return os.Chmod(path, mode) // whatever the umask is
}
