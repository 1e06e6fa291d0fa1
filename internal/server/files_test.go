package server_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/filetree"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/internal/shim/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	os.Exit(m.Run())
}

// oneWorker is the Streams of a test: one real worker process for all.
type oneWorker struct{ w *workertest.Worker }

// Connected implements server.Streams.
func (oneWorker) Connected(string) bool { return true }

// Open implements server.Streams.
func (o oneWorker) Open(context.Context, string, string) (net.Conn, error) { return o.w.Open() }

// writing reports whether the worker has a file below dir open, which has no name yet or one of its own.
func (o oneWorker) writing(t testing.TB, dir string) bool {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd/", o.w.Cmd.Process.Pid)
	open, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(open, func(fd os.DirEntry) bool {
		file, _ := os.Readlink(fds + fd.Name())
		return strings.HasPrefix(file, dir+"/")
	})
}

// filesFixture has a READY sandbox "sandbox" with a worker, whose home is dir.
type filesFixture struct {
	*fixture
	agboxv1.FileServiceClient
	streams agboxv1.StreamServiceClient
	worker  *workertest.Worker
	dir     string
}

func newFilesFixture(t testing.TB, change ...func(*server.Deps)) *filesFixture {
	t.Helper()
	dir := t.TempDir()
	worker := workertest.Start(t, "", dir)
	f := newFixture(t, append([]func(*server.Deps){func(d *server.Deps) { d.Streams = oneWorker{worker} }}, change...)...)
	f.create("sandbox", agboxv1.SandboxState_SANDBOX_STATE_READY)
	return &filesFixture{fixture: f, FileServiceClient: agboxv1.NewFileServiceClient(f.declared), streams: agboxv1.NewStreamServiceClient(f.declared), worker: worker, dir: dir}
}

// reason checks code and reason of an error.
func reason(t testing.TB, err error, code codes.Code, want string) {
	t.Helper()
	if status.Code(err) != code || errorInfo(err).GetReason() != want {
		t.Errorf("got %v (%s), want %s %s", err, errorInfo(err).GetReason(), code, want)
	}
}

func (f *filesFixture) write(start *agboxv1.WriteFileStart, pieces ...string) (*agboxv1.FileEntry, error) {
	f.t.Helper()
	start.SandboxId = "sandbox"
	up, err := f.WriteFile(f.t.Context())
	f.must(err)
	_ = up.Send(&agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Start{Start: start}}) // CloseAndRecv has the error
	for _, p := range pieces {
		_ = up.Send(&agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Data{Data: []byte(p)}})
	}
	resp, err := up.CloseAndRecv()
	return resp.GetEntry(), err
}

