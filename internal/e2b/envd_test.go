package e2b_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/agbox/agbox/apis/e2b/filesystem"
	"github.com/agbox/agbox/apis/e2b/process"
	"github.com/agbox/agbox/internal/testing/conformance"
)

// inside makes a sandbox whose file system is the host's, as on the fake engine.
func inside(t *testing.T) (*fixture, box) {
	t.Helper()
	f := newFixture(t, conformance.Settings{})
	id := f.create(nil)
	return f, box{f, id, f.info(id).EnvdAccessToken, "root"}
}

// box sends requests to a sandbox as a client does.
type box struct {
	*fixture
	id, token, user string
}

// RoundTrip implements http.RoundTripper.
func (b box) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("E2b-Sandbox-Id", b.id)
	r.Header.Set("E2b-Sandbox-Port", "49983")
	r.Header.Set("X-Access-Token", b.token)
	if b.user != "" {
		r.SetBasicAuth(b.user, "")
	}
	return http.DefaultTransport.RoundTrip(r)
}

func rpc[Req, Resp any](b box, procedure string, binary bool) *connect.Client[Req, Resp] {
	options := []connect.ClientOption{connect.WithProtoJSON()}
	if binary {
		options = nil
	}
	return connect.NewClient[Req, Resp](&http.Client{Transport: b}, b.url+procedure, options...)
}

func ask[Resp, Req any](b box, procedure string, req *Req) (*Resp, error) {
	resp, err := rpc[Req, Resp](b, procedure, false).CallUnary(b.Context(), connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

func (b box) code(want connect.Code, err error) {
	b.Helper()
	if connect.CodeOf(err) != want || err == nil {
		b.Errorf("got %v, want %v", err, want)
	}
}

// ran is what a stream of a process had.
type ran struct {
	pid            uint32
	stdout, stderr string
	end            *process.ProcessEvent_EndEvent
	err            error
}

func (b box) start(ctx context.Context, binary bool, req *process.StartRequest) *connect.ServerStreamForClient[process.StartResponse] {
	b.Helper()
	stream, err := rpc[process.StartRequest, process.StartResponse](b, "/process.Process/Start", binary).CallServerStream(ctx, connect.NewRequest(req))
	b.must(err)
	return stream
}

func follow[T interface{ GetEvent() *process.ProcessEvent }](next func() bool, msg func() T, end func() error) (r ran) {
	for next() {
		e := msg().GetEvent()
		if s := e.GetStart(); s != nil {
			r.pid = s.GetPid()
		}
		r.stdout += string(e.GetData().GetStdout())
		r.stderr += string(e.GetData().GetStderr())
		if x := e.GetEnd(); x != nil {
			r.end = x
		}
	}
	r.err = end()
	return r
}

func (b box) run(binary bool, req *process.StartRequest) ran {
	b.Helper()
	s := b.start(b.Context(), binary, req)
	return follow(s.Receive, s.Msg, s.Err)
}

func sh(script string) *process.StartRequest {
	no := false
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", script}}, Stdin: &no}
}

func byPid(pid uint32) *process.ProcessSelector {
	return &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: pid}}
}

func TestProcesses(t *testing.T) {
	f, b := inside(t)
	for _, binary := range []bool{false, true} {
		r := b.run(binary, sh("echo out; echo err >&2; exit 3"))
		if r.err != nil || r.stdout != "out\n" || r.stderr != "err\n" || r.end.GetExitCode() != 3 || !r.end.GetExited() || r.pid < 1<<22 {
			t.Errorf("binary %v: %+v", binary, r)
		}
		// The exec is there for everybody else, with its true exit code.
		status, err := f.api.GetExec(t.Context(), b.id+"-p"+pidText(r.pid))
		if err != nil || status.GetExitCode() != 3 {
			t.Errorf("%v, %v", status, err)
		}
	}
	missing := t.TempDir() + "/missing"
	r := b.run(false, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &missing}})
	b.code(connect.CodeInvalidArgument, r.err)
	r = b.run(false, &process.StartRequest{Process: &process.ProcessConfig{}})
	b.code(connect.CodeInvalidArgument, r.err)
	nobody := b
	nobody.user = "nobody-of-this-name"
	b.code(connect.CodeUnauthenticated, nobody.run(false, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true", Cwd: &missing}}).err)
	tag := "t"
	b.code(connect.CodeUnimplemented, b.run(false, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "true"}, Tag: &tag}).err)
	_, err := ask[process.SendSignalResponse](b, "/process.Process/SendSignal", &process.SendSignalRequest{Process: byPid(5), Signal: process.Signal_SIGNAL_SIGKILL})
	b.code(connect.CodeNotFound, err)
	_, err = ask[process.SendInputResponse](b, "/process.Process/SendInput", &process.SendInputRequest{Process: byPid(5)})
	b.code(connect.CodeNotFound, err)
}

