// Package buildfiles keeps the files of template builds: uploaded archives, until a build has used them, and the logs of builds. All are artifacts
// below one directory: TEMPLATE/HASH.tar and TEMPLATE/BUILD.log.
package buildfiles

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/fault"
	"github.com/agbox/agbox/internal/host/disk"
)

// MaxArchive bounds an archive, and maxArchives those of a template, in bytes.
const (
	MaxArchive  = 512 << 20
	maxArchives = 4 * MaxArchive
	blockSize   = 4 << 10
	// checkEvery is after how many bytes of an upload the size of all is read.
	checkEvery = 16 << 20
)

const (
	archiveSuffix = ".tar"
	logSuffix     = ".log"
	partPrefix    = ".part-"
)

// ErrTooLarge means that an archive is larger than MaxArchive, or that the template has too many.
var ErrTooLarge = fmt.Errorf("the files of a template have more than %d MiB, or one archive more than %d MiB: %w", maxArchives>>20, MaxArchive>>20, errdefs.ErrResourceExhausted)

var (
	idPattern   = regexp.MustCompile(`^[a-z0-9]{8,64}$`)
	hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Dir is the directory. Its methods are safe for concurrent use.
type Dir struct{ path string }

// New returns the directory at an absolute path, which need not exist. Without a path it holds nothing.
func New(path string) *Dir { return &Dir{path} }

// IsHash reports whether a text is 64 lowercase hexadecimal digits.
func IsHash(s string) bool { return hashPattern.MatchString(s) }

// file returns the path of a file of a template. Errors: ErrInvalidArgument for what is no name here.
func (d *Dir) file(template, name, suffix string) (string, error) {
	if d.path == "" || !idPattern.MatchString(template) || !idPattern.MatchString(name) {
		return "", fmt.Errorf("template %q and %q: %w", template, name, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(d.path, template, name+suffix), nil
}

// Has reports whether an archive is there. Errors: ErrInvalidArgument.
func (d *Dir) Has(template, hash string) (bool, error) {
	path, err := d.file(template, hash, archiveSuffix)
	if err != nil {
		return false, err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Mode().IsRegular(), err
}

// Save stores an archive, or replaces it. It is complete or absent, also after a crash. Errors: ErrInvalidArgument; ErrTooLarge; those of
// r and of the disk.
func (d *Dir) Save(ctx context.Context, template, hash string, r io.Reader) (err error) {
	path, err := d.file(template, hash, archiveSuffix)
	if err != nil {
		return err
	}
	part := ""
	err = fault.Around(fault.Builds, "receive_archive", func() (err error) {
		part, err = d.receive(ctx, template, r)
		return err
	})
	if err == nil {
		err = fault.Around(fault.Builds, "name_archive", func() error { return os.Rename(part, path) })
	}
	if err != nil && part != "" {
		err = errors.Join(err, fault.Around(fault.Builds, "drop_archive", func() error { return disk.Remove(part) }))
	}
	return err
}

// receive stores what r has in a file without a final name. With an error it returns the name too if there is a file.
func (d *Dir) receive(ctx context.Context, template string, r io.Reader) (name string, err error) {
	dir := filepath.Join(d.path, template)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	part, err := os.CreateTemp(dir, partPrefix)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, part.Close()) }()
	for left := int64(MaxArchive + 1); ; {
		n, err := io.Copy(part, io.LimitReader(&stoppable{ctx, r}, min(left, checkEvery)))
		left -= n
		used := int64(0)
		if err == nil {
			used, err = d.used(template) // uploads that run at the same time grow too
		}
		if err == nil && (left == 0 || used > maxArchives) {
			err = ErrTooLarge
		}
		if err != nil {
			return part.Name(), err
		}
		if n < checkEvery {
			break
		}
	}
	return part.Name(), part.Sync()
}

// stoppable is a reader that ends with a context.
type stoppable struct {
	ctx context.Context //nolint:containedctx // of the one call that reads
	r   io.Reader
}

// Read implements io.Reader.
func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}

// used returns the size of a template's archives and of those that are being received, each with the block that it takes at least.
func (d *Dir) used(template string) (n int64, err error) {
	entries, err := os.ReadDir(filepath.Join(d.path, template))
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !strings.HasSuffix(e.Name(), logSuffix) {
			n += max(info.Size(), blockSize)
		}
	}
	return n, err
}

