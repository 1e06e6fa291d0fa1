package e2b

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"sync"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/e2b/filesystem"
	"github.com/agbox/agbox/client"
)

// maxEntries bounds the answer to a list of a directory.
const maxEntries = 100_000

func (g *Gateway) filesystemRoutes() {
	unary(g, "/filesystem.Filesystem/Stat", func(ctx context.Context, t target, req *filesystem.StatRequest) (*filesystem.StatResponse, error) {
		entry, err := g.stat(ctx, t, req.GetPath())
		return &filesystem.StatResponse{Entry: entry}, err
	})
	unary(g, "/filesystem.Filesystem/ListDir", g.listDir)
	unary(g, "/filesystem.Filesystem/MakeDir", g.makeDir)
	unary(g, "/filesystem.Filesystem/Move", func(ctx context.Context, t target, req *filesystem.MoveRequest) (*filesystem.MoveResponse, error) {
		moved, err := g.api.MoveFile(ctx, &agboxv1.MoveRequest{SandboxId: t.id, FromPath: req.GetSource(), ToPath: req.GetDestination(), User: t.user})
		if err != nil {
			return nil, err
		}
		entry, err := g.entry(ctx, t, moved)
		return &filesystem.MoveResponse{Entry: entry}, err
	})
	unary(g, "/filesystem.Filesystem/Remove", func(ctx context.Context, t target, req *filesystem.RemoveRequest) (*filesystem.RemoveResponse, error) {
		err := g.api.RemoveFile(ctx, &agboxv1.RemoveRequest{SandboxId: t.id, Path: req.GetPath(), User: t.user, Recursive: true})
		if client.Reason(err) == client.ReasonFileNotFound {
			err = nil
		}
		return &filesystem.RemoveResponse{}, err
	})
	streaming(g, "/filesystem.Filesystem/WatchDir", g.watchDir)
	unary(g, "/filesystem.Filesystem/CreateWatcher", g.createWatcher)
	unary(g, "/filesystem.Filesystem/GetWatcherEvents", g.watcherEvents)
	unary(g, "/filesystem.Filesystem/RemoveWatcher", g.removeWatcher)
}

func (g *Gateway) stat(ctx context.Context, t target, name string) (*filesystem.EntryInfo, error) {
	found, err := g.api.StatFile(ctx, &agboxv1.StatRequest{SandboxId: t.id, Path: name, User: t.user})
	if err != nil {
		return nil, err
	}
	return g.entry(ctx, t, found)
}

// entry describes a file as clients know it: a symbolic link has the type of what it leads to.
func (g *Gateway) entry(ctx context.Context, t target, f *agboxv1.FileEntry) (*filesystem.EntryInfo, error) {
	e := &filesystem.EntryInfo{
		Name: f.GetName(), Type: typeOf(f.GetType()), Path: f.GetPath(), Size: f.GetSizeBytes(), Mode: f.GetMode(), Permissions: permissions(f),
		Owner: f.GetOwner(), Group: f.GetGroup(), ModifiedTime: f.GetModifiedAt(),
	}
	if f.GetType() != agboxv1.FileType_FILE_TYPE_SYMLINK {
		return e, nil
	}
	to := f.GetLinkTarget()
	if !path.IsAbs(to) {
		to = path.Join(path.Dir(f.GetPath()), to)
	}
	e.SymlinkTarget = &to
	leadsTo, err := g.api.StatFile(ctx, &agboxv1.StatRequest{SandboxId: t.id, Path: f.GetPath(), User: t.user, Follow: true})
	switch client.Reason(err) {
	case "":
		if err != nil {
			return nil, err
		}
		e.Type = typeOf(leadsTo.GetType())
	case client.ReasonFileNotFound, client.ReasonFilePermission, "FILE_IO": // broken, hidden or a loop: it stays a link
	default:
		return nil, err
	}
	return e, nil
}

func typeOf(t agboxv1.FileType) filesystem.FileType {
	switch t {
	case agboxv1.FileType_FILE_TYPE_REGULAR:
		return filesystem.FileType_FILE_TYPE_FILE
	case agboxv1.FileType_FILE_TYPE_DIRECTORY:
		return filesystem.FileType_FILE_TYPE_DIRECTORY
	case agboxv1.FileType_FILE_TYPE_SYMLINK:
		return filesystem.FileType_FILE_TYPE_SYMLINK
	}
	return filesystem.FileType_FILE_TYPE_UNSPECIFIED
}

// permissions writes the mode of a file as ls -l does.
func permissions(f *agboxv1.FileEntry) string {
	first := map[agboxv1.FileType]string{agboxv1.FileType_FILE_TYPE_DIRECTORY: "d", agboxv1.FileType_FILE_TYPE_SYMLINK: "l"}[f.GetType()]
	if first == "" {
		first = "-"
	}
	return first + fs.FileMode(f.GetMode() & 0o777).String()[1:]
}