func pidText(pid uint32) string { return strings.TrimSpace(string(appendInt(nil, pid))) }

func appendInt(b []byte, n uint32) []byte {
	if n >= 10 {
		b = appendInt(b, n/10)
	}
	return append(b, byte('0'+n%10))
}

// TestADeadlineKills: Connect-Timeout-Ms is the time of the command. A client that only leaves kills nothing.
func TestADeadlineKills(t *testing.T) {
	f, b := inside(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stream := b.start(ctx, false, sh("sleep 100"))
	r := follow(stream.Receive, stream.Msg, stream.Err)
	b.code(connect.CodeDeadlineExceeded, r.err)
	if status, err := f.api.WaitExec(t.Context(), b.id+"-p"+pidText(r.pid)); err != nil || status.GetErrorCode() != "EXEC_TIMEOUT" {
		t.Errorf("%v, %v", status, err)
	}

	leaves, leave := context.WithCancel(t.Context())
	stream = b.start(leaves, false, sh("echo begun; sleep 1; echo done; exit 4"))
	for stream.Receive() {
		if e := stream.Msg().GetEvent(); e.GetStart() != nil {
			r.pid = e.GetStart().GetPid()
		} else {
			break
		}
	}
	leave()
	list, err := ask[process.ListResponse](b, "/process.Process/List", &process.ListRequest{})
	if err != nil || len(list.GetProcesses()) != 1 || list.GetProcesses()[0].GetPid() != r.pid || list.GetProcesses()[0].GetConfig().GetCmd() != "/bin/sh" {
		t.Errorf("%v, %v", list, err)
	}
	for range 2 { // while it runs, and after its end
		again := b.connect(r.pid)
		if again.err != nil || again.stdout != "begun\ndone\n" || again.end.GetExitCode() != 4 || again.pid != r.pid {
			t.Errorf("%+v", again)
		}
	}
}

func (b box) connect(pid uint32) ran {
	b.Helper()
	stream, err := rpc[process.ConnectRequest, process.ConnectResponse](b, "/process.Process/Connect", false).CallServerStream(
		b.Context(), connect.NewRequest(&process.ConnectRequest{Process: byPid(pid)}))
	b.must(err)
	return follow(stream.Receive, stream.Msg, stream.Err)
}

func TestInput(t *testing.T) {
	_, b := inside(t)
	req := sh("cat; exit 6")
	req.Stdin = nil
	stream := b.start(t.Context(), false, req)
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	pid := stream.Msg().GetEvent().GetStart().GetPid()
	got := make(chan ran)
	go func() { got <- follow(stream.Receive, stream.Msg, stream.Err) }()
	large := strings.Repeat("x", 3<<20)
	for _, text := range []string{"one ", "", large} {
		_, err := ask[process.SendInputResponse](b, "/process.Process/SendInput", &process.SendInputRequest{
			Process: byPid(pid), Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}},
		})
		b.must(err)
	}
	in := rpc[process.StreamInputRequest, process.StreamInputResponse](b, "/process.Process/StreamInput", true).CallClientStream(t.Context())
	b.must(in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: byPid(pid)}}}))
	b.must(in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{
		Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(" two")}},
	}}}))
	_, err := in.CloseAndReceive()
	b.must(err)
	for range 2 { // again is fine, until the process has ended
		_, err := ask[process.CloseStdinResponse](b, "/process.Process/CloseStdin", &process.CloseStdinRequest{Process: byPid(pid)})
		if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
			t.Error(err)
		}
	}
	if r := <-got; r.err != nil || r.stdout != "one "+large+" two" || r.end.GetExitCode() != 6 {
		t.Errorf("%d bytes, %v, %v", len(r.stdout), r.end, r.err)
	}
}

