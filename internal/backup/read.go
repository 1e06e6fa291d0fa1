package backup

import (
	"archive/tar"
	"bufio"
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

// File is a backup file that was found whole.
type File struct {
	Header
	r    io.ReaderAt
	size int64
}

// Open reads all of f, which has size bytes, and returns it if it is whole. Errors: ErrInvalidArgument when it is no
// backup; ErrFailedPrecondition when a newer program wrote it; ErrDataLoss when it is damaged or cut; ctx's; the I/O error.
func Open(ctx context.Context, f io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, headerSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < len(magic)+4 {
		return nil, damaged("it has %d bytes, which is too short for a backup", size)
	}
	if err := checkMagic(head[:n]); err != nil {
		return nil, err
	}
	if size < headerSize+sumSize {
		return nil, damaged("it has %d bytes: it was cut", size)
	}
	if err := checkSum(ctx, f, size); err != nil {
		return nil, err
	}
	h, err := decodeHeader(head)
	if err != nil {
		return nil, err
	}
	b := &File{Header: h, r: f, size: size}
	return b, b.checkParts(ctx)
}

// OpenPath is Open for the regular file at path. close frees it.
func OpenPath(ctx context.Context, path string) (b *File, closeFile func(), err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO would let us wait forever
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
	return b, func() { _ = f.Close() }, nil // it was only read
}

func checkSum(ctx context.Context, f io.ReaderAt, size int64) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, &untilDone{ctx, io.NewSectionReader(f, 0, size-sumSize)}); err != nil {
		return err
	}
	var want [sumSize]byte
	if _, err := f.ReadAt(want[:], size-sumSize); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want[:]) {
		return damaged("its checksum is wrong: it was cut, or bytes of it changed")
	}
	return nil
}

// checkParts compares the sizes, and reads the log part through.
func (b *File) checkParts(ctx context.Context) error {
	rest := b.size - headerSize - sumSize - b.DatabaseBytes
	switch {
	case rest < 0 || !b.WithLogs && rest != 0:
		return damaged("its parts do not add up to its size")
	case b.WithLogs:
		return b.EachLog(ctx, func(Log, io.Reader) error { return nil })
	}
	return nil
}

// Database returns a reader of the database.
func (b *File) Database() io.Reader { return io.NewSectionReader(b.r, headerSize, b.DatabaseBytes) }

// ExtractDatabase writes the database to f. Errors: ctx's; the I/O error.
func (b *File) ExtractDatabase(ctx context.Context, f io.Writer) error {
	_, err := io.Copy(f, &untilDone{ctx, b.Database()})
	return err
}

// EachLog calls fn for each file of the log part, in order, until it returns an error. fn need not read the file. Names are
// checked: two elements, each harmless. Errors: fn's; ErrDataLoss; ctx's.
func (b *File) EachLog(ctx context.Context, fn func(Log, io.Reader) error) error {
	if !b.WithLogs {
		return nil
	}
	start := headerSize + b.DatabaseBytes
	part := io.NewSectionReader(b.r, start, b.size-sumSize-start)
	files := tar.NewReader(bufio.NewReaderSize(&untilDone{ctx, part}, 1<<20))
	for {
		head, err := files.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return damaged("its log part can't be read: %v", err)
		case head.Typeflag != tar.TypeReg:
			return damaged("%q in its log part is not a regular file", head.Name)
		}
		if err := checkName(head.Name); err != nil {
			return fmt.Errorf("%w: %w", err, errdefs.ErrDataLoss)
		}
		sandbox, file, _ := strings.Cut(head.Name, "/")
		log := Log{Sandbox: sandbox, File: file, Mode: uint32(head.Mode) & 0o777, Modified: head.ModTime, Bytes: head.Size}
		if err := fn(log, files); err != nil {
			return err
		}
	}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,249}$`)

func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a log: %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}

// untilDone is a reader that ends with ctx.
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
