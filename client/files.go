package client

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Reasons of errors about files; see agbox.v1.FileService.
const (
	ReasonFileNotFound   = "FILE_NOT_FOUND"
	ReasonFileExists     = "FILE_EXISTS"
	ReasonFilePermission = "FILE_PERMISSION"
	ReasonFileChanged    = "FILE_CHANGED"
	ReasonFileOffset     = "FILE_OFFSET"
)

// StatFile describes a file. Errors: see agbox.v1.FileService.
func (c *Client) StatFile(ctx context.Context, req *agboxv1.StatRequest) (*agboxv1.FileEntry, error) {
	resp, err := read(ctx, c, c.files.Stat, req)
	return resp.GetEntry(), err
}

// MakeDir creates a directory.
func (c *Client) MakeDir(ctx context.Context, req *agboxv1.MakeDirRequest) (*agboxv1.FileEntry, error) {
	resp, err := call(ctx, c, c.files.MakeDir, req)
	return resp.GetEntry(), err
}

// RemoveFile removes a file or, with recursive, a tree. When the context ends, the sandbox may go on removing.
func (c *Client) RemoveFile(ctx context.Context, req *agboxv1.RemoveRequest) error {
	_, err := call(ctx, c, c.files.Remove, req)
	return err
}

// MoveFile renames a file, as rename(2) does.
func (c *Client) MoveFile(ctx context.Context, req *agboxv1.MoveRequest) (*agboxv1.FileEntry, error) {
	resp, err := call(ctx, c, c.files.Move, req)
	return resp.GetEntry(), err
}

// receiver is the receiving half of a stream.
type receiver[T any] interface{ Recv() (*T, error) }

// open starts a stream once a daemon can be reached. The caller ends it with cancel.
func open[S any](ctx context.Context, c *Client, start func(context.Context) (S, error)) (stream S, cancel context.CancelFunc, err error) {
	p := c.patient(ctx)
	defer p.end()
	p.connect()
	ctx, cancel = context.WithCancel(ctx)
	if stream, err = start(ctx); err != nil {
		cancel()
	}
	return stream, cancel, c.fromStatus(err)
}

// all calls f with each response of a stream.
func all[T any](ctx context.Context, c *Client, s receiver[T], f func(*T) error) error {
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return ended(ctx, c.fromStatus(err))
		}
		if err := f(resp); err != nil {
			return err
		}
	}
}

// ListDir iterates over the entries of a directory, sorted; with a depth over those below it, too. It requests further pages as needed, so
// entries that are made or removed meanwhile may be missed.
func (c *Client) ListDir(ctx context.Context, req *agboxv1.ListDirRequest) iter.Seq2[*agboxv1.FileEntry, error] {
	return func(yield func(*agboxv1.FileEntry, error) bool) {
		errStop := errors.New("stop")
		req := &agboxv1.ListDirRequest{SandboxId: req.GetSandboxId(), Path: req.GetPath(), User: req.GetUser(), Depth: req.GetDepth(), After: req.GetAfter(), Limit: req.GetLimit()}
		var root string
		for {
			stream, cancel, err := open(ctx, c, func(ctx context.Context) (grpc.ServerStreamingClient[agboxv1.ListDirResponse], error) {
				return c.files.ListDir(ctx, req)
			})
			more, last := false, ""
			if err == nil {
				err = all(ctx, c, stream, func(resp *agboxv1.ListDirResponse) error {
					more = resp.GetMore()
					for _, e := range resp.GetEntries() {
						if root == "" {
							root = e.GetPath()[:len(e.GetPath())-len(e.GetName())]
						}
						if !yield(e, nil) {
							return errStop
						}
						last = e.GetPath()[len(root):]
					}
					return nil
				})
			}
			cancel()
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !more || last == "" || req.GetLimit() > 0 {
				return
			}
			req.After = last
		}
	}
}

// RemoteFile reads a file of a sandbox.
type RemoteFile struct {
	c      *Client
	ctx    context.Context //nolint:containedctx // it bounds the reads
	req    *agboxv1.ReadFileRequest
	entry  *agboxv1.FileEntry
	stream grpc.ServerStreamingClient[agboxv1.ReadFileResponse]
	cancel context.CancelFunc
	rest   []byte
	left   int64 // of a limit; -1: none
	err    error
}

// OpenFile opens a regular file for reading. When a read loses the daemon, it continues at its offset once the daemon is back, within the
// client's patience, if the file has not changed; otherwise it fails with FILE_CHANGED. The context bounds all reads. The caller closes it.
func (c *Client) OpenFile(ctx context.Context, req *agboxv1.ReadFileRequest) (*RemoteFile, error) {
	f := &RemoteFile{c: c, ctx: ctx, left: -1, req: &agboxv1.ReadFileRequest{
		SandboxId: req.GetSandboxId(), Path: req.GetPath(), User: req.GetUser(), Offset: req.GetOffset(), LimitBytes: req.GetLimitBytes(),
	}}
	if req.GetLimitBytes() > 0 {
		f.left = req.GetLimitBytes()
	}
	first, err := f.open()
	if err != nil {
		return nil, err
	}
	f.entry, f.rest = first.GetEntry(), first.GetData()
	return f, nil
}

// open opens a stream at the offset and returns its first message.
func (f *RemoteFile) open() (*agboxv1.ReadFileResponse, error) {
	stream, cancel, err := open(f.ctx, f.c, func(ctx context.Context) (grpc.ServerStreamingClient[agboxv1.ReadFileResponse], error) {
		return f.c.files.ReadFile(ctx, f.req)
	})
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		cancel()
		return nil, ended(f.ctx, f.c.fromStatus(err))
	}
	f.stream, f.cancel = stream, cancel
	return first, nil
}

