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

// release stops the use of the reader and returns its error; nil if it had none.
func (s *source) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	return s.err
}
