package dockerx

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// The methods of this file access the files of a running or stopped container, its mounts included:
// the engine mounts a stopped container for the duration of the call, and fails (ErrInternal) when the source of a mount
// does not exist. Links are resolved inside the container.

// PathInfo describes one path in a container.
type PathInfo struct {
	// Mode is the type and the permissions.
	Mode fs.FileMode
	// LinkTarget is the resolved target of a symbolic link, as an absolute path in the container; it may not exist.
	LinkTarget string
}

// StatPath returns the metadata of one path, relative to the container's root; a final link is not followed. Errors:
// ErrNotFound when the container or path does not exist; ErrUnavailable.
func (e *Engine) StatPath(ctx context.Context, id, name string) (PathInfo, error) {
	what := fmt.Sprintf("stat %s in container %s", name, id)
	return ask(ctx, e, OpStatPath, what, func(ctx context.Context, c *client.Client) (PathInfo, error) {
		st, err := statPath(ctx, c, id, path.Join("/", name))
		return PathInfo{Mode: st.Mode, LinkTarget: st.LinkTarget}, err
	})
}

// statPath stats one path. For a path below a file, such as /etc/passwd/x, 20.10 answers ErrInternal, as for failures of
// the container, so statPath checks the parent directories before it returns ErrNotFound.
func statPath(ctx context.Context, c *client.Client, id, name string) (container.PathStat, error) {
	st, err := c.ContainerStatPath(ctx, id, name)
	if errdefs.IsInternal(err) && name != "/" && !isDirectory(ctx, c, id, path.Dir(name)) {
		return st, reclass(err, errdefs.IsInternal, errdefs.ErrNotFound)
	}
	return st, err
}

// isDirectory reports whether name is a directory or a link to one; true when the engine fails.
func isDirectory(ctx context.Context, c *client.Client, id, name string) bool {
	st, err := statPath(ctx, c, id, name)
	if err == nil && st.Mode&fs.ModeSymlink != 0 {
		st, err = statPath(ctx, c, id, path.Join("/", st.LinkTarget))
	}
	if err != nil {
		return !errdefs.IsNotFound(err)
	}
	return st.Mode.IsDir()
}

// ReadContainerFile returns the content of a regular file, or of a link's target, of at most limit bytes.
//
// Errors: ErrNotFound when the container or file does not exist; ErrFailedPrecondition for anything but a regular file,
// which is not opened; ErrOutOfRange for a file of more than limit bytes; ErrUnavailable, also when the file's size changed
// during the read.
func (e *Engine) ReadContainerFile(ctx context.Context, id, name string, limit int64) ([]byte, error) {
	what := fmt.Sprintf("read %s in container %s", name, id)
	return ask(ctx, e, OpReadFile, what, func(ctx context.Context, c *client.Client) ([]byte, error) {
		return readFile(ctx, c, id, path.Join("/", name), limit)
	})
}

