package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/channel"
)

// maxListDepth is the largest depth of ListDir.
const maxListDepth = 100

// files serves agbox.v1.FileService: through a worker if the sandbox is READY, and through the engine if it is STOPPED or FAILED.
type files struct {
	agboxv1.UnsafeFileServiceServer
	*lifecycle
	*workers
	archives Archives
}

// one runs an operation with a single answer.
func (f *files) one(ctx context.Context, sandboxID, user string, c channel.Call) (*agboxv1.FileEntry, error) {
	if err := required("path", c.Path); err != nil {
		return nil, err
	}
	s, err := f.call(ctx, sandboxID, user, c)
	if err != nil {
		return nil, err
	}
	defer s.end()
	var e channel.Entry
	if err := s.frames.ReadAnswer(channel.Result, &e); err != nil {
		return nil, s.failed(ctx, err)
	}
	return entryOf(e), nil
}

func entryOf(e channel.Entry) *agboxv1.FileEntry {
	types := map[string]agboxv1.FileType{
		channel.Regular: agboxv1.FileType_FILE_TYPE_REGULAR, channel.Directory: agboxv1.FileType_FILE_TYPE_DIRECTORY,
		channel.Symlink: agboxv1.FileType_FILE_TYPE_SYMLINK, channel.Other: agboxv1.FileType_FILE_TYPE_OTHER,
	}
	return &agboxv1.FileEntry{
		Name: e.Name, RawName: e.Raw, Path: e.Path, Type: types[e.Type], SizeBytes: e.Size, Mode: e.Mode & 0o7777, Uid: e.UID, Gid: e.GID,
		Owner: e.Owner, Group: e.Group, ModifiedAt: timestamppb.New(time.Unix(0, e.Modified)), LinkTarget: e.Target, Version: e.Version,
	}
}

// Stat implements agbox.v1.FileService.
func (f *files) Stat(ctx context.Context, req *agboxv1.StatRequest) (*agboxv1.StatResponse, error) {
	if source, err := f.engine(ctx, req); err != nil || source != nil {
		if err != nil {
			return nil, err
		}
		e, err := source.stat(ctx, req.GetFollow())
		return &agboxv1.StatResponse{Entry: e}, err
	}
	e, err := f.one(ctx, req.GetSandboxId(), req.GetUser(), channel.Call{Op: channel.Stat, Path: req.GetPath(), Follow: req.GetFollow()})
	return &agboxv1.StatResponse{Entry: e}, err
}

// MakeDir implements agbox.v1.FileService.
func (f *files) MakeDir(ctx context.Context, req *agboxv1.MakeDirRequest) (*agboxv1.MakeDirResponse, error) {
	if err := validMode(req.Mode); err != nil {
		return nil, err
	}
	e, err := f.one(ctx, req.GetSandboxId(), req.GetUser(), channel.Call{Op: channel.MakeDir, Path: req.GetPath(), Mode: req.Mode, Parents: req.GetParents()})
	return &agboxv1.MakeDirResponse{Entry: e}, err
}

// Remove implements agbox.v1.FileService.
func (f *files) Remove(ctx context.Context, req *agboxv1.RemoveRequest) (*agboxv1.RemoveResponse, error) {
	_, err := f.one(ctx, req.GetSandboxId(), req.GetUser(), channel.Call{Op: channel.Remove, Path: req.GetPath(), Recursive: req.GetRecursive()})
	return &agboxv1.RemoveResponse{}, err
}

// Move implements agbox.v1.FileService.
func (f *files) Move(ctx context.Context, req *agboxv1.MoveRequest) (*agboxv1.MoveResponse, error) {
	if req.GetFromPath() == "" || req.GetToPath() == "" {
		return nil, invalid("from_path", "from_path and to_path are required")
	}
	e, err := f.one(ctx, req.GetSandboxId(), req.GetUser(), channel.Call{Op: channel.Move, Path: req.GetFromPath(), To: req.GetToPath()})
	return &agboxv1.MoveResponse{Entry: e}, err
}

