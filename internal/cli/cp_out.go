package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/filetree"
	"github.com/agbox/agbox/internal/termsafe"
)

// copyOut copies a file or a tree of a sandbox to a local path, or as a tar stream to standard output.
func (a *app) copyOut(ctx context.Context, from place, local string, o cpOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, from.name)
	if err != nil {
		return err
	}
	id := sb.GetSandboxId()
	c := a.startCopy("copying from " + from.name)
	defer c.stop()
	req := &agboxv1.ReadArchiveRequest{SandboxId: id, Path: from.path, User: o.user, Follow: o.follow}
	if local == "-" {
		if isTerminal(a.Out) {
			return errors.New("a tar stream is not written to a terminal; redirect it")
		}
		return c.outcome(a.conn().ReadArchive(ctx, req, c.writer(termsafe.Unfiltered(a.Out)), c.skip))
	}
	e, err := a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: id, Path: from.path, User: o.user, Follow: o.follow})
	if err != nil {
		return err
	}
	t, err := localTarget(local)
	if err != nil {
		return err
	}
	isDir := e.GetType() == agboxv1.FileType_FILE_TYPE_DIRECTORY
	base := pathBase(from.path, e)
	dir, name, err := copySource{isDir, base, contents(from.path)}.landing(t)
	if err != nil {
		return err
	}
	if e.GetType() == agboxv1.FileType_FILE_TYPE_REGULAR && !o.archive {
		return c.fileOut(ctx, &agboxv1.ReadFileRequest{SandboxId: id, Path: from.path, User: o.user}, filepath.Join(dir, name))
	}
	root := base
	if contents(from.path) || base == "/" {
		root = "."
	}
	r, w := io.Pipe()
	received := make(chan error, 1)
	go func() {
		err := a.conn().ReadArchive(ctx, req, c.writer(w), c.skip)
		received <- errors.Join(err, w.CloseWithError(err))
	}()
	_, err = filetree.Unpack(r, dir, filetree.UnpackOptions{KeepOwners: o.archive, Untrusted: !o.archive, Rename: renamer(root, name), Skipped: c.skip})
	if err == nil {
		_, err = io.Copy(io.Discard, r) // padding
	}
	_ = r.CloseWithError(io.ErrClosedPipe)
	if rerr := <-received; rerr != nil && !errors.Is(rerr, io.ErrClosedPipe) {
		return rerr
	}
	return c.outcome(err)
}

// pathBase is the name of a source: the last element of its path, or of the directory that "." is.
func pathBase(path string, e *agboxv1.FileEntry) string {
	path = strings.TrimSuffix(path, "/.")
	if path == "." || path == "" {
		path = strings.TrimSuffix(e.GetPath(), "/.")
	}
	return filepath.Base(path)
}

func localTarget(path string) (copyTarget, error) {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return copyTarget{path: path}, nil
	}
	if err != nil {
		return copyTarget{}, err
	}
	return copyTarget{path, true, st.IsDir()}, nil
}

// fileOut copies one regular file to a file beside the target and renames it at the end. One that is large is kept when the copy is cut off.
func (c *copying) fileOut(ctx context.Context, req *agboxv1.ReadFileRequest, final string) (err error) {
	st, err := c.a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: req.GetSandboxId(), User: req.GetUser(), Path: req.GetPath(), Follow: true})
	if err != nil {
		return err
	}
	if st, err := os.Stat(final); err == nil && !st.Mode().IsRegular() { // such as /dev/null
		return c.stream(ctx, req, final)
	}
	if resolved, err := filepath.EvalSymlinks(final); err == nil {
		final = resolved
	}
	part := partName(final, st.GetPath()+" "+st.GetVersion())
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	resumable := st.GetSizeBytes() >= resumableBytes && st.GetVersion() != ""
	defer func() {
		f.Close()
		if err != nil && resumable {
			err = fmt.Errorf("%w; the same command continues the copy", err)
		} else if err != nil {
			err = errors.Join(err, os.Remove(part))
		}
	}()
	if resumable {
		if req.Offset, err = f.Seek(0, io.SeekEnd); err != nil {
			return err
		}
	} else if err := f.Truncate(0); err != nil {
		return err
	}
	c.bytes.Store(req.GetOffset())
	r, err := c.a.conn().OpenFile(ctx, req)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was read only
	if r.Entry().GetVersion() != st.GetVersion() {
		return fmt.Errorf("%s changed while it was copied; copy it again", req.GetPath())
	}
	if _, err := io.Copy(c.writer(f), r); err != nil {
		return err
	}
	mode := fs.FileMode(r.Entry().GetMode() & 0o777)
	if err := errors.Join(f.Chmod(mode), os.Chtimes(part, time.Time{}, r.Entry().GetModifiedAt().AsTime()), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, final)
}

// stream copies a file into something that is no regular file.
func (c *copying) stream(ctx context.Context, req *agboxv1.ReadFileRequest, final string) error {
	r, err := c.a.conn().OpenFile(ctx, req)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // it was read only
	f, err := os.OpenFile(final, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(c.writer(f), r)
	return errors.Join(err, f.Close())
}
