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

// The methods of this file and of files_write.go see the files of a container, its mounts included, whether it runs or not:
// the engine mounts what does not run for as long as the call takes, and fails (ErrInternal) when the source of a mount is
// gone. Links are followed inside the container only.

// PathInfo is what there is at a path of a container.
type PathInfo struct {
	// Mode has the type and the permissions.
	Mode fs.FileMode
	// LinkTarget is where a symbolic link leads in the end, as an absolute path in the container; it may not exist.
	LinkTarget string
}

// StatPath looks at one path of a container, from its root; a link at its end is not followed. Errors: ErrNotFound when
// there is no such container or path; ErrUnavailable.
func (e *Engine) StatPath(ctx context.Context, id, name string) (PathInfo, error) {
	var info PathInfo
	err := e.do(ctx, OpStatPath, func(ctx context.Context, c *client.Client) error {
		st, err := statPath(ctx, c, id, path.Join("/", name))
		info = PathInfo{Mode: st.Mode, LinkTarget: st.LinkTarget}
		return err
	})
	if err != nil {
		return PathInfo{}, fmt.Errorf("look at %s in container %s: %w", name, id, err)
	}
	return info, nil
}

// statPath asks for one path. One that leads through a file, such as /etc/passwd/x, is ErrInternal to 20.10, as is
// trouble with the container, so it looks at the directories before it says that there is none.
func statPath(ctx context.Context, c *client.Client, id, name string) (container.PathStat, error) {
	st, err := c.ContainerStatPath(ctx, id, name)
	if errdefs.IsInternal(err) && name != "/" && !isDirectory(ctx, c, id, path.Dir(name)) {
		return st, reclass(err, errdefs.IsInternal, errdefs.ErrNotFound)
	}
	return st, err
}

// isDirectory reports whether name is a directory or leads to one; true when the engine does not say.
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

// ReadContainerFile returns the content of a regular file of at most limit bytes, or of the one that a link leads to.
//
// Errors: ErrNotFound when there is no such container or file; ErrFailedPrecondition for anything but a regular file,
// which is not opened; ErrOutOfRange for a file of more than limit bytes; ErrUnavailable, also when the file changed its
// size meanwhile.
func (e *Engine) ReadContainerFile(ctx context.Context, id, name string, limit int64) ([]byte, error) {
	var content []byte
	err := e.do(ctx, OpReadFile, func(ctx context.Context, c *client.Client) (err error) {
		content, err = readFile(ctx, c, id, path.Join("/", name), limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s in container %s: %w", name, id, err)
	}
	return content, nil
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
	// Whatever runs in the container may have put something else there.
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
		return fmt.Errorf("%d bytes, more than %d: %w", size, limit, errdefs.ErrOutOfRange)
	}
	return nil
}