func (g *Gateway) listDir(ctx context.Context, t target, req *filesystem.ListDirRequest) (*filesystem.ListDirResponse, error) {
	var found []*agboxv1.FileEntry
	list := &agboxv1.ListDirRequest{SandboxId: t.id, Path: req.GetPath(), User: t.user, Depth: req.GetDepth()}
	for f, err := range g.api.ListDir(ctx, list) {
		if err != nil {
			return nil, err
		}
		if len(found) >= maxEntries {
			return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("the directory has more than 100,000 entries"))
		}
		found = append(found, f)
	}
	entries, err := g.entries(ctx, t, found)
	return &filesystem.ListDirResponse{Entries: entries}, err
}

// entriesAtOnce bounds how many symbolic links of a directory are followed at once.
const entriesAtOnce = 16

// entries describes files, in their order.
func (g *Gateway) entries(ctx context.Context, t target, found []*agboxv1.FileEntry) ([]*filesystem.EntryInfo, error) {
	entries := make([]*filesystem.EntryInfo, len(found))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(entriesAtOnce)
	for i, f := range found {
		describe := func() (err error) {
			entries[i], err = g.entry(ctx, t, f)
			return err
		}
		if f.GetType() == agboxv1.FileType_FILE_TYPE_SYMLINK {
			group.Go(describe) // one call for each
		} else if err := describe(); err != nil {
			return nil, errors.Join(err, group.Wait())
		}
	}
	return entries, group.Wait()
}

// makeDir creates a directory with its parents. Errors: already_exists.
func (g *Gateway) makeDir(ctx context.Context, t target, req *filesystem.MakeDirRequest) (*filesystem.MakeDirResponse, error) {
	mk := &agboxv1.MakeDirRequest{SandboxId: t.id, Path: req.GetPath(), User: t.user}
	made, err := g.api.MakeDir(ctx, mk)
	if client.Reason(err) == client.ReasonFileNotFound {
		mk.Parents = true
		made, err = g.api.MakeDir(ctx, mk)
	}
	if err != nil {
		return nil, err
	}
	entry, err := g.entry(ctx, t, made)
	return &filesystem.MakeDirResponse{Entry: entry}, err
}

// watchDir sends the changes below a directory until the client leaves. Errors: resource_exhausted if changes were lost.
func (g *Gateway) watchDir(ctx context.Context, t target, req *connect.Request[filesystem.WatchDirRequest], stream *connect.ServerStream[filesystem.WatchDirResponse]) error {
	var mu sync.Mutex
	send := func(r *filesystem.WatchDirResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(r)
	}
	watch := &agboxv1.WatchDirRequest{SandboxId: t.id, Path: req.Msg.GetPath(), User: t.user, Recursive: req.Msg.GetRecursive()}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := keepAlive(req.Header(), func() {
		_ = send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Keepalive{Keepalive: &filesystem.WatchDirResponse_KeepAlive{}}})
	})
	defer stop()
	started := func() {
		if err := send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Start{Start: &filesystem.WatchDirResponse_StartEvent{}}}); err != nil {
			cancel(err)
		}
	}
	for change, err := range g.api.WatchDir(ctx, watch, started) {
		if err != nil {
			return err
		}
		events, err := eventsOf(change)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := send(&filesystem.WatchDirResponse{Event: &filesystem.WatchDirResponse_Filesystem{Filesystem: e}}); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

// eventsOf returns the events of one change: a rename is one of the old name, and the creation of the new one.
func eventsOf(c *agboxv1.WatchDirResponse) ([]*filesystem.FilesystemEvent, error) {
	one := func(name string, kind filesystem.EventType) *filesystem.FilesystemEvent {
		return &filesystem.FilesystemEvent{Name: name, Type: kind}
	}
	switch c.GetChange() {
	case agboxv1.FileChange_FILE_CHANGE_CREATED:
		return []*filesystem.FilesystemEvent{one(c.GetName(), filesystem.EventType_EVENT_TYPE_CREATE)}, nil
	case agboxv1.FileChange_FILE_CHANGE_WRITTEN:
		return []*filesystem.FilesystemEvent{one(c.GetName(), filesystem.EventType_EVENT_TYPE_WRITE)}, nil
	case agboxv1.FileChange_FILE_CHANGE_REMOVED:
		return []*filesystem.FilesystemEvent{one(c.GetName(), filesystem.EventType_EVENT_TYPE_REMOVE)}, nil
	case agboxv1.FileChange_FILE_CHANGE_ATTRIBUTES:
		return []*filesystem.FilesystemEvent{one(c.GetName(), filesystem.EventType_EVENT_TYPE_CHMOD)}, nil
	case agboxv1.FileChange_FILE_CHANGE_RENAMED:
		return []*filesystem.FilesystemEvent{
			one(c.GetOldName(), filesystem.EventType_EVENT_TYPE_RENAME), one(c.GetName(), filesystem.EventType_EVENT_TYPE_CREATE),
		}, nil
	case agboxv1.FileChange_FILE_CHANGE_OVERFLOW:
		return nil, errLost()
	}
	return nil, nil
}
