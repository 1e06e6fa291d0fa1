package e2b_test

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/e2b/process"
	"github.com/agbox/agbox/internal/e2b"
	"github.com/agbox/agbox/internal/testing/conformance"
)

// counted counts the messages that a gateway sends to the daemon, by method.
type counted struct {
	grpc.ClientConnInterface
	mu   sync.Mutex
	sent map[string]int
}

func (c *counted) add(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil {
		c.sent = map[string]int{}
	}
	c.sent[method[strings.LastIndex(method, "/")+1:]]++
}

// taken returns the counts since the last call.
func (c *counted) taken() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

func (c *counted) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.add(method)
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c *counted) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return &countedStream{s, c, method}, err
}

type countedStream struct {
	grpc.ClientStream
	c      *counted
	method string
}

func (s *countedStream) SendMsg(m any) error {
	s.c.add(s.method)
	return s.ClientStream.SendMsg(m)
}

func TestFewCallsServeARequest(t *testing.T) {
	calls := &counted{}
	f := newFixture(t, conformance.Settings{}, func(o *e2b.Options) {
		calls.ClientConnInterface = o.Conn
		o.Conn = calls
	})
	id := f.create(nil)
	b := box{f, id, f.info(id).EnvdAccessToken, "root"}
	dir := t.TempDir()

	const size = 1 << 20
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "x")
	f.must(err)
	_, err = part.Write(make([]byte, size))
	f.must(err)
	f.must(w.Close())
	calls.taken()
	resp, err := (&http.Client{Transport: b}).Post(f.url+"/files?path="+filepath.Join(dir, "x"), w.FormDataContentType(), &form)
	f.must(err)
	f.must(resp.Body.Close())
	got, err := os.ReadFile(filepath.Join(dir, "x"))
	if f.must(err); len(got) != size {
		t.Errorf("%d bytes were written", len(got))
	}
	if n := calls.taken()["WriteFile"]; n > size/agboxv1.PieceBytes+2 {
		t.Errorf("a form of 1 MiB took %d messages", n)
	}

	for i, want := range []int{2, 1} { // one is of the home
		no := false
		r := b.run(false, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-c", "exit 3"}}, Stdin: &no})
		if sent := calls.taken(); r.end.GetExitCode() != 3 || sent["Stat"] != want || sent["CreateExec"] != 1 {
			t.Errorf("command %d: %+v, after %v", i, r, sent)
		}
	}
}