func readFile(ctx context.Context, c *client.Client, id, name string, limit int64) ([]byte, error) {
	st, err := statPath(ctx, c, id, name)
	if err == nil && st.Mode&fs.ModeSymlink != 0 {
		name = path.Join("/", st.LinkTarget)
		st, err = statPath(ctx, c, id, name)
	}
	if err == nil {
		err = checkFile(st.Mode, st.Size, limit)
	}
	if err != nil {
		return nil, err
	}
	archive, _, err := c.CopyFromContainer(ctx, id, name)
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	r := tar.NewReader(archive)
	h, err := r.Next()
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	// A process in the container may have replaced the file since.
	if err := checkFile(h.FileInfo().Mode(), h.Size, limit); err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// ReadTar calls read with the file or tree at a path of a container, relative to its root, as a tar stream. Its names start with the last
// element of the path, or with "." if that is "."; a symbolic link at the end is packed itself, links before it are resolved inside the
// container. read need not read to the end. Memory use is constant. An error of read is returned unchanged, without a class of this package.
// Others: ErrNotFound when the container or path does not exist; ErrUnavailable, also when the stream is cut off.
func (e *Engine) ReadTar(ctx context.Context, id, name string, read func(io.Reader) error) error {
	var readErr error
	what := fmt.Sprintf("read %s in container %s", name, id)
	err := e.do(ctx, OpReadTar, what, func(ctx context.Context, c *client.Client) error {
		absolute := path.Join("/", name)
		if strings.HasSuffix(name, "/.") {
			absolute = strings.TrimSuffix(absolute, "/") + "/."
		}
		archive, _, err := c.CopyFromContainer(ctx, id, absolute)
		if errdefs.IsInternal(err) && absolute != "/" && !isDirectory(ctx, c, id, path.Dir(absolute)) {
			return reclass(err, errdefs.IsInternal, errdefs.ErrNotFound)
		}
		if err != nil {
			return err
		}
		defer archive.Close()
		src := &source{r: archive}
		readErr = read(src)
		if err := src.release(); err != nil {
			return fmt.Errorf("the archive is cut off: %w: %w", err, errdefs.ErrUnavailable)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return readErr
}

func checkFile(mode fs.FileMode, size, limit int64) error {
	if !mode.IsRegular() {
		return fmt.Errorf("not a regular file (%s): %w", mode, errdefs.ErrFailedPrecondition)
	}
	if size > limit {
		return fmt.Errorf("the file has %d bytes, more than the limit of %d: %w", size, limit, errdefs.ErrOutOfRange)
	}
	return nil
}

// WriteTar unpacks an archive into an existing directory of a container. within is the deadline of the whole operation (0:
// Deadline(OpWriteTar)). Memory use is constant.
//
// Files get the owner (uid and gid), mode and time of their headers; directories that the archive does not name are owned by
// root with mode 0755. Existing files are replaced one by one, directories are merged; a directory is never replaced by
// anything else, nor anything else by a directory. Entries below the target of a writable mount are written to the mount's
// source, on the host. An entry whose name leads out of dir is refused. All this was observed on 20.10.
//
// The engine also unpacks compressed archives and detects them by their first bytes, which are the first name: a name that
// starts with "BZh" would be taken for bzip2. Start the archive with a global header.
//
// Entries unpacked before an error stay. An error of the reader is returned unchanged, without a class of this package.
// Others: ErrNotFound when the container or directory does not exist; ErrFailedPrecondition when dir is not a directory;
// ErrInternal when an entry can't be unpacked (20.10, for any reason: a directory of that name exists, a read-only mount, a
// full disk, a broken archive); ErrUnavailable.
//
// The reader is not used after the return, except for a Read in progress, whose data is lost.
func (e *Engine) WriteTar(ctx context.Context, id, dir string, within time.Duration, tar io.Reader) error {
	if within <= 0 {
		within = Deadline(OpWriteTar)
	}
	src := &source{r: tar}
	err := e.doWithin(ctx, OpWriteTar, within, func(ctx context.Context, c *client.Client) error {
		dir := path.Join("/", dir)
		err := c.CopyToContainer(ctx, id, dir, src, container.CopyToContainerOptions{})
		if src.release() != nil {
			return errSource
		}
		if errdefs.IsInternal(err) && !isDirectory(ctx, c, id, dir) {
			return reclass(err, errdefs.IsInternal, errdefs.ErrFailedPrecondition)
		}
		return err
	})
	if errors.Is(err, errSource) {
		err = src.release() // the caller's own error, with its own class
	}
	return about(fmt.Sprintf("write to %s in container %s", dir, id), err)
}

// errSource replaces the reader's error during the call, so that it is not classified as the engine's.
var errSource = errors.New("the archive could not be read")

// source records its reader's error and stops using the reader on release: net/http may read a request's body after the response.
type source struct {
	r io.Reader

	mu       sync.Mutex
	released bool
	err      error
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	released := s.released
	s.mu.Unlock()
	if released {
		return 0, io.ErrClosedPipe
	}
	n, err := s.r.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && err != io.EOF && !s.released {
		s.err = err
	}
	return n, err
}

// release stops the use of the reader and returns its error; nil if it had none.
func (s *source) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	return s.err
}