// Open opens an archive. Errors: ErrInvalidArgument; ErrNotFound.
func (d *Dir) Open(template, hash string) (io.ReadCloser, error) {
	path, err := d.file(template, hash, archiveSuffix)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the files %s were not uploaded: %w", hash, errdefs.ErrNotFound)
	}
	return f, err
}

// RemoveArchives removes the archives of a template.
func (d *Dir) RemoveArchives(template string) error {
	return d.remove(template, func(e fs.DirEntry) bool { return !strings.HasSuffix(e.Name(), logSuffix) })
}

// RemoveTemplate removes all files of a template.
func (d *Dir) RemoveTemplate(template string) error {
	return d.remove(template, func(fs.DirEntry) bool { return true })
}

// remove removes the files that are garbage, and the template's directory if it is empty then.
func (d *Dir) remove(template string, garbage func(fs.DirEntry) bool) error {
	if d.path == "" || !idPattern.MatchString(template) {
		return fmt.Errorf("template %q: %w", template, errdefs.ErrInvalidArgument)
	}
	dir := filepath.Join(d.path, template)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	left := 0
	for _, e := range entries {
		if !garbage(e) {
			left++
			continue
		}
		err := fault.Around(fault.Builds, "remove_file", func() error { return os.RemoveAll(filepath.Join(dir, e.Name())) })
		if err != nil {
			return err
		}
	}
	if err == nil && left == 0 {
		err = fault.Around(fault.Builds, "remove_directory", func() error {
			_ = os.Remove(dir) // a file that was made meanwhile keeps it
			return nil
		})
	}
	return err
}

// Sweep removes the archives that are older than age of templates that are not busy, parts that are older, and the logs of builds that are not known.
func (d *Dir) Sweep(now time.Time, age time.Duration, busy func(template string) bool, known func(build string) bool) error {
	if d.path == "" {
		return nil
	}
	entries, err := os.ReadDir(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !idPattern.MatchString(e.Name()) || busy(e.Name()) {
			continue
		}
		err := d.remove(e.Name(), func(f fs.DirEntry) bool {
			if build, ok := strings.CutSuffix(f.Name(), logSuffix); ok {
				return !known(build)
			}
			info, err := f.Info()
			return err == nil && now.Sub(info.ModTime()) > age
		})
		if err != nil {
			return err
		}
	}
	return err
}

// Line is one line of a log.
type Line struct {
	At   time.Time
	Step uint32
	Text string // without a newline
}

// Log is a log that is being written.
type Log struct{ f *os.File }

// CreateLog makes the log of a build, or empties it.
func (d *Dir) CreateLog(template, build string) (*Log, error) {
	path, err := d.file(template, build, logSuffix)
	if err != nil {
		return nil, err
	}
	var f *os.File
	err = fault.Around(fault.Builds, "create_log", func() (err error) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Log{f}, nil
}

// Append adds a line. A crash of the host may lose the last ones.
func (l *Log) Append(line Line) error {
	return fault.Around(fault.Builds, "append_log", func() error {
		_, err := fmt.Fprintf(l.f, "%d %d %s\n", line.At.UnixNano(), line.Step, line.Text)
		return err
	})
}

// Close closes the log.
func (l *Log) Close() error { return l.f.Close() }

// ReadLog returns at most limit lines from an index on. A log that is gone is empty.
func (d *Dir) ReadLog(template, build string, offset, limit int) (lines []Line, err error) {
	path, err := d.file(template, build, logSuffix)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	for r, n := bufio.NewReader(f), 0; len(lines) < limit; n++ {
		text, err := r.ReadString('\n')
		if err != nil { // also of a line that a crash has torn
			break
		}
		if n < offset {
			continue
		}
		at, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		step, rest, _ := strings.Cut(rest, " ")
		nanos, _ := strconv.ParseInt(at, 10, 64)
		number, _ := strconv.ParseUint(step, 10, 32)
		lines = append(lines, Line{time.Unix(0, nanos), uint32(number), rest})
	}
	return lines, nil
}