// drain reads a stream to its end.
func drain[T any](s grpc.ServerStreamingClient[T], err error) (all []*T, _ error) {
	for err == nil {
		var one *T
		if one, err = s.Recv(); err == nil {
			all = append(all, one)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

func (f *filesFixture) read(req *agboxv1.ReadFileRequest) (*agboxv1.FileEntry, string, error) {
	f.t.Helper()
	all, err := drain(f.ReadFile(f.t.Context(), req))
	var b strings.Builder
	var e *agboxv1.FileEntry
	for _, one := range all {
		b.Write(one.GetData())
		if one.GetEntry() != nil {
			e = one.GetEntry()
		}
	}
	return e, b.String(), err
}

func TestFilesOfAReadySandbox(t *testing.T) {
	f := newFilesFixture(t)
	big := strings.Repeat("0123456789abcdef", 64<<10)
	e, err := f.write(&agboxv1.WriteFileStart{Path: "a/big", MakeParents: true}, big[:100], big[100:])
	f.must(err)
	if e.GetPath() != f.dir+"/a/big" || e.GetSizeBytes() != int64(len(big)) || e.GetMode() != 0o644 || e.GetVersion() == "" || e.GetType() != agboxv1.FileType_FILE_TYPE_REGULAR {
		t.Errorf("%v", e)
	}
	got, data, err := f.read(&agboxv1.ReadFileRequest{SandboxId: "sandbox", Path: "a/big", Offset: 5})
	if f.must(err); data != big[5:] || got.GetVersion() != e.GetVersion() {
		t.Errorf("%d bytes, %v", len(data), got)
	}
	stat, err := f.Stat(t.Context(), &agboxv1.StatRequest{SandboxId: "sandbox", Path: "a"})
	if f.must(err); stat.GetEntry().GetType() != agboxv1.FileType_FILE_TYPE_DIRECTORY {
		t.Errorf("%v", stat)
	}
	_, err = f.MakeDir(t.Context(), &agboxv1.MakeDirRequest{SandboxId: "sandbox", Path: "b/c", Parents: true})
	f.must(err)
	moved, err := f.Move(t.Context(), &agboxv1.MoveRequest{SandboxId: "sandbox", FromPath: "a/big", ToPath: "b/c/moved"})
	if f.must(err); moved.GetEntry().GetPath() != f.dir+"/b/c/moved" {
		t.Errorf("%v", moved)
	}
	pages, err := drain(f.ListDir(t.Context(), &agboxv1.ListDirRequest{SandboxId: "sandbox", Path: ".", Depth: 9}))
	f.must(err)
	var names []string
	for _, p := range pages {
		for _, e := range p.GetEntries() {
			names = append(names, e.GetName())
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c", "moved"}) {
		t.Errorf("%q", names)
	}
	_, err = f.Remove(t.Context(), &agboxv1.RemoveRequest{SandboxId: "sandbox", Path: "b"})
	reason(t, err, codes.FailedPrecondition, "FILE_NOT_EMPTY")
	_, err = f.Remove(t.Context(), &agboxv1.RemoveRequest{SandboxId: "sandbox", Path: "b", Recursive: true})
	f.must(err)
	_, _, err = f.read(&agboxv1.ReadFileRequest{SandboxId: "sandbox", Path: "b/c/moved"})
	reason(t, err, codes.NotFound, "FILE_NOT_FOUND")
	if path := errorInfo(err).GetMetadata()["path"]; path != "b/c/moved" {
		t.Error(path)
	}
	_, err = f.write(&agboxv1.WriteFileStart{Path: "a", Exclusive: true}, "x")
	reason(t, err, codes.AlreadyExists, "FILE_EXISTS")
	for _, bad := range []*agboxv1.WriteFileStart{{}, {Path: "x", Mode: new(uint32(0o10000))}, {Path: "x", Offset: new(int64(-1))}} {
		_, err = f.write(bad)
		reason(t, err, codes.InvalidArgument, "INVALID_SPEC")
	}
	up, err := f.WriteFile(t.Context())
	f.must(err)
	_, err = up.CloseAndRecv()
	reason(t, err, codes.InvalidArgument, "INVALID_SPEC")
}

func TestAnUploadIsNothingIfTheClientLeavesOrTheWorkerDies(t *testing.T) {
	f := newFilesFixture(t)
	_, err := f.write(&agboxv1.WriteFileStart{Path: "file"}, "old")
	f.must(err)
	awaitWriting := func(want bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); (oneWorker{f.worker}).writing(t, f.dir) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the worker does not have writing = %v", want)
			}
		}
	}
	begin := func(ctx context.Context) grpc.ClientStreamingClient[agboxv1.WriteFileRequest, agboxv1.WriteFileResponse] {
		up, err := f.WriteFile(ctx)
		f.must(err)
		f.must(up.Send(&agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Start{Start: &agboxv1.WriteFileStart{SandboxId: "sandbox", Path: "file"}}}))
		f.must(up.Send(&agboxv1.WriteFileRequest{Request: &agboxv1.WriteFileRequest_Data{Data: make([]byte, 1<<20)}}))
		awaitWriting(true)
		return up
	}
	ctx, cancel := context.WithCancel(t.Context())
	begin(ctx)
	cancel()
	awaitWriting(false)
	up := begin(t.Context())
	f.must(f.worker.Cmd.Process.Kill())
	<-f.worker.Done()
	_, err = up.CloseAndRecv()
	if status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
	if data, err := os.ReadFile(f.dir + "/file"); string(data) != "old" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if list, _ := os.ReadDir(f.dir); len(list) != 1 {
		t.Errorf("%v", list)
	}
}