// TestTheLastInput: a command that ends as soon as it has its input has taken it.
func TestTheLastInput(t *testing.T) {
	_, b := inside(t)
	for i := range 40 {
		req := sh("exec head -n 1 >/dev/null")
		req.Stdin = nil
		stream := b.start(t.Context(), false, req)
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		_, err := ask[process.SendInputResponse](b, "/process.Process/SendInput", &process.SendInputRequest{
			Process: byPid(stream.Msg().GetEvent().GetStart().GetPid()),
			Input:   &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(strings.Repeat("x", 200000) + "\n")}},
		})
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		if r := follow(stream.Receive, stream.Msg, stream.Err); r.err != nil || r.end.GetExitCode() != 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestSignals(t *testing.T) {
	_, b := inside(t)
	for _, stdin := range []bool{true, false} {
		req := sh("trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done")
		req.Stdin = &stdin
		stream := b.start(t.Context(), false, req)
		var pid uint32
		for stream.Receive() {
			if e := stream.Msg().GetEvent(); e.GetStart() != nil {
				pid = e.GetStart().GetPid()
			} else {
				break
			}
		}
		_, err := ask[process.SendSignalResponse](b, "/process.Process/SendSignal", &process.SendSignalRequest{Process: byPid(pid), Signal: process.Signal_SIGNAL_SIGTERM})
		b.must(err)
		if r := follow(stream.Receive, stream.Msg, stream.Err); r.err != nil || r.end.GetExitCode() != 9 {
			t.Errorf("stdin %v: %+v", stdin, r)
		}
	}
}

// TestAProcessOutlivesTheDaemon: its pid stays valid, what it printed meanwhile is there, and so is its exit code.
func TestAProcessOutlivesTheDaemon(t *testing.T) {
	f, b := inside(t)
	released := filepath.Join(t.TempDir(), "go")
	stream := b.start(t.Context(), false, sh("echo before; while [ ! -e "+released+" ]; do sleep 0.05; done; echo after; exit 5"))
	var pid uint32
	for stream.Receive() {
		if e := stream.Msg().GetEvent(); e.GetStart() != nil {
			pid = e.GetStart().GetPid()
		} else {
			break
		}
	}
	f.daemon.Restart(t)
	f.back(b.id)
	_, err := b.post("/files?path="+released, "application/octet-stream", strings.NewReader(""))
	b.must(err)
	if r := b.connect(pid); r.err != nil || r.stdout != "before\nafter\n" || r.end.GetExitCode() != 5 {
		t.Errorf("%+v", r)
	}
}

// back waits until the daemon answers again and its sandbox can be reached.
func (f *fixture) back(id string) {
	f.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		sb, err := f.api.GetSandbox(f.Context(), id)
		if err == nil && sb.GetChannel() == "live" {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("the daemon is not back: %v, %v", sb, err)
		}
	}
}

func (b box) post(path, kind string, body io.Reader, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.url+path, body)
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", kind)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return b.do(req)
}

func (b box) get(path string) answer {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, b.url+path, nil)
	b.must(err)
	a, err := b.do(req)
	b.must(err)
	return a
}

