package dockertest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

// AddImageFile adds a file, and the directories above it, to an image that AddImage or AddRemoteImage has added.
// Containers get it when they are created. Every image has /etc and /tmp.
func (f *Fake) AddImageFile(ref, name, content string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	img, ok := f.image(ref)
	if !ok {
		img = f.registry[ref]
	}
	t := f.files(img.ID)
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join("/", name), Mode: 0o644}
	if err := t.unpack("/", h, []byte(content)); err != nil {
		panic(err) // a mistake in the test
	}
	f.imageFiles[img.ID] = t
}

// files returns a copy of an image's files. Called with mu held.
func (f *Fake) files(imageID string) tree {
	if t, ok := f.imageFiles[imageID]; ok {
		return maps.Clone(t)
	}
	return newTree()
}

// File returns the content of a regular file in a container's own filesystem, by ID or name. Links are followed; mounts
// are ignored: writes below a mount's target are kept with the container.
func (f *Fake) File(id, name string) ([]byte, bool) {
	n, ok := f.fileNode(id, name)
	return slices.Clone(n.content), ok && n.mode.IsRegular()
}

// Owner returns the owner of a file, link or directory.
func (f *Fake) Owner(id, name string) (uid, gid int, ok bool) {
	n, ok := f.fileNode(id, name)
	return n.uid, n.gid, ok
}

func (f *Fake) fileNode(id, name string) (n node, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.find(id)
	if err == nil {
		n, _, err = c.files.stat(name, true)
	}
	return n, err == nil
}

// StatPath implements Engine.
func (f *Fake) StatPath(ctx context.Context, id, name string) (dockerx.PathInfo, error) {
	var info dockerx.PathInfo
	err := f.call(ctx, dockerx.OpStatPath, func() error {
		c, err := f.find(id)
		if err != nil {
			return err
		}
		n, place, err := c.files.stat(name, false)
		info.Mode = n.mode
		if n.mode&fs.ModeSymlink != 0 {
			info.LinkTarget, _ = c.files.resolve(place, true)
		}
		return err
	})
	if err != nil {
		return dockerx.PathInfo{}, err
	}
	return info, nil
}

// ReadContainerFile implements Engine.
func (f *Fake) ReadContainerFile(ctx context.Context, id, name string, limit int64) ([]byte, error) {
	var content []byte
	err := f.call(ctx, dockerx.OpReadFile, func() error {
		c, err := f.find(id)
		if err != nil {
			return err
		}
		n, _, err := c.files.stat(name, true)
		switch {
		case err != nil:
			return err
		case !n.mode.IsRegular():
			return fmt.Errorf("%s is not a regular file (%s): %w", name, n.mode, errdefs.ErrFailedPrecondition)
		case int64(len(n.content)) > limit:
			return fmt.Errorf("%s has more than %d bytes: %w", name, limit, errdefs.ErrOutOfRange)
		}
		content = slices.Clone(n.content)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return content, nil
}

// WriteTar implements Engine. It waits for a reader that hangs; the deadline is checked between entries.
func (f *Fake) WriteTar(ctx context.Context, id, dir string, within time.Duration, archive io.Reader) error {
	if within <= 0 {
		within = dockerx.Deadline(dockerx.OpWriteTar)
	}
	callCtx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := f.callUnlocked(callCtx, dockerx.OpWriteTar, func(ctx context.Context) error {
		if err := f.checkTarget(id, dir); err != nil {
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

func (f *Fake) checkTarget(id, dir string) error {
	return f.locked(func() error {
		_, _, err := f.target(id, dir)
		return err
	})
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

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