func validMode(mode *uint32) error {
	if mode != nil && *mode > 0o7777 {
		return invalid("mode", fmt.Sprintf("mode %#o has bits that chmod(2) does not know", *mode))
	}
	return nil
}

// ListDir implements agbox.v1.FileService.
func (f *files) ListDir(req *agboxv1.ListDirRequest, out grpc.ServerStreamingServer[agboxv1.ListDirResponse]) error {
	if req.GetDepth() > maxListDepth {
		return invalid("depth", fmt.Sprintf("depth %d is more than %d", req.GetDepth(), maxListDepth))
	}
	return f.whileServing(out.Context(), func(ctx context.Context) error {
		if source, err := f.engine(ctx, req); err != nil || source != nil {
			if err != nil {
				return err
			}
			return source.list(ctx, req, out.Send)
		}
		c := channel.Call{Op: channel.List, Path: req.GetPath(), Depth: int(req.GetDepth()), After: req.GetAfter(), Limit: int64(req.GetLimit())}
		return f.stream(ctx, req.GetSandboxId(), req.GetUser(), c, nil, func(data []byte) error {
			var p channel.Page
			if err := json.Unmarshal(data, &p); err != nil {
				return err
			}
			resp := &agboxv1.ListDirResponse{More: p.More}
			for _, e := range p.Entries {
				resp.Entries = append(resp.Entries, entryOf(e))
			}
			return sent(out.Send(resp))
		}, nil)
	})
}

// sendError is an error of the client's side of a stream.
type sendError struct{ error }

func (e sendError) Unwrap() error { return e.error }

func sent(err error) error {
	if err == nil {
		return nil
	}
	return sendError{err}
}

// inPieces sends data in messages of a good size.
func inPieces(data []byte, send func([]byte) error) error {
	for piece := range slices.Chunk(data, agboxv1.PieceBytes) {
		if err := send(piece); err != nil {
			return sent(err)
		}
	}
	return nil
}

// stream runs an operation that answers with data. first receives the Result that precedes it, if it is not nil.
func (f *files) stream(ctx context.Context, sandboxID, user string, c channel.Call, first func(channel.Entry) error, data func([]byte) error, told func(string)) error {
	if err := required("path", c.Path); err != nil {
		return err
	}
	s, err := f.call(ctx, sandboxID, user, c)
	if err != nil {
		return err
	}
	defer s.end()
	r := channel.NewReader(bufio.NewReaderSize(s, channel.MaxData))
	err = func() error {
		if first != nil {
			var e channel.Entry
			if err := r.ReadAnswer(channel.Result, &e); err != nil {
				return err
			}
			if err := first(e); err != nil {
				return err
			}
		}
		d := channel.NewDataReader(r)
		d.Told = told
		for {
			piece, err := d.Next()
			if err == nil {
				err = data(piece)
			}
			if err != nil {
				return err
			}
		}
	}()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if send, ok := errors.AsType[sendError](err); ok {
		return send.error
	}
	return s.failed(ctx, err)
}

// ReadFile implements agbox.v1.FileService.
func (f *files) ReadFile(req *agboxv1.ReadFileRequest, out grpc.ServerStreamingServer[agboxv1.ReadFileResponse]) error {
	if req.GetOffset() < 0 || req.GetLimitBytes() < 0 {
		return invalid("offset", "offset and limit_bytes must not be negative")
	}
	return f.whileServing(out.Context(), func(ctx context.Context) error {
		if source, err := f.engine(ctx, req); err != nil || source != nil {
			if err != nil {
				return err
			}
			return source.read(ctx, req, out.Send)
		}
		c := channel.Call{Op: channel.Read, Path: req.GetPath(), Offset: &req.Offset, Limit: req.GetLimitBytes()}
		return f.stream(ctx, req.GetSandboxId(), req.GetUser(), c, func(e channel.Entry) error {
			return sent(out.Send(&agboxv1.ReadFileResponse{Entry: entryOf(e)}))
		}, func(data []byte) error {
			return inPieces(data, func(piece []byte) error { return out.Send(&agboxv1.ReadFileResponse{Data: piece}) })
		}, nil)
	})
}

