package server

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/store"
)

const (
	// maxLinks is how many symbolic links a path may lead through, as in the kernel.
	maxLinks = 40
	// maxStoppedEntries bounds the memory of a listing.
	maxStoppedEntries = 100_000
	// stoppedDeadline bounds a listing: the engine packs the whole tree, contents too.
	stoppedDeadline = 2 * time.Minute
)

// Archives calls read with the file or tree at an absolute path of a sandbox's primary as a tar stream; its names start with the last element
// of the path. A symbolic link at the end is not followed. Errors: ErrNotFound when the path does not exist; ErrFailedPrecondition when the
// container does not; ErrUnavailable; those of read.
type Archives func(ctx context.Context, sandboxID, path string, read func(io.Reader) error) error

// stoppedFiles reads the files of one path of a sandbox that does not run. The stream comes from the engine, and nothing of it is written
// to this host or looked up there: links are texts.
type stoppedFiles struct {
	open            Archives
	sandboxID, path string
}

// engine returns the files of a sandbox that does not run; nil if it is READY.
func (f *files) engine(ctx context.Context, req interface {
	GetSandboxId() string
	GetPath() string
}) (*stoppedFiles, error) {
	if err := required("sandbox_id", req.GetSandboxId()); err != nil {
		return nil, err
	}
	if err := required("path", req.GetPath()); err != nil {
		return nil, err
	}
	sb, err := f.store.Sandbox(ctx, req.GetSandboxId())
	if err != nil {
		return nil, err
	}
	switch sb.State {
	case agboxv1.SandboxState_SANDBOX_STATE_STOPPED, agboxv1.SandboxState_SANDBOX_STATE_FAILED:
	default:
		return nil, ready(sb)
	}
	if !path.IsAbs(req.GetPath()) {
		return nil, invalid("path", fmt.Sprintf("sandbox %s does not run, so path must be absolute", sb.ID))
	}
	return &stoppedFiles{open: f.archives, sandboxID: sb.ID, path: req.GetPath()}, nil
}

func (s *stoppedFiles) refuse(reason, format string, args ...any) error {
	return &store.Refusal{
		Class: cmp.Or(classes[reason], error(errdefs.ErrFailedPrecondition)), Reason: reason, Message: fmt.Sprintf(format, args...),
		Metadata: map[string]string{"sandbox_id": s.sandboxID, "path": s.path},
	}
}

// errFollow ends the reading of an archive whose root is a symbolic link that is to be followed.
var errFollow = errors.New("a symbolic link")

// with calls read with the archive at the path, behind its first header. With follow it goes on where a symbolic link leads.
func (s *stoppedFiles) with(ctx context.Context, follow bool, read func(name string, tr *tar.Reader, h *tar.Header) error) error {
	name := path.Clean(s.path)
	for range maxLinks {
		var target string
		err := s.packed(ctx, name, func(r io.Reader) error {
			tr := tar.NewReader(r)
			h, err := tr.Next()
			if err != nil {
				return s.cut(err)
			}
			if h.Typeflag == tar.TypeSymlink && follow {
				target = h.Linkname
				return errFollow
			}
			return read(name, tr, h)
		})
		if !errors.Is(err, errFollow) {
			return err
		}
		if path.IsAbs(target) {
			name = path.Clean(target)
		} else {
			name = path.Join(path.Dir(name), target)
		}
	}
	return s.refuse(channel.FileType, "%s leads through more than %d symbolic links", s.path, maxLinks)
}

// packed opens an archive of the engine.
func (s *stoppedFiles) packed(ctx context.Context, name string, read func(io.Reader) error) error {
	err := s.open(ctx, s.sandboxID, name, read)
	if _, ok := errors.AsType[*store.Refusal](err); ok || err == nil {
		return err
	}
	switch {
	case errdefs.IsNotFound(err):
		return s.refuse(channel.FileNotFound, "%s was not found in sandbox %s", name, s.sandboxID)
	case errdefs.IsFailedPrecondition(err):
		return s.refuse("SANDBOX_NOT_READY", "the container of sandbox %s is gone", s.sandboxID)
	}
	return err
}

func (s *stoppedFiles) cut(err error) error {
	return fmt.Errorf("read the engine's archive of %s in sandbox %s: %w: %w", s.path, s.sandboxID, err, errdefs.ErrUnavailable)
}

func entryOfHeader(h *tar.Header, full string) *agboxv1.FileEntry {
	e := &agboxv1.FileEntry{
		Name: path.Base(full), Path: full, SizeBytes: h.Size, Mode: uint32(h.Mode) & 0o7777, Uid: uint32(h.Uid), Gid: uint32(h.Gid),
		ModifiedAt: timestamppb.New(h.ModTime), Type: agboxv1.FileType_FILE_TYPE_OTHER,
	}
	if !utf8.ValidString(full) {
		e.RawName = []byte(e.Name)
		e.Name, e.Path = strings.ToValidUTF8(e.Name, "\uFFFD"), strings.ToValidUTF8(full, "\uFFFD")
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeLink:
		e.Type = agboxv1.FileType_FILE_TYPE_REGULAR
	case tar.TypeDir:
		e.Type = agboxv1.FileType_FILE_TYPE_DIRECTORY
	case tar.TypeSymlink:
		e.Type, e.LinkTarget = agboxv1.FileType_FILE_TYPE_SYMLINK, strings.ToValidUTF8(h.Linkname, "\uFFFD")
	}
	return e
}

