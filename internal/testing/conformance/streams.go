package conformance

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	goclient "github.com/agbox/agbox/client"
)

// live returns a READY sandbox whose channel is connected. Where no sandbox has one, the API must say so, and the test is skipped.
func (c *client) live() string {
	c.Helper()
	id := c.ready()
	if c.target.NoChannel {
		_, err := goclient.New(c.conn).DialSandbox(c.ctx(), id, "tcp", "localhost:1")
		if got := c.get(id).GetChannel(); got != "files" || err == nil || !strings.Contains(err.Error(), "has no live channel") {
			c.Errorf("its channel is %q, and a tunnel: %v", got, err)
		}
		c.Skip("no sandbox has a live channel on this runtime")
	}
	c.eventually(func() bool { return c.get(id).GetChannel() == "live" })
	return id
}

// streams tries AttachExec, ReadExecLog, StreamLogs, FileService and Tunnel.
func streams(t *testing.T, c *client) {
	c.sub(t, "attach: input, output and the end", func(c *client) {
		id, x := c.live(), newID()
		c.execRequest(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: x, Command: []string{"sh", "-c", "cat; echo err >&2; exit 4"}, Stdin: &agboxv1.StdinSpec{}})
		var out, errs bytes.Buffer
		end, err := goclient.New(c.conn).Attach(c.ctx(), x, goclient.AttachOptions{Stdin: strings.NewReader("in\n"), Stdout: &out, Stderr: &errs})
		if err != nil || end.GetExitCode() != 4 || out.String() != "in\n" || errs.String() != "err\n" {
			c.Errorf("%v, %v, %q, %q", end, err, &out, &errs)
		}
		// Again, after the end and from an offset: the same bytes.
		out.Reset()
		end, err = goclient.New(c.conn).Attach(c.ctx(), x, goclient.AttachOptions{Stdout: &out, StdoutOffset: 1})
		if err != nil || end.GetExitCode() != 4 || out.String() != "n\n" {
			c.Errorf("after the end: %v, %v, %q", end, err, &out)
		}
	})
	c.sub(t, "attach: one writer", func(c *client) {
		id, x := c.live(), newID()
		c.execRequest(&agboxv1.CreateExecRequest{SandboxId: id, ExecId: x, Command: []string{"cat"}, Stdin: &agboxv1.StdinSpec{}})
		r, w := io.Pipe()
		takenOver, over := make(chan bool, 1), make(chan error, 1)
		first := &notingWriter{written: make(chan struct{})}
		go func() {
			_, err := goclient.New(c.conn).Attach(c.ctx(), x, goclient.AttachOptions{Stdin: r, Stdout: first, OnStdin: func(t bool) { takenOver <- t }})
			over <- err
		}()
		_, err := io.WriteString(w, "1\n")
		c.must(err)
		<-first.written // it is attached
		_, err = goclient.New(c.conn).Attach(c.ctx(), x, goclient.AttachOptions{Stdin: strings.NewReader("")})
		if goclient.Reason(err) != "STDIN_IN_USE" {
			c.Errorf("a second writer: %v", err)
		}
		_, err = goclient.New(c.conn).Attach(c.ctx(), x, goclient.AttachOptions{Stdin: strings.NewReader("2\n"), TakeOver: true})
		if err = errors.Join(err, <-over); err != nil || !<-takenOver {
			c.Errorf("taken over: %v", err)
		}
		c.holds(c.ended(x).GetStdoutLogPath(), "1\n2\n")
	})
	c.sub(t, "attach: refusals", func(c *client) {
		_, err := goclient.New(c.conn).Attach(c.ctx(), "unknown", goclient.AttachOptions{Stdout: io.Discard})
		c.refused(err, aboutExec(codes.NotFound, "EXEC_NOT_FOUND", "unknown", "exec %s was not found"))
	})
	c.sub(t, "the log of an exec from an offset, as it grows", func(c *client) {
		id, x := c.ready(), newID()
		c.exec(id, x, "sh", "-c", "echo 1; sleep 0.3; echo 2")
		var out bytes.Buffer
		at, err := goclient.New(c.conn).CopyExecLog(c.ctx(), x, false, 1, true, &out)
		if err != nil || at != 4 || out.String() != "\n2\n" {
			c.Errorf("%d, %v, %q", at, err, &out)
		}
	})
	c.sub(t, "the log of a main process", func(c *client) {
		id := c.ready(func(s *spec) { s.Command = []string{"sh", "-c", "echo hello; exec sleep 1000"} })
		var out bytes.Buffer
		for chunk, err := range goclient.New(c.conn).Logs(c.ctx(), &agboxv1.StreamLogsRequest{SandboxId: id, Follow: true}) {
			c.must(err)
			if out.Write(chunk.GetData()); strings.HasSuffix(out.String(), "\n") {
				break
			}
		}
		if out.String() != "hello\n" {
			c.Errorf("%q", &out)
		}
	})
	c.sub(t, "files", files)
	c.sub(t, "a tunnel to where nothing listens", func(c *client) {
		id := c.live()
		for _, to := range [][2]string{{"tcp", "localhost:1"}, {"unix", "/dev/null"}} {
			conn, err := goclient.New(c.conn).DialSandbox(c.ctx(), id, to[0], to[1])
			if goclient.Reason(err) != goclient.ReasonPortRefused {
				c.Errorf("%v: %v, %v", to, conn, err)
			}
		}
	})
	c.sub(t, "a stopped sandbox", func(c *client) {
		id := c.live()
		c.stops(id)
		if got := c.get(id).GetChannel(); got != "archive" {
			c.Errorf("its channel is %q", got)
		}
		_, err := goclient.New(c.conn).DialSandbox(c.ctx(), id, "tcp", "localhost:1")
		if goclient.Reason(err) != "SANDBOX_NOT_READY" {
			c.Errorf("a tunnel: %v", err)
		}
	})
}

