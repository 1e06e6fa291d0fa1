package client

import (
	"context"
	"io"
	"io/fs"
	"path"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// FS returns the files of a sandbox as one of its users as an fs.FS, whose root is "/"; an empty user is that of the sandbox's execs. The
// context bounds all its operations. It also implements fs.StatFS, fs.ReadDirFS and fs.ReadLinkFS.
func (c *Client) FS(ctx context.Context, sandboxID, user string) fs.FS {
	return &sandboxFS{c: c, ctx: ctx, sandboxID: sandboxID, user: user}
}

type sandboxFS struct {
	c               *Client
	ctx             context.Context //nolint:containedctx // fs.FS has none
	sandboxID, user string
}

func (s *sandboxFS) stat(op, name string, follow bool) (*agboxv1.FileEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	e, err := s.c.StatFile(s.ctx, &agboxv1.StatRequest{SandboxId: s.sandboxID, User: s.user, Path: path.Join("/", name), Follow: follow})
	return e, pathError(op, name, err)
}

// pathError makes the errors of package fs of those of the API.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	switch Reason(err) {
	case ReasonFileNotFound:
		err = fs.ErrNotExist
	case ReasonFileExists:
		err = fs.ErrExist
	case ReasonFilePermission:
		err = fs.ErrPermission
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS.
func (s *sandboxFS) Open(name string) (fs.File, error) {
	e, err := s.stat("open", name, true)
	if err != nil {
		return nil, err
	}
	if e.GetType() == agboxv1.FileType_FILE_TYPE_DIRECTORY {
		return &openDir{fs: s, name: name, info: info{e, path.Base(name)}}, nil
	}
	f, err := s.c.OpenFile(s.ctx, &agboxv1.ReadFileRequest{SandboxId: s.sandboxID, User: s.user, Path: path.Join("/", name)})
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return &openFile{RemoteFile: f, info: info{f.Entry(), path.Base(name)}}, nil
}

// Stat implements fs.StatFS.
func (s *sandboxFS) Stat(name string) (fs.FileInfo, error) {
	e, err := s.stat("stat", name, true)
	if err != nil {
		return nil, err
	}
	return info{e, path.Base(name)}, nil
}

// Lstat implements fs.ReadLinkFS.
func (s *sandboxFS) Lstat(name string) (fs.FileInfo, error) {
	e, err := s.stat("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return info{e, path.Base(name)}, nil
}

// ReadLink implements fs.ReadLinkFS.
func (s *sandboxFS) ReadLink(name string) (string, error) {
	e, err := s.stat("readlink", name, false)
	if err != nil {
		return "", err
	}
	if e.GetType() != agboxv1.FileType_FILE_TYPE_SYMLINK {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return e.GetLinkTarget(), nil
}

// ReadDir implements fs.ReadDirFS.
func (s *sandboxFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	var list []fs.DirEntry
	for e, err := range s.c.ListDir(s.ctx, &agboxv1.ListDirRequest{SandboxId: s.sandboxID, User: s.user, Path: path.Join("/", name)}) {
		if err != nil {
			return list, pathError("readdir", name, err)
		}
		if len(e.GetRawName()) == 0 { // no path can name the others
			list = append(list, fs.FileInfoToDirEntry(info{e, e.GetName()}))
		}
	}
	return list, nil
}

// info implements fs.FileInfo. Sys returns the *agboxv1.FileEntry.
type info struct {
	e    *agboxv1.FileEntry
	name string
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.e.GetSizeBytes() }
func (i info) ModTime() time.Time { return i.e.GetModifiedAt().AsTime() }
func (i info) IsDir() bool        { return i.Mode().IsDir() }
func (i info) Sys() any           { return i.e }

// Mode implements fs.FileInfo.
func (i info) Mode() fs.FileMode {
	mode := fs.FileMode(i.e.GetMode() & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if i.e.GetMode()&bit != 0 {
			mode |= flag
		}
	}
	switch i.e.GetType() {
	case agboxv1.FileType_FILE_TYPE_DIRECTORY:
		mode |= fs.ModeDir
	case agboxv1.FileType_FILE_TYPE_SYMLINK:
		mode |= fs.ModeSymlink
	case agboxv1.FileType_FILE_TYPE_OTHER:
		mode |= fs.ModeIrregular
	}
	return mode
}

type openFile struct {
	*RemoteFile
	info info
}

// Stat implements fs.File.
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// openDir implements fs.ReadDirFile.
type openDir struct {
	fs   *sandboxFS
	name string
	info info
	list []fs.DirEntry
	read bool
}

// Stat implements fs.File.
func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Read implements fs.File.
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: fs.ErrInvalid}
}

// Close implements fs.File.
func (d *openDir) Close() error { return nil }

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.read {
		list, err := d.fs.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.list, d.read = list, true
	}
	if n <= 0 {
		n = len(d.list)
	} else if len(d.list) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.list))
	page := d.list[:n:n]
	d.list = d.list[n:]
	return page, nil
}
