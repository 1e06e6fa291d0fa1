package server_test

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
)

func TestTheFSOfASandbox(t *testing.T) {
	f := newFilesFixture(t)
	c := client.New(f.older)
	f.must(os.MkdirAll(f.dir+"/d/e", 0o755))
	f.must(os.WriteFile(f.dir+"/d/e/f", []byte("content"), 0o640))
	f.must(os.WriteFile(f.dir+"/empty", nil, 0o600))
	f.must(os.Symlink("d/e/f", f.dir+"/link"))
	sub, err := fs.Sub(c.FS(t.Context(), "sandbox", ""), strings.TrimPrefix(f.dir, "/"))
	f.must(err)
	f.must(fstest.TestFS(sub, "d/e/f", "empty", "link"))
	if data, err := fs.ReadFile(sub, "link"); string(data) != "content" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := fs.Stat(sub, "none"); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

func TestAClientListsMoreThanOnePage(t *testing.T) {
	f := newFilesFixture(t)
	f.must(os.MkdirAll(f.dir+"/a/b", 0o755))
	for i := range 1500 {
		f.must(os.WriteFile(fmt.Sprintf("%s/a/b/%04d", f.dir, i), nil, 0o600))
	}
	n := 0
	for e, err := range client.New(f.older).ListDir(t.Context(), &agboxv1.ListDirRequest{SandboxId: "sandbox", Path: ".", Depth: 5}) {
		if f.must(err); n >= 2 && e.GetName() != fmt.Sprintf("%04d", n-2) {
			t.Fatalf("entry %d is %s", n, e.GetName())
		}
		n++
	}
	if n != 1502 {
		t.Errorf("%d entries", n)
	}
}

func TestDialSandboxIsAConnection(t *testing.T) {
	f := newFilesFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	var served sync.WaitGroup
	defer served.Wait()
	defer l.Close()
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			})
		}
	})
	c := client.New(f.older)
	address := fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			conn, err := c.DialSandbox(t.Context(), "sandbox", "tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			want := strings.Repeat(fmt.Sprint(i), 100_000)
			go func() {
				_, _ = io.WriteString(conn, want)
				_ = conn.(client.HalfCloser).CloseWrite()
			}()
			if got, err := io.ReadAll(conn); string(got) != want || err != nil {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	all.Wait()
	conn, err := c.DialSandbox(t.Context(), "sandbox", "tcp", address)
	f.must(err)
	defer conn.Close()
	f.must(conn.SetReadDeadline(time.Now().Add(-time.Second)))
	if _, err := conn.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("%v", err)
	}
	for _, bad := range [][2]string{{"udp", ":1"}, {"tcp", "example.org:80"}, {"tcp", ":x"}} {
		if _, err := c.DialSandbox(t.Context(), "sandbox", bad[0], bad[1]); err == nil {
			t.Errorf("%q", bad)
		}
	}
}

// BenchmarkFiles has the figures of one warm worker and the daemon, without a container.
func BenchmarkFiles(b *testing.B) {
	f := newFilesFixture(b)
	c := client.New(f.older)
	big := strings.Repeat("x", 8<<20)
	b.Run("write 8 MiB", func(b *testing.B) {
		for b.Loop() {
			_, err := c.WriteFile(b.Context(), &agboxv1.WriteFileStart{SandboxId: "sandbox", Path: "big"}, strings.NewReader(big))
			f.must(err)
		}
	})
	_, err := c.WriteFile(b.Context(), &agboxv1.WriteFileStart{SandboxId: "sandbox", Path: "small"}, strings.NewReader(big[:1024]))
	f.must(err)
	b.Run("read 1 KiB", func(b *testing.B) {
		for b.Loop() {
			r, err := c.OpenFile(b.Context(), &agboxv1.ReadFileRequest{SandboxId: "sandbox", Path: "small"})
			f.must(err)
			_, err = io.Copy(io.Discard, r)
			f.must(err)
			r.Close()
		}
	})
}