// WatchDir implements agbox.v1.FileService.
func (f *files) WatchDir(req *agboxv1.WatchDirRequest, out grpc.ServerStreamingServer[agboxv1.WatchDirResponse]) error {
	kinds := map[string]agboxv1.FileChange{
		channel.Created: agboxv1.FileChange_FILE_CHANGE_CREATED, channel.Written: agboxv1.FileChange_FILE_CHANGE_WRITTEN,
		channel.Removed: agboxv1.FileChange_FILE_CHANGE_REMOVED, channel.Renamed: agboxv1.FileChange_FILE_CHANGE_RENAMED,
		channel.Attributes: agboxv1.FileChange_FILE_CHANGE_ATTRIBUTES, channel.Overflow: agboxv1.FileChange_FILE_CHANGE_OVERFLOW,
	}
	return f.whileServing(out.Context(), func(ctx context.Context) error {
		c := channel.Call{Op: channel.Watch, Path: req.GetPath(), Recursive: req.GetRecursive()}
		return f.stream(ctx, req.GetSandboxId(), req.GetUser(), c, func(channel.Entry) error {
			return sent(out.Send(&agboxv1.WatchDirResponse{Started: true}))
		}, func(data []byte) error {
			var changes []channel.Change
			if err := json.Unmarshal(data, &changes); err != nil {
				return err
			}
			for _, one := range changes {
				if err := out.Send(&agboxv1.WatchDirResponse{Change: kinds[one.Kind], Name: one.Name, OldName: one.Old}); err != nil {
					return sent(err)
				}
			}
			return nil
		}, nil)
	})
}

// ReadArchive implements agbox.v1.FileService.
func (f *files) ReadArchive(req *agboxv1.ReadArchiveRequest, out grpc.ServerStreamingServer[agboxv1.ArchiveChunk]) error {
	return f.whileServing(out.Context(), func(ctx context.Context) error {
		if source, err := f.engine(ctx, req); err != nil || source != nil {
			if err != nil {
				return err
			}
			return source.archive(ctx, req.GetFollow(), out.Send)
		}
		c := channel.Call{Op: channel.Tar, Path: req.GetPath(), Follow: req.GetFollow()}
		var lost error
		err := f.stream(ctx, req.GetSandboxId(), req.GetUser(), c, nil, func(data []byte) error {
			return inPieces(data, func(piece []byte) error { return out.Send(&agboxv1.ArchiveChunk{Data: piece}) })
		}, func(text string) {
			lost = errors.Join(lost, out.Send(&agboxv1.ArchiveChunk{Skipped: []string{valid(text)}}))
		})
		return errors.Join(err, lost)
	})
}

// valid makes a text of a sandbox fit for a string of a message.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return fmt.Sprintf("%+q", text)
}