func (b box) do(req *http.Request) (answer, error) {
	resp, err := b.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

func TestFiles(t *testing.T) {
	_, b := inside(t)
	dir := t.TempDir()
	a, err := b.post("/files?path="+dir+"/a/b.txt", "application/octet-stream", strings.NewReader("plain"))
	if b.must(err); a.code != http.StatusOK || strings.TrimSpace(a.body) != `[{"name":"b.txt","path":"`+dir+`/a/b.txt","type":"file"}]` {
		t.Errorf("%+v", a)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte("zipped"))
	_ = z.Close()
	_, err = b.post("/files?path="+dir+"/z", "application/octet-stream", &zipped, "Content-Encoding", "gzip")
	b.must(err)
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for _, name := range []string{dir + "/deep/one", dir + "/two"} {
		part, err := m.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + name + `"`}})
		b.must(err)
		_, _ = part.Write([]byte(name))
	}
	_ = m.Close()
	if a, err := b.post("/files", m.FormDataContentType(), &form); err != nil || a.code != http.StatusOK || !strings.Contains(a.body, dir+"/deep/one") {
		t.Errorf("%+v, %v", a, err)
	}
	for name, want := range map[string]string{"a/b.txt": "plain", "z": "zipped", "deep/one": dir + "/deep/one", "two": dir + "/two"} {
		if a := b.get("/files?path=" + dir + "/" + name); a.code != http.StatusOK || a.body != want {
			t.Errorf("%s: %+v", name, a)
		}
	}
	_, err = b.post("/files?path="+dir+"/empty", "application/octet-stream", strings.NewReader(""))
	b.must(err)
	if a := b.get("/files?path=" + dir + "/empty"); a.code != http.StatusOK || a.header.Get("Content-Length") != "0" {
		t.Errorf("%+v", a)
	}
	for path, code := range map[string]int{"/files": 400, "/files?path=" + dir + "/nope": 404, "/files?path=" + dir: 400, "/files?path=" + dir + "/z&username=nobody-of-this-name": 401} {
		if a := b.get(path); a.code != code {
			t.Errorf("%s: %d %s, want %d", path, a.code, a.body, code)
		}
	}
	for _, body := range []struct{ kind, encoding string }{{"application/octet-stream", "br"}, {"application/octet-stream", "gzip"}, {"multipart/form-data", ""}, {"multipart/form-data; boundary=x", ""}} {
		a, err := b.post("/files?path="+dir+"/bad", body.kind, strings.NewReader("nonsense"), "Content-Encoding", body.encoding)
		if b.must(err); a.code != http.StatusBadRequest {
			t.Errorf("%v: %+v", body, a)
		}
	}
}

func TestFilesystem(t *testing.T) {
	_, b := inside(t)
	dir := t.TempDir()
	mk := func(name string) error {
		_, err := ask[filesystem.MakeDirResponse](b, "/filesystem.Filesystem/MakeDir", &filesystem.MakeDirRequest{Path: dir + name})
		return err
	}
	b.must(mk("/x/y"))
	b.code(connect.CodeAlreadyExists, mk("/x/y"))
	_, err := b.post("/files?path="+dir+"/x/f", "application/octet-stream", strings.NewReader("1"))
	b.must(err)
	b.run(false, sh("ln -s f "+dir+"/x/l; ln -s nowhere "+dir+"/x/broken; chmod 640 "+dir+"/x/f"))
	list, err := ask[filesystem.ListDirResponse](b, "/filesystem.Filesystem/ListDir", &filesystem.ListDirRequest{Path: dir, Depth: 2})
	b.must(err)
	var names []string
	for _, e := range list.GetEntries() {
		names = append(names, strings.TrimPrefix(e.GetPath(), dir)+" "+strings.TrimPrefix(e.GetType().String(), "FILE_TYPE_"))
	}
	if got, want := strings.Join(names, ", "), "/x DIRECTORY, /x/broken SYMLINK, /x/f FILE, /x/l FILE, /x/y DIRECTORY"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	st, err := ask[filesystem.StatResponse](b, "/filesystem.Filesystem/Stat", &filesystem.StatRequest{Path: dir + "/x/l"})
	if err != nil || st.GetEntry().GetSymlinkTarget() != dir+"/x/f" {
		t.Errorf("%v, %v", st, err)
	}
	moved, err := ask[filesystem.MoveResponse](b, "/filesystem.Filesystem/Move", &filesystem.MoveRequest{Source: dir + "/x/f", Destination: dir + "/x/g"})
	if err != nil || moved.GetEntry().GetPermissions() != "-rw-r-----" || moved.GetEntry().GetName() != "g" || moved.GetEntry().GetSize() != 1 {
		t.Errorf("%v, %v", moved, err)
	}
	for range 2 {
		_, err = ask[filesystem.RemoveResponse](b, "/filesystem.Filesystem/Remove", &filesystem.RemoveRequest{Path: dir + "/x"})
		b.must(err)
	}
	_, err = ask[filesystem.StatResponse](b, "/filesystem.Filesystem/Stat", &filesystem.StatRequest{Path: dir + "/x"})
	b.code(connect.CodeNotFound, err)
	_, err = ask[filesystem.ListDirResponse](b, "/filesystem.Filesystem/ListDir", &filesystem.ListDirRequest{Path: dir + "/x"})
	b.code(connect.CodeNotFound, err)
}

