package dockerx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// WriteTar unpacks an archive into a directory of a container, which must exist; within bounds the whole of it (0:
// Deadline(OpWriteTar)). Memory is constant.
//
// Files get the owner (uid and gid), mode and time of their headers; directories that the archive does not name are root's
// with mode 0755. What exists is replaced file by file, directories are merged, and a directory is never replaced by
// anything else, nor anything else by a directory. The writable mounts of the container are part of it: what the archive
// has below their targets lands in their sources, on the host. An entry whose name leads out of dir is refused. All this
// was seen on 20.10.
//
// The engine unpacks compressed archives too, and tells them by their first bytes, in which the first name is: one that begins
// with "BZh" would be taken for bzip2. Begin with a global header.
//
// What was unpacked before an error stays. An error of the reader is returned as such, with no class of this package's.
// Others: ErrNotFound when there is no such container or directory; ErrFailedPrecondition when dir is no directory;
// ErrInternal when an entry can't be unpacked (20.10: for whatever reason: a directory in its way, a read-only mount, a full
// disk, a broken archive); ErrUnavailable.
//
// The reader is not used after the return, except that a Read under way goes on, and what it reads is lost.
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
		err = src.release() // the caller's own, whatever class it may have
	}
	if err != nil {
		return fmt.Errorf("write to %s in container %s: %w", dir, id, err)
	}
	return nil
}

// errSource stands for the error of a source where it must not be classified as the engine's.
var errSource = errors.New("the archive could not be read")

// source keeps its reader's error, and gives the reader back: net/http may go on reading a request's body after the answer.
type source struct {
	r io.Reader

	mu       sync.Mutex
	released bool
	err      error
}

// Read implements io.Reader.
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

// release ends the use of the reader and returns its error, nil at its end.
func (s *source) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	return s.err
}