func TestArchivesThroughTheDaemon(t *testing.T) {
	f := newFilesFixture(t)
	f.must(os.MkdirAll(f.dir+"/tree/sub", 0o755))
	f.must(os.WriteFile(f.dir+"/tree/sub/f", []byte("data"), 0o640))
	chunks, err := drain(f.ReadArchive(t.Context(), &agboxv1.ReadArchiveRequest{SandboxId: "sandbox", Path: "tree"}))
	f.must(err)
	up, err := f.WriteArchive(t.Context())
	f.must(err)
	f.must(up.Send(&agboxv1.WriteArchiveRequest{Request: &agboxv1.WriteArchiveRequest_Start{Start: &agboxv1.WriteArchiveStart{SandboxId: "sandbox", Path: "up", MakeParents: true}}}))
	for _, c := range chunks {
		f.must(up.Send(&agboxv1.WriteArchiveRequest{Request: &agboxv1.WriteArchiveRequest_Data{Data: c.GetData()}}))
	}
	resp, err := up.CloseAndRecv()
	if f.must(err); resp.GetEntries() != 3 || resp.GetBytes() != 4 {
		t.Errorf("%v", resp)
	}
	if data, err := os.ReadFile(f.dir + "/up/tree/sub/f"); string(data) != "data" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

func TestAWatchThroughTheDaemonEndsWithTheServer(t *testing.T) {
	f := newFilesFixture(t)
	w, err := f.WatchDir(t.Context(), &agboxv1.WatchDirRequest{SandboxId: "sandbox", Path: ".", Recursive: true})
	f.must(err)
	first, err := w.Recv()
	if f.must(err); !first.GetStarted() {
		t.Errorf("%v", first)
	}
	f.must(os.Mkdir(f.dir+"/new", 0o755))
	change, err := w.Recv()
	if f.must(err); change.GetChange() != agboxv1.FileChange_FILE_CHANGE_CREATED || change.GetName() != "new" {
		t.Errorf("%v", change)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f.must(f.shutdown(ctx))
	if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("%v", err)
	}
}

func TestOnlyReadySandboxesHaveWorkers(t *testing.T) {
	f := newFilesFixture(t)
	f.create("stopped", agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	f.create("fresh", agboxv1.SandboxState_SANDBOX_STATE_PENDING)
	for id, want := range map[string]string{"stopped": "SANDBOX_NOT_READY", "fresh": "SANDBOX_NOT_READY", "none-such": "SANDBOX_NOT_FOUND"} {
		_, err := f.Remove(t.Context(), &agboxv1.RemoveRequest{SandboxId: id, Path: "/x"})
		if errorInfo(err).GetReason() != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	_, err := f.Stat(t.Context(), &agboxv1.StatRequest{SandboxId: "fresh", Path: "/x"})
	reason(t, err, codes.FailedPrecondition, "SANDBOX_NOT_READY")
}

// tunnel opens a tunnel to a port.
func (f *filesFixture) tunnel(port int) (grpc.BidiStreamingClient[agboxv1.TunnelRequest, agboxv1.TunnelResponse], error) {
	f.t.Helper()
	s, err := f.streams.Tunnel(f.t.Context())
	f.must(err)
	f.must(s.Send(&agboxv1.TunnelRequest{Request: &agboxv1.TunnelRequest_Open{Open: &agboxv1.TunnelOpen{SandboxId: "sandbox", Target: &agboxv1.TunnelOpen_Port{Port: uint32(port)}}}}))
	_, err = s.Recv()
	return s, err
}

func TestTunnelsCloseEachDirectionByItself(t *testing.T) {
	f := newFilesFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			var data []byte
			if data, err = io.ReadAll(c); err == nil {
				_, err = fmt.Fprintf(c, "%d bytes", len(data))
			}
		}
		served <- err
	}()
	port := l.Addr().(*net.TCPAddr).Port
	s, err := f.tunnel(port)
	f.must(err)
	for range 32 {
		f.must(s.Send(&agboxv1.TunnelRequest{Request: &agboxv1.TunnelRequest_Data{Data: make([]byte, 32<<10)}}))
	}
	f.must(s.CloseSend())
	var got bytes.Buffer
	eof := false
	for {
		resp, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		f.must(err)
		got.Write(resp.GetData())
		eof = eof || resp.GetEof()
	}
	if got.String() != "1048576 bytes" || !eof {
		t.Errorf("%q, %v", got.String(), eof)
	}
	f.must(<-served)
	l.Close()
	_, err = f.tunnel(port)
	reason(t, err, codes.FailedPrecondition, "PORT_REFUSED")
	if want := fmt.Sprintf("nothing listens on port %d of the sandbox", port); status.Convert(err).Message() != want {
		t.Errorf("%v", err)
	}
	for _, bad := range []int{0, 65536} {
		_, err = f.tunnel(bad)
		reason(t, err, codes.InvalidArgument, "INVALID_SPEC")
	}
}

// packed is an engine that has the files of a directory of this host.
func packed(dir string) server.Archives {
	return func(_ context.Context, _, path string, read func(io.Reader) error) error {
		if _, err := os.Lstat(dir + path); err != nil {
			return errdefs.ErrNotFound
		}
		var b bytes.Buffer
		if err := filetree.Pack(&b, dir+path, filetree.PackOptions{Name: path[strings.LastIndexByte(path, '/')+1:]}); err != nil {
			return err
		}
		return read(&b)
	}
}

func TestFilesOfAStoppedSandbox(t *testing.T) {
	root := t.TempDir()
	f := newFilesFixture(t, func(d *server.Deps) { d.Archives = packed(root) })
	f.create("stopped", agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	f.must(os.MkdirAll(root+"/d/sub", 0o755))
	f.must(os.WriteFile(root+"/d/sub/f", []byte("0123456789"), 0o640))
	f.must(os.WriteFile(root+"/d.txt", nil, 0o600))
	f.must(os.Link(root+"/d/sub/f", root+"/d/sub/g"))
	f.must(os.Symlink("sub/f", root+"/d/link"))
	f.must(os.Symlink("/d", root+"/abs"))
	f.must(os.Symlink("loop", root+"/loop"))
	f.must(os.Symlink("/etc/passwd", root+"/escape")) // of the host; the sandbox has none
	stat, err := f.Stat(t.Context(), &agboxv1.StatRequest{SandboxId: "stopped", Path: "/d/link"})
	if f.must(err); stat.GetEntry().GetLinkTarget() != "sub/f" || stat.GetEntry().GetName() != "link" {
		t.Errorf("%v", stat)
	}
	stat, err = f.Stat(t.Context(), &agboxv1.StatRequest{SandboxId: "stopped", Path: "/d/link", Follow: true})
	if f.must(err); stat.GetEntry().GetPath() != "/d/sub/f" || stat.GetEntry().GetSizeBytes() != 10 || stat.GetEntry().GetMode() != 0o640 {
		t.Errorf("%v", stat)
	}
	_, data, err := f.read(&agboxv1.ReadFileRequest{SandboxId: "stopped", Path: "/d/link", Offset: 3, LimitBytes: 4})
	if f.must(err); data != "3456" {
		t.Error(data)
	}
	for path, want := range map[string]codes.Code{"/none": codes.NotFound, "/escape": codes.NotFound, "/loop": codes.InvalidArgument, "/d": codes.InvalidArgument, "d": codes.InvalidArgument} {
		_, _, err := f.read(&agboxv1.ReadFileRequest{SandboxId: "stopped", Path: path})
		if status.Code(err) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	list := func(req *agboxv1.ListDirRequest) (names []string, more bool) {
		req.SandboxId = "stopped"
		pages, err := drain(f.ListDir(t.Context(), req))
		f.must(err)
		for _, p := range pages {
			more = p.GetMore()
			for _, e := range p.GetEntries() {
				names = append(names, fmt.Sprintf("%s %d", e.GetPath(), e.GetSizeBytes()*int64(1-e.GetType().Number()/2)))
			}
		}
		return names, more
	}
	all := []string{"/d/link 0", "/d/sub 0", "/d/sub/f 10", "/d/sub/g 10"}
	if got, more := list(&agboxv1.ListDirRequest{Path: "/abs", Depth: 2}); !slices.Equal(got, all) || more {
		t.Errorf("%q, %v", got, more)
	}
	if got, more := list(&agboxv1.ListDirRequest{Path: "/d", Depth: 2, After: "link", Limit: 2}); !slices.Equal(got, all[1:3]) || !more {
		t.Errorf("%q, %v", got, more)
	}
	if got, more := list(&agboxv1.ListDirRequest{Path: "/d"}); !slices.Equal(got, all[:2]) || more {
		t.Errorf("%q, %v", got, more)
	}
	chunks, err := drain(f.ReadArchive(t.Context(), &agboxv1.ReadArchiveRequest{SandboxId: "stopped", Path: "/d"}))
	f.must(err)
	var b bytes.Buffer
	for _, c := range chunks {
		b.Write(c.GetData())
	}
	if h, err := tar.NewReader(&b).Next(); err != nil || h.Name != "d/" {
		t.Errorf("%v, %v", h, err)
	}
}