func TestWatch(t *testing.T) {
	_, b := inside(t)
	dir := t.TempDir()
	stream, err := rpc[filesystem.WatchDirRequest, filesystem.WatchDirResponse](b, "/filesystem.Filesystem/WatchDir", false).CallServerStream(
		t.Context(), connect.NewRequest(&filesystem.WatchDirRequest{Path: dir}))
	b.must(err)
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatal(stream.Err())
	}
	_, err = b.post("/files?path="+dir+"/f", "application/octet-stream", strings.NewReader("1"))
	b.must(err)
	want := []filesystem.EventType{filesystem.EventType_EVENT_TYPE_CREATE, filesystem.EventType_EVENT_TYPE_WRITE}
	for len(want) > 0 && stream.Receive() {
		if e := stream.Msg().GetFilesystem(); e.GetName() == "f" && e.GetType() == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("no %v: %v", want, stream.Err())
	}
	_ = stream.Close()
}

func (b box) createWatcher(dir string) (string, error) {
	made, err := ask[filesystem.CreateWatcherResponse](b, "/filesystem.Filesystem/CreateWatcher", &filesystem.CreateWatcherRequest{Path: dir, Recursive: true})
	return made.GetWatcherId(), err
}

func (b box) poll(watcher string, binary bool) ([]*filesystem.FilesystemEvent, error) {
	resp, err := rpc[filesystem.GetWatcherEventsRequest, filesystem.GetWatcherEventsResponse](b, "/filesystem.Filesystem/GetWatcherEvents", binary).CallUnary(
		b.Context(), connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: watcher}))
	if err != nil {
		return nil, err
	}
	return resp.Msg.GetEvents(), nil
}

// pollUntil polls until there is an event of this name, or an error.
func (b box) pollUntil(watcher, name string, binary bool) (kinds []filesystem.EventType, err error) {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		events, err := b.poll(watcher, binary)
		if err != nil {
			return kinds, err
		}
		for _, e := range events {
			kinds = append(kinds, e.GetType())
			if e.GetName() == name {
				return kinds, nil
			}
		}
	}
	b.Fatalf("no event of %s", name)
	return nil, nil
}

func (b box) removeWatcher(watcher string) error {
	_, err := ask[filesystem.RemoveWatcherResponse](b, "/filesystem.Filesystem/RemoveWatcher", &filesystem.RemoveWatcherRequest{WatcherId: watcher})
	return err
}

