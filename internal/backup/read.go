package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
)

// File is a verified backup file.
type File struct {
	Header
	r    io.ReaderAt
	size int64
}

// Open reads all of f, which has size bytes, and verifies it. Errors: ErrInvalidArgument if it is not a backup; ErrFailedPrecondition if it
// has another format, such as that of a newer program; ErrDataLoss if it is damaged or truncated; ctx's; the I/O error.
func Open(ctx context.Context, f io.ReaderAt, size int64) (*File, error) {
	h, err := readInfo(f, size)
	if err != nil {
		return nil, err
	}
	if err := checkSum(ctx, f, size); err != nil {
		return nil, err
	}
	b := &File{Header: h, r: f, size: size}
	return b, b.checkFiles(ctx)
}

// OpenPath is Open for the regular file at path. closeFile closes it.
func OpenPath(ctx context.Context, path string) (b *File, closeFile func(), err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would block forever
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("it is not a regular file: %w", errdefs.ErrInvalidArgument)
	default:
		b, err = Open(ctx, f, info.Size())
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("backup %s: %w", path, err), f.Close())
	}
	return b, func() { _ = f.Close() }, nil // read only, so a close error loses no data
}

func checkSum(ctx context.Context, f io.ReaderAt, size int64) error {
	if size < trailerBytes {
		return damaged("it has %d bytes: it was cut", size)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, section(ctx, f, size-trailerBytes)); err != nil {
		return err
	}
	got := make([]byte, trailerBytes)
	if _, err := f.ReadAt(got, size-trailerBytes); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(got, trailer(sum.Sum(nil))) {
		return damaged("its checksum is wrong: it was cut, or bytes of it changed")
	}
	return nil
}

// checkFiles checks the headers of all files and stores the size of the database.
func (b *File) checkFiles(ctx context.Context) error {
	n := 0
	err := b.each(ctx, func(head *tar.Header, _ io.Reader) error {
		n++
		switch name, isLog := strings.CutPrefix(head.Name, logPrefix); {
		case n == 1 && head.Name == infoName:
			return nil
		case n == 2 && head.Name == databaseName && head.Size > 0:
			b.DatabaseBytes = head.Size
			return nil
		case n > 2 && b.WithLogs && isLog && checkName(name) == nil:
			return nil
		}
		return damaged("%q is not the name of file %d of a backup", head.Name, n)
	})
	if err == nil && n < 2 {
		err = damaged("it has no database")
	}
	return err
}

// each calls fn for each file of the archive except the checksum, in order, until fn returns an error. fn need not read the file.
func (b *File) each(ctx context.Context, fn func(*tar.Header, io.Reader) error) error {
	files := tar.NewReader(section(ctx, b.r, b.size-trailerBytes))
	for {
		head, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return damaged("its files can't be listed: %v", err)
		case head.Typeflag != tar.TypeReg:
			return damaged("%q in it is not a regular file", head.Name)
		}
		if err := fn(head, files); err != nil {
			return err
		}
	}
}

// ExtractDatabase writes the database to w. Errors: ctx's; the I/O error.
func (b *File) ExtractDatabase(ctx context.Context, w io.Writer) error {
	return b.each(ctx, func(head *tar.Header, r io.Reader) error {
		if head.Name != databaseName {
			return nil
		}
		_, err := io.Copy(w, r)
		return err
	})
}

// EachLog calls fn for each log, in order, until fn returns an error. fn need not read the file. The names have two elements that are safe
// as path elements. Errors: fn's; ErrDataLoss; ctx's.
func (b *File) EachLog(ctx context.Context, fn func(Log, io.Reader) error) error {
	return b.each(ctx, func(head *tar.Header, r io.Reader) error {
		name, isLog := strings.CutPrefix(head.Name, logPrefix)
		if !isLog {
			return nil
		}
		sandbox, file, _ := strings.Cut(name, "/")
		return fn(Log{Sandbox: sandbox, File: file, Mode: uint32(head.Mode) & 0o777, Modified: head.ModTime, Bytes: head.Size}, r)
	})
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,249}$`)

func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a log: %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}

// section returns a reader of the first size bytes of f that fails once ctx ends. It can seek, so unread files are skipped.
func section(ctx context.Context, f io.ReaderAt, size int64) io.Reader {
	r := io.NewSectionReader(f, 0, size)
	return struct {
		io.Reader
		io.Seeker
	}{&untilDone{ctx, r}, r}
}

// untilDone is a reader that fails once ctx ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