// upload runs an operation to which the client sends data: next returns a piece, and io.EOF at the end. The answer goes to v.
func (f *files) upload(ctx context.Context, sandboxID, user string, c channel.Call, next func() ([]byte, error), v any) error {
	return f.whileServing(ctx, func(ctx context.Context) error {
		if err := required("path", c.Path); err != nil {
			return err
		}
		s, err := f.call(ctx, sandboxID, user, c)
		if err != nil {
			return err
		}
		defer s.end()
		if err := s.frames.ReadAnswer(channel.Result, nil); err != nil {
			return s.failed(ctx, err)
		}
		received := make(chan error, 1)
		f.goes(func() { received <- s.copyFrom(next) }) // gRPC ends next when this handler returns
		select {
		case err = <-received:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if send, ok := errors.AsType[sendError](err); ok {
			return send.error // the client left: the worker discards what it got
		}
		// After a failed write the worker's answer says why.
		if answer := s.frames.ReadAnswer(channel.Result, v); answer != nil {
			return s.failed(ctx, answer)
		}
		if err != nil {
			return s.failed(ctx, err)
		}
		return nil
	})
}

// copyFrom sends the data of the client up to its end. An error of the client is a sendError.
func (s *workerStream) copyFrom(next func() ([]byte, error)) error {
	w := channel.NewDataWriter(s.Conn)
	for {
		data, err := next()
		if errors.Is(err, io.EOF) {
			return channel.Write(s, channel.Frame{Kind: channel.End})
		}
		if err != nil {
			return sent(err)
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
}

// WriteFile implements agbox.v1.FileService.
func (f *files) WriteFile(in grpc.ClientStreamingServer[agboxv1.WriteFileRequest, agboxv1.WriteFileResponse]) error {
	start, err := startOf(in.Recv, (*agboxv1.WriteFileRequest).GetStart)
	if err != nil {
		return err
	}
	if err := validMode(start.Mode); err != nil {
		return err
	}
	if start.Offset != nil && (start.GetOffset() < 0 || start.GetInPlace()) {
		return invalid("offset", "offset must not be negative, and not be combined with in_place")
	}
	c := channel.Call{
		Op: channel.WriteFile, Path: start.GetPath(), Mode: start.Mode, Parents: start.GetMakeParents(), Exclusive: start.GetExclusive(),
		Offset: start.Offset, Version: start.GetIfVersion(), InPlace: start.GetInPlace(),
	}
	if at := start.GetModifiedAt(); at != nil {
		if err := at.CheckValid(); err != nil {
			return invalid("modified_at", err.Error())
		}
		nanoseconds := at.AsTime().UnixNano()
		c.Modified = &nanoseconds
	}
	var e channel.Entry
	err = f.upload(in.Context(), start.GetSandboxId(), start.GetUser(), c, dataOf(in.Recv, (*agboxv1.WriteFileRequest).GetStart), &e)
	if err != nil {
		return err
	}
	return in.SendAndClose(&agboxv1.WriteFileResponse{Entry: entryOf(e)})
}

// dataOf returns the data of the requests that follow the first one.
func dataOf[Req interface{ GetData() []byte }, Start any](recv func() (Req, error), start func(Req) *Start) func() ([]byte, error) {
	return func() ([]byte, error) {
		req, err := recv()
		if err == nil && start(req) != nil {
			err = invalid("start", "only the first request may be start")
		}
		return req.GetData(), err
	}
}

// startOf returns the start of an upload, which its first request must be.
func startOf[Req, Start any](recv func() (Req, error), start func(Req) *Start) (*Start, error) {
	first, err := recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil || start(first) == nil {
		return nil, invalid("start", "the first request must be start")
	}
	return start(first), nil
}

// WriteArchive implements agbox.v1.FileService.
func (f *files) WriteArchive(in grpc.ClientStreamingServer[agboxv1.WriteArchiveRequest, agboxv1.WriteArchiveResponse]) error {
	start, err := startOf(in.Recv, (*agboxv1.WriteArchiveRequest).GetStart)
	if err != nil {
		return err
	}
	c := channel.Call{Op: channel.Untar, Path: start.GetPath(), Parents: start.GetMakeParents(), KeepOwners: start.GetKeepOwners()}
	var u channel.Unpacked
	err = f.upload(in.Context(), start.GetSandboxId(), start.GetUser(), c, dataOf(in.Recv, (*agboxv1.WriteArchiveRequest).GetStart), &u)
	if err != nil {
		return err
	}
	resp := &agboxv1.WriteArchiveResponse{Entries: u.Entries, Bytes: u.Bytes}
	for _, text := range u.Skipped {
		resp.Skipped = append(resp.Skipped, valid(text))
	}
	return in.SendAndClose(resp)
}