func TestPolledWatchers(t *testing.T) {
	f, b := inside(t)
	dir := t.TempDir()
	_, err := b.createWatcher(dir + "/nope")
	b.code(connect.CodeNotFound, err)
	other := box{f, f.create(nil), "", "root"}
	other.token = f.info(other.id).EnvdAccessToken
	for _, binary := range []bool{false, true} {
		watcher, err := b.createWatcher(dir)
		b.must(err)
		_, err = b.post("/files?path="+dir+"/sub/f"+fmt.Sprint(binary), "application/octet-stream", strings.NewReader("1"))
		b.must(err)
		if !binary { // the directory is new
			_, err = b.pollUntil(watcher, "sub", binary)
			b.must(err)
		}
		b.run(false, sh("touch "+dir+"/g; rm "+dir+"/g; touch "+dir+"/end"+fmt.Sprint(binary)))
		kinds, err := b.pollUntil(watcher, "end"+fmt.Sprint(binary), binary)
		if err != nil || !slices.Contains(kinds, filesystem.EventType_EVENT_TYPE_CREATE) || !slices.Contains(kinds, filesystem.EventType_EVENT_TYPE_REMOVE) {
			t.Errorf("%v, %v", kinds, err)
		}
		_, err = other.poll(watcher, binary)
		b.code(connect.CodeNotFound, err)
		b.code(connect.CodeNotFound, other.removeWatcher(watcher))
		b.must(b.removeWatcher(watcher))
		_, err = b.poll(watcher, binary)
		b.code(connect.CodeNotFound, err)
		b.code(connect.CodeNotFound, b.removeWatcher(watcher))
	}
}

// TestPolledWatchersAreBounded: in number, and by the run of their sandbox.
func TestPolledWatchersAreBounded(t *testing.T) {
	f, b := inside(t)
	dir := t.TempDir()
	var all []string
	for {
		watcher, err := b.createWatcher(dir)
		if err != nil {
			b.code(connect.CodeResourceExhausted, err)
			break
		}
		if all = append(all, watcher); len(all) > 100 {
			t.Fatal("there is no bound")
		}
	}
	for _, watcher := range all[1:] {
		b.must(b.removeWatcher(watcher))
	}
	// A watch that has ended with its sandbox says so.
	last, err := b.createWatcher(dir)
	b.must(err)
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+b.id+"/pause", map[string]any{"memory": false})
	f.want(http.StatusCreated, "", "POST", "/sandboxes/"+b.id+"/connect", nil)
	if _, err = b.pollUntil(last, "no such name", false); err == nil {
		t.Error("the watch of a stopped sandbox goes on")
	}
}

// TestSignedURLs name no sandbox: the one whose token made the signature is meant.
func TestSignedURLs(t *testing.T) {
	f, b := inside(t)
	f.create(nil)
	file := t.TempDir() + "/f g"
	sign := func(operation, user, expiration string) string {
		text := file + ":" + operation + ":" + user + ":" + b.token
		query := url.Values{"path": {file}}
		if user != "" {
			query.Set("username", user)
		}
		if expiration != "" {
			text += ":" + expiration
			query.Set("signature_expiration", expiration)
		}
		sum := sha256.Sum256([]byte(text))
		query.Set("signature", "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
		return "/files?" + query.Encode()
	}
	later, before := fmt.Sprint(time.Now().Add(time.Hour).Unix()), fmt.Sprint(time.Now().Add(-time.Hour).Unix())
	f.key = ""
	f.want(http.StatusUnauthorized, "signature", "POST", sign("read", "root", later), "x")
	f.want(http.StatusUnauthorized, "signature", "POST", sign("write", "root", before), "x")
	f.want(http.StatusUnauthorized, "signature", "POST", sign("write", "root", later)+"0", "x")
	if a := f.call("POST", sign("write", "root", later), "text"); a.code != http.StatusOK {
		t.Errorf("%+v", a)
	}
	if a := f.call("GET", sign("read", "root", ""), nil); a.code != http.StatusOK || a.body != "text" {
		t.Errorf("%+v", a)
	}
	if a := f.call("GET", strings.Replace(sign("read", "root", ""), "root", "user", 1), nil); a.code != http.StatusUnauthorized {
		t.Errorf("%+v", a)
	}
}

// TestWhoMayEnter: only with the token of the sandbox, and only a sandbox of this gateway that runs.
func TestWhoMayEnter(t *testing.T) {
	f, b := inside(t)
	other := f.create(nil)
	for name, c := range map[string]struct {
		id, token string
		code      int
	}{
		"no token":            {b.id, "", 401},
		"a wrong token":       {b.id, strings.Repeat("0", 64), 401},
		"that of another":     {other, b.token, 401},
		"an unknown sandbox":  {"nosuchsandbox", b.token, 502},
		"a name with a path":  {"../" + b.id, b.token, 502},
		"the token, as it is": {b.id, b.token, 404},
	} {
		with := box{f, c.id, c.token, ""}
		if a := with.get("/files?path=/no/such/file"); a.code != c.code {
			t.Errorf("%s: %d %s, want %d", name, a.code, a.body, c.code)
		}
	}
	if a := b.get("/health"); a.code != http.StatusNoContent {
		t.Errorf("%+v", a)
	}
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+b.id+"/pause", nil)
	for _, path := range []string{"/health", "/files?path=/etc/passwd"} {
		if a := b.get(path); a.code != http.StatusBadGateway || !strings.Contains(a.body, `"sandboxId":"`+b.id+`"`) {
			t.Errorf("%+v", a)
		}
	}
	f.want(http.StatusNoContent, "", "DELETE", "/sandboxes/"+b.id, nil)
	if a := b.get("/health"); a.code != http.StatusBadGateway {
		t.Errorf("%+v", a)
	}
}