func (s *stoppedFiles) stat(ctx context.Context, follow bool) (*agboxv1.FileEntry, error) {
	var e *agboxv1.FileEntry
	err := s.with(ctx, follow, func(name string, _ *tar.Reader, h *tar.Header) error {
		e = entryOfHeader(h, name)
		return nil
	})
	return e, err
}

func (s *stoppedFiles) read(ctx context.Context, req *agboxv1.ReadFileRequest, send func(*agboxv1.ReadFileResponse) error) error {
	return s.with(ctx, true, func(name string, tr *tar.Reader, h *tar.Header) error {
		if h.Typeflag != tar.TypeReg {
			return s.refuse(channel.FileType, "read %s: it is not a regular file", name)
		}
		if req.GetOffset() > h.Size {
			return s.refuse(channel.FileOffset, "%s has %d bytes; offset %d is beyond its end", name, h.Size, req.GetOffset())
		}
		if err := send(&agboxv1.ReadFileResponse{Entry: entryOfHeader(h, name)}); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, tr, req.GetOffset()); err != nil {
			return s.cut(err)
		}
		var r io.Reader = tr
		if limit := req.GetLimitBytes(); limit > 0 {
			r = io.LimitReader(tr, limit)
		}
		return s.pieces(r, func(data []byte) error { return send(&agboxv1.ReadFileResponse{Data: data}) })
	})
}

func (s *stoppedFiles) archive(ctx context.Context, follow bool, send func(*agboxv1.ArchiveChunk) error) error {
	name := path.Clean(s.path)
	if follow {
		err := s.with(ctx, true, func(resolved string, _ *tar.Reader, _ *tar.Header) error {
			name = resolved
			return nil
		})
		if err != nil {
			return err
		}
	}
	if strings.HasSuffix(s.path, "/.") {
		name += "/."
	}
	return s.packed(ctx, name, func(r io.Reader) error {
		return s.pieces(r, func(data []byte) error { return send(&agboxv1.ArchiveChunk{Data: data}) })
	})
}

func (s *stoppedFiles) pieces(r io.Reader, send func([]byte) error) error {
	for data, err := range agboxv1.Pieces(r) {
		if err != nil {
			return s.cut(err)
		}
		if err := send(data); err != nil {
			return err
		}
	}
	return nil
}

// list reads the whole archive of the tree, keeps the entries down to the depth, and sends them sorted.
func (s *stoppedFiles) list(ctx context.Context, req *agboxv1.ListDirRequest, send func(*agboxv1.ListDirResponse) error) error {
	ctx, cancel := context.WithTimeout(ctx, stoppedDeadline)
	defer cancel()
	var all []*agboxv1.FileEntry
	var name string
	err := s.with(ctx, true, func(resolved string, tr *tar.Reader, h *tar.Header) (err error) {
		if h.Typeflag != tar.TypeDir {
			return s.refuse(channel.FileType, "list %s: it is not a directory", resolved)
		}
		name = resolved
		all, err = s.entries(tr, h.Name, name, int(max(req.GetDepth(), 1)))
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *agboxv1.FileEntry) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	if after := req.GetAfter(); after != "" {
		last := strings.Split(path.Join(name, after), "/")
		all = slices.DeleteFunc(all, func(e *agboxv1.FileEntry) bool { return slices.Compare(strings.Split(e.Path, "/"), last) <= 0 })
	}
	more := false
	if limit := int(req.GetLimit()); limit > 0 && len(all) > limit {
		all, more = all[:limit], true
	}
	const page = 256
	for len(all) > page {
		if err := send(&agboxv1.ListDirResponse{Entries: all[:page]}); err != nil {
			return err
		}
		all = all[page:]
	}
	return send(&agboxv1.ListDirResponse{Entries: all, More: more})
}

// entries returns the entries of the archive at most depth levels below its root.
func (s *stoppedFiles) entries(tr *tar.Reader, root, name string, depth int) (all []*agboxv1.FileEntry, err error) {
	sizes := map[string]int64{} // of files that a hard link may name
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, s.cut(err)
		}
		rel := strings.Trim(strings.TrimPrefix(h.Name, root), "/")
		if rel == "" || strings.Count(rel, "/") >= depth {
			continue
		}
		if len(all) == maxStoppedEntries {
			return nil, s.refuse(channel.FileNoSpace, "%s has more than %d entries, too many to list while the sandbox does not run; read it as an archive", name, maxStoppedEntries)
		}
		e := entryOfHeader(h, path.Join(name, rel))
		if h.Typeflag == tar.TypeLink {
			e.SizeBytes = sizes[h.Linkname]
		} else if h.Size > 0 {
			sizes[h.Name] = h.Size
		}
		all = append(all, e)
	}
}