// notingWriter closes a channel at the first write.
type notingWriter struct{ written chan struct{} }

func (n *notingWriter) Write(p []byte) (int, error) {
	select {
	case <-n.written:
	default:
		close(n.written)
	}
	return len(p), nil
}

// files tries the calls of FileService in a directory of their own.
func files(c *client) {
	id, dir := c.live(), "/tmp/"+newID()
	g := goclient.New(c.conn)
	defer func() {
		c.must(g.RemoveFile(c.ctx(), &agboxv1.RemoveRequest{SandboxId: id, Path: dir, Recursive: true}))
		if _, err := g.StatFile(c.ctx(), &agboxv1.StatRequest{SandboxId: id, Path: dir}); goclient.Reason(err) != goclient.ReasonFileNotFound {
			c.Errorf("removed: %v", err)
		}
	}()
	mode := uint32(0o640)
	e, err := g.WriteFile(c.ctx(), &agboxv1.WriteFileStart{SandboxId: id, Path: dir + "/sub/a", MakeParents: true, Mode: &mode}, strings.NewReader("content"))
	c.must(err)
	if e.GetMode() != mode || e.GetSizeBytes() != 7 {
		c.Errorf("written: %v", e)
	}
	_, err = g.WriteFile(c.ctx(), &agboxv1.WriteFileStart{SandboxId: id, Path: dir + "/sub/a", Exclusive: true}, strings.NewReader("x"))
	if goclient.Reason(err) != goclient.ReasonFileExists {
		c.Errorf("exclusive: %v", err)
	}
	_, err = g.WriteFile(c.ctx(), &agboxv1.WriteFileStart{SandboxId: id, Path: dir + "/sub/a", IfVersion: "other"}, strings.NewReader("x"))
	if goclient.Reason(err) != goclient.ReasonFileChanged {
		c.Errorf("another version: %v", err)
	}
	f, err := g.OpenFile(c.ctx(), &agboxv1.ReadFileRequest{SandboxId: id, Path: dir + "/sub/a", Offset: 3})
	c.must(err)
	data, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || string(data) != "tent" {
		c.Errorf("read: %q, %v", data, err)
	}
	_, err = g.MoveFile(c.ctx(), &agboxv1.MoveRequest{SandboxId: id, FromPath: dir + "/sub/a", ToPath: dir + "/b"})
	c.must(err)
	_, err = g.MakeDir(c.ctx(), &agboxv1.MakeDirRequest{SandboxId: id, Path: dir + "/c"})
	c.must(err)
	var archive bytes.Buffer
	c.must(g.ReadArchive(c.ctx(), &agboxv1.ReadArchiveRequest{SandboxId: id, Path: dir + "/b"}, &archive, nil))
	resp, err := g.WriteArchive(c.ctx(), &agboxv1.WriteArchiveStart{SandboxId: id, Path: dir + "/c"}, &archive)
	if err != nil || resp.GetEntries() != 1 || resp.GetBytes() != 7 {
		c.Errorf("unpacked: %v, %v", resp, err)
	}
	var names []string
	for e, err := range g.ListDir(c.ctx(), &agboxv1.ListDirRequest{SandboxId: id, Path: dir, Depth: 2}) {
		c.must(err)
		names = append(names, strings.TrimPrefix(e.GetPath(), dir+"/"))
	}
	if want := []string{"b", "c", "c/b", "sub"}; !slices.Equal(names, want) {
		c.Errorf("listed %q instead of %q", names, want)
	}
	started := make(chan struct{})
	go func() {
		<-started
		_, _ = g.MakeDir(c.ctx(), &agboxv1.MakeDirRequest{SandboxId: id, Path: dir + "/seen"}) // a failure shows below
	}()
	for change, err := range g.WatchDir(c.ctx(), &agboxv1.WatchDirRequest{SandboxId: id, Path: dir}, func() { close(started) }) {
		c.must(err)
		if change.GetChange() != agboxv1.FileChange_FILE_CHANGE_CREATED || change.GetName() != "seen" {
			c.Errorf("watched: %v", change)
		}
		break
	}
}
