package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// File returns the content of a regular file in a container's own filesystem, by ID or name. Links are followed; mounts
// are ignored: writes below a mount's target are kept with the container.
func (f *Fake) File(id, name string) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.find(id)
	if err != nil {
		return nil, false
	}
	n, _, err := c.files.stat(name, true)
	return slices.Clone(n.content), err == nil && n.mode.IsRegular()
}

// StatPath implements Subject.
func (f *Fake) StatPath(ctx context.Context, id, name string) (dockerx.PathInfo, error) {
	return askOf(ctx, f, dockerx.OpStatPath, id, func(c *fakeContainer) (info dockerx.PathInfo, err error) {
		n, place, err := c.files.stat(name, false)
		info.Mode = n.mode
		if n.mode&fs.ModeSymlink != 0 {
			info.LinkTarget, _ = c.files.resolve(place, true)
		}
		return info, err
	})
}

// ReadContainerFile implements Subject.
func (f *Fake) ReadContainerFile(ctx context.Context, id, name string, limit int64) ([]byte, error) {
	return askOf(ctx, f, dockerx.OpReadFile, id, func(c *fakeContainer) ([]byte, error) {
		n, _, err := c.files.stat(name, true)
		switch {
		case err != nil:
			return nil, err
		case !n.mode.IsRegular():
			return nil, fmt.Errorf("%s is not a regular file (%s): %w", name, n.mode, errdefs.ErrFailedPrecondition)
		case int64(len(n.content)) > limit:
			return nil, fmt.Errorf("%s has more than %d bytes: %w", name, limit, errdefs.ErrOutOfRange)
		}
		return slices.Clone(n.content), nil
	})
}

// ReadTar implements Subject. As with mounts, the fake has no owners and times.
func (f *Fake) ReadTar(ctx context.Context, id, name string, read func(io.Reader) error) error {
	packed, err := askOf(ctx, f, dockerx.OpReadTar, id, func(c *fakeContainer) (*bytes.Buffer, error) { return c.files.pack(name) })
	if err != nil {
		return err
	}
	return read(packed)
}

// WriteTar implements Subject. It waits for a reader that hangs; the deadline is checked between entries.
func (f *Fake) WriteTar(ctx context.Context, id, dir string, within time.Duration, archive io.Reader) error {
	if within <= 0 {
		within = dockerx.Deadline(dockerx.OpWriteTar)
	}
	callCtx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := f.callUnlocked(callCtx, dockerx.OpWriteTar, func(ctx context.Context) error {
		err := f.locked(func() error {
			_, _, err := f.target(id, dir)
			return err
		})
		if err != nil {
			return err
		}
		return f.unpackAll(ctx, id, dir, archive)
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && callCtx.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", within, errdefs.ErrUnavailable)
	}
	if err != nil {
		return fmt.Errorf("write to %s in container %s: %w", dir, id, err)
	}
	return nil
}

// target returns a container and a directory of it, without links. Called with mu held.
func (f *Fake) target(id, dir string) (*fakeContainer, string, error) {
	c, err := f.find(id)
	if err != nil {
		return nil, "", err
	}
	n, place, err := c.files.stat(dir, true)
	if err == nil && !n.mode.IsDir() {
		err = fmt.Errorf("%s is not a directory: %w", dir, errdefs.ErrFailedPrecondition)
	}
	return c, place, err
}

func (f *Fake) unpackAll(ctx context.Context, id, dir string, archive io.Reader) error {
	src := &source{r: archive}
	for entries := tar.NewReader(src); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) && src.err == nil {
			return nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(entries)
		}
		switch {
		case src.err != nil:
			return src.err
		case err != nil:
			return fmt.Errorf("broken archive: %w: %w", err, errdefs.ErrInternal)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := f.unpackOne(id, dir, h, content); err != nil {
			return err
		}
	}
}

func (f *Fake) unpackOne(id, dir string, h *tar.Header, content []byte) error {
	return f.locked(func() error {
		c, place, err := f.target(id, dir)
		if err != nil {
			return err
		}
		return c.files.unpack(place, h, content)
	})
}

// source keeps the error of a reader.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