// TestTrafficResumes a sandbox with auto-resume, also if many requests arrive at once.
func TestTrafficResumes(t *testing.T) {
	f := newFixture(t, conformance.Settings{})
	id := f.create(map[string]any{"autoResume": map[string]any{"enabled": true}})
	b := box{f, id, f.info(id).EnvdAccessToken, "root"}
	f.want(http.StatusNoContent, "", "POST", "/sandboxes/"+id+"/pause", nil)
	codes := make(chan int)
	for range 6 {
		go func() {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/files?path=/etc/passwd", nil)
			a, _ := b.do(req)
			codes <- a.code
		}()
	}
	for range 6 {
		if code := <-codes; code != http.StatusOK {
			t.Error(code)
		}
	}
}

// TestTheWireOfAStream is what the SDKs parse: a flag byte, four of length, JSON with base64.
func TestTheWireOfAStream(t *testing.T) {
	_, b := inside(t)
	body := `{"process":{"cmd":"/bin/sh","args":["-c","printf hi"]},"stdin":false}`
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	a, err := b.post("/process.Process/Start", "application/connect+json", io.MultiReader(bytes.NewReader(frame), strings.NewReader(body)), "Connect-Protocol-Version", "1")
	b.must(err)
	var frames []string
	for rest := []byte(a.body); len(rest) >= 5; {
		n := binary.BigEndian.Uint32(rest[1:5])
		frames = append(frames, string(rest[:1])+strings.ReplaceAll(string(rest[5:5+n]), " ", ""))
		rest = rest[5+n:]
	}
	if len(frames) != 4 || !strings.HasPrefix(frames[0], "\x00"+`{"event":{"start":{"pid":`) ||
		frames[1] != "\x00"+`{"event":{"data":{"stdout":"`+base64.StdEncoding.EncodeToString([]byte("hi"))+`"}}}` ||
		!strings.HasPrefix(frames[2], "\x00"+`{"event":{"end":{`) || frames[3] != "\x02{}" {
		t.Errorf("%q", frames)
	}
}

// TestASignedURLIsForItsUser: unlike the token, a signed URL opens files as no other user than the one in it.
func TestASignedURLIsForItsUser(t *testing.T) {
	f, b := inside(t)
	sum := sha256.Sum256([]byte("/etc/hosts:read::" + b.token))
	target := "/files?" + url.Values{"path": {"/etc/hosts"}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}.Encode()
	for name, want := range map[string]int{"": http.StatusOK, "nosuchuser": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+target, http.NoBody)
		f.must(err)
		if name != "" {
			req.SetBasicAuth(name, "")
		}
		resp, err := http.DefaultClient.Do(req)
		f.must(err)
		body, err := io.ReadAll(resp.Body)
		f.must(errors.Join(err, resp.Body.Close()))
		if resp.StatusCode != want {
			t.Errorf("as %q: %d %s", name, resp.StatusCode, body)
		}
	}
}