// Entry describes the file as it was when it was opened.
func (f *RemoteFile) Entry() *agboxv1.FileEntry { return f.entry }

// Read implements io.Reader.
func (f *RemoteFile) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(f.rest) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		resp, err := f.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			f.err = io.EOF
		case err != nil:
			f.err = f.resume(ended(f.ctx, f.c.fromStatus(err)))
		default:
			f.rest = resp.GetData()
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	f.req.Offset += int64(n)
	if f.left > 0 {
		f.left -= int64(n)
	}
	return n, nil
}

// resume opens the file again behind what was read. It returns nil once that has worked, and the error of the read otherwise.
func (f *RemoteFile) resume(lost error) error {
	if !IsUnavailable(lost) {
		return lost
	}
	if f.left == 0 {
		return io.EOF
	}
	f.req.LimitBytes = max(f.left, 0)
	p := f.c.patient(f.ctx)
	defer p.end()
	var pause retry
	for !p.over() {
		f.cancel()
		first, err := f.open()
		now, was := first.GetEntry().GetVersion(), f.entry.GetVersion()
		switch {
		case err == nil && now == "" && was != "": // the sandbox stopped: the file may have changed before
			return lost
		case err == nil && now != was:
			return &Error{Code: codes.Aborted, Reason: ReasonFileChanged, Message: f.req.GetPath() + " was changed while it was read"}
		case err == nil:
			f.rest = first.GetData()
			return nil
		case !IsUnavailable(err):
			return err
		}
		if p.away(); pause.wait(p.ctx) != nil {
			break
		}
	}
	return lost
}

// Close ends the reading.
func (f *RemoteFile) Close() error {
	f.cancel()
	if f.err == nil {
		f.err = io.ErrClosedPipe
	}
	f.rest = nil
	return nil
}

// WriteFile writes what r has to a file; see agbox.v1.WriteFileStart. It is sent once: after an error the file has its old or its new content,
// complete, unless offset or in_place was set. An error of r is returned, and changes nothing.
func (c *Client) WriteFile(ctx context.Context, start *agboxv1.WriteFileStart, r io.Reader) (*agboxv1.FileEntry, error) {
	first := &agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Start{Start: start}}
	resp, err := upload(ctx, c, c.files.WriteFile, first, r, func(data []byte) *agboxv1.WriteFileRequest {
		return &agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Data{Data: data}}
	})
	return resp.GetEntry(), err
}

// upload sends first, and then what r has in requests made by next. An error of r is returned as it is, and cancels the call.
func upload[Req, Resp any](ctx context.Context, c *Client, m func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Req, Resp], error), first *Req, r io.Reader, next func([]byte) *Req) (*Resp, error) {
	stream, cancel, err := open(ctx, c, func(ctx context.Context) (grpc.ClientStreamingClient[Req, Resp], error) { return m(ctx) })
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err = stream.Send(first); err == nil { // otherwise r, which may wait for a user, is not read
		for data, bad := range agboxv1.Pieces(r) {
			if bad != nil {
				return nil, bad
			}
			if err = stream.Send(next(data)); err != nil {
				break
			}
		}
	}
	resp, err := stream.CloseAndRecv() // has the error of a failed Send
	if err != nil {
		return nil, ended(ctx, c.fromStatus(err))
	}
	return resp, nil
}

// WatchDir iterates over changes below a directory, until the context or the daemon ends. started, if it is not nil, is called once
// changes are reported. A change is a hint: by the time it arrives, the file may have changed again.
func (c *Client) WatchDir(ctx context.Context, req *agboxv1.WatchDirRequest, started func()) iter.Seq2[*agboxv1.WatchDirResponse, error] {
	return func(yield func(*agboxv1.WatchDirResponse, error) bool) {
		errStop := errors.New("stop")
		stream, cancel, err := open(ctx, c, func(ctx context.Context) (grpc.ServerStreamingClient[agboxv1.WatchDirResponse], error) {
			return c.files.WatchDir(ctx, req)
		})
		if err == nil {
			err = all(ctx, c, stream, func(resp *agboxv1.WatchDirResponse) error {
				if !resp.GetStarted() && !yield(resp, nil) {
					return errStop
				}
				if resp.GetStarted() && started != nil {
					started()
				}
				return nil
			})
		}
		cancel()
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}

// ReadArchive writes a file or a tree to w as a tar stream. skipped, if it is not nil, is called with a sentence about each file that is not
// in it, or not as it is in the sandbox.
func (c *Client) ReadArchive(ctx context.Context, req *agboxv1.ReadArchiveRequest, w io.Writer, skipped func(string)) error {
	stream, cancel, err := open(ctx, c, func(ctx context.Context) (grpc.ServerStreamingClient[agboxv1.ArchiveChunk], error) {
		return c.files.ReadArchive(ctx, req)
	})
	if err != nil {
		return err
	}
	defer cancel()
	return all(ctx, c, stream, func(chunk *agboxv1.ArchiveChunk) error {
		for _, text := range chunk.GetSkipped() {
			if skipped != nil {
				skipped(text)
			}
		}
		_, err := w.Write(chunk.GetData())
		return err
	})
}

// WriteArchive unpacks a tar stream into a directory of a sandbox. After an error, what was unpacked before stays.
func (c *Client) WriteArchive(ctx context.Context, start *agboxv1.WriteArchiveStart, r io.Reader) (*agboxv1.WriteArchiveResponse, error) {
	first := &agboxv1.WriteArchiveRequest{Request: &agboxv1.WriteArchiveRequest_Start{Start: start}}
	return upload(ctx, c, c.files.WriteArchive, first, r, func(data []byte) *agboxv1.WriteArchiveRequest {
		return &agboxv1.WriteArchiveRequest{Request: &agboxv1.WriteArchiveRequest_Data{Data: data}}
	})
}
