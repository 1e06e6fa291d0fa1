package dockerx

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// The methods of this file and of files_write.go access the files of a running or stopped container, its mounts included:
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

func checkFile(mode fs.FileMode, size, limit int64) error {
	if !mode.IsRegular() {
		return fmt.Errorf("not a regular file (%s): %w", mode, errdefs.ErrFailedPrecondition)
	}
	if size > limit {
		return fmt.Errorf("the file has %d bytes, more than the limit of %d: %w", size, limit, errdefs.ErrOutOfRange)
	}
	return nil
}
