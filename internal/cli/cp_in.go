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
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/filetree"
	"github.com/agbox/agbox/internal/wait"
)

// copyIn copies a local file, a tree, or a tar stream into a sandbox.
func (a *app) copyIn(ctx context.Context, local string, to place, o cpOptions) error {
	sb, err := a.sandboxKind().resolve(ctx, to.name)
	if err != nil {
		return err
	}
	id := sb.GetSandboxId()
	c := a.startCopy("copying to " + to.name)
	defer c.stop()
	if local == "-" {
		return c.unpackIn(ctx, &agboxv1.WriteArchiveStart{SandboxId: id, Path: to.path, User: o.user, KeepOwners: o.archive}, a.In)
	}
	st, err := os.Lstat(local)
	if err == nil && o.follow {
		st, err = os.Stat(local)
	}
	if err != nil {
		return err
	}
	t, err := a.remoteTarget(ctx, id, to.path, o.user)
	if err != nil {
		return err
	}
	absolute, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	dir, name, err := copySource{st.IsDir(), filepath.Base(absolute), contents(local)}.landing(t)
	if err != nil {
		return err
	}
	if st.Mode().IsRegular() && !o.archive {
		return c.fileIn(ctx, id, absolute, dir, name, o.user)
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := filetree.Pack(w, local, filetree.PackOptions{Name: name, Follow: o.follow, Skipped: c.skip})
		packed <- errors.Join(err, w.CloseWithError(err))
	}()
	err = c.unpackIn(ctx, &agboxv1.WriteArchiveStart{SandboxId: id, Path: dir, User: o.user, KeepOwners: o.archive}, r)
	_ = r.CloseWithError(io.ErrClosedPipe)
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) {
		return perr
	}
	return c.outcome(err)
}

// contents reports whether a path means the content of a directory.
func contents(path string) bool { return path == "." || strings.HasSuffix(path, "/.") }

func (c *copying) unpackIn(ctx context.Context, start *agboxv1.WriteArchiveStart, r io.Reader) error {
	resp, err := c.a.conn().WriteArchive(ctx, start, c.reader(r))
	for _, text := range resp.GetSkipped() {
		c.skip(text)
	}
	return c.outcome(err)
}

func (a *app) remoteTarget(ctx context.Context, id, path, user string) (copyTarget, error) {
	e, err := a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: id, Path: path, User: user, Follow: true})
	if client.Reason(err) == client.ReasonFileNotFound {
		return copyTarget{path: path}, nil
	}
	return copyTarget{path, err == nil, e.GetType() == agboxv1.FileType_FILE_TYPE_DIRECTORY}, err
}

// fileIn copies one regular file.
func (c *copying) fileIn(ctx context.Context, id, local, dir, name, user string) error {
	f, err := os.OpenFile(local, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	mode := bits(st.Mode())
	final := strings.TrimSuffix(dir, "/") + "/" + name
	start := &agboxv1.WriteFileStart{SandboxId: id, Path: final, User: user, Mode: &mode, ModifiedAt: timestamppb.New(st.ModTime())}
	if st.Size() < resumableBytes {
		_, err := c.a.conn().WriteFile(ctx, start, c.reader(f))
		return err
	}
	return c.largeIn(ctx, f, st, start)
}

// largeIn uploads to a file beside the target, from where an earlier upload of the same file was cut off, and renames it at the end.
func (c *copying) largeIn(ctx context.Context, f *os.File, st os.FileInfo, final *agboxv1.WriteFileStart) error {
	part := partName(final.GetPath(), fmt.Sprintf("%s %d %d", f.Name(), st.Size(), st.ModTime().UnixNano()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lost time.Time // since when nothing was sent
	for {
		sent, err := c.continueIn(ctx, f, part, final)
		if err == nil {
			break
		}
		now := time.Now()
		if sent || lost.IsZero() {
			lost = now
		}
		if !client.IsUnavailable(err) || now.Sub(lost) > copyPatience {
			return fmt.Errorf("%w; the same command continues the copy", err)
		}
		if err := wait.For(ctx, retryEvery); err != nil {
			return err
		}
	}
	if again, err := f.Stat(); err != nil || again.Size() != st.Size() || !again.ModTime().Equal(st.ModTime()) {
		return errors.Join(fmt.Errorf("%s changed while it was copied; copy it again", f.Name()), err)
	}
	_, err := c.a.conn().MoveFile(ctx, &agboxv1.MoveRequest{SandboxId: final.GetSandboxId(), User: final.GetUser(), FromPath: part, ToPath: final.GetPath()})
	return err
}

// continueIn sends what is missing. sent reports whether it sent anything.
func (c *copying) continueIn(ctx context.Context, f *os.File, part string, final *agboxv1.WriteFileStart) (sent bool, err error) {
	e, err := c.a.conn().StatFile(ctx, &agboxv1.StatRequest{SandboxId: final.GetSandboxId(), User: final.GetUser(), Path: part})
	if err != nil && client.Reason(err) != client.ReasonFileNotFound {
		return false, err
	}
	at := e.GetSizeBytes()
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return false, err
	}
	c.bytes.Store(at)
	_, err = c.a.conn().WriteFile(ctx, &agboxv1.WriteFileStart{
		SandboxId: final.GetSandboxId(), User: final.GetUser(), Path: part, Offset: &at, Mode: final.Mode, ModifiedAt: final.GetModifiedAt(),
	}, c.reader(f))
	return c.bytes.Load() > at, err
}

// bits returns the bits of chmod(2).
func bits(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			mode |= bit
		}
	}
	return mode
}
