package session

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/shim/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	os.Exit(m.Run())
}

// box is a sandbox without a container: a home directory and a worker.
type box struct {
	home   string
	worker *workertest.Worker
}

type site struct {
	testing.TB
	*Keeper
	boxes map[string]box
	limit int64
	calls map[channel.Op]int
}

func newSite(t *testing.T) *site {
	s := &site{TB: t, boxes: map[string]box{}, limit: 1 << 20, calls: map[channel.Op]int{}}
	s.Keeper = New(Options{
		Dir: filepath.Join(t.TempDir(), "sessions"), Limit: func() int64 { return s.limit },
		Open: func(_ context.Context, id, _ string) (net.Conn, error) {
			conn, err := s.boxes[id].worker.Open()
			return spied{conn, s}, err
		},
	})
	return s
}

// spied counts the operations that are asked for.
type spied struct {
	net.Conn
	s *site
}

func (c spied) Write(p []byte) (int, error) {
	for _, op := range []channel.Op{channel.Read, channel.WriteFile} {
		if bytes.Contains(p, []byte(`"op":"`+string(op)+`"`)) {
			c.s.calls[op]++
		}
	}
	return c.Conn.Write(p)
}

func (s *site) box(id string) string {
	home := s.TempDir()
	s.boxes[id] = box{home, workertest.Start(s, "", home)}
	return home
}

func (s *site) request(sandboxID string, paths ...string) Request {
	return Request{AgentID: "agent", SandboxID: sandboxID, SessionID: "one", Paths: paths}
}

func (s *site) write(text string, path ...string) string {
	s.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
		s.Fatal(err)
	}
	return name
}

func (s *site) want(text string, path ...string) {
	s.Helper()
	got, err := os.ReadFile(filepath.Join(path...))
	if string(got) != text || text == "" != os.IsNotExist(err) {
		s.Errorf("%s has %.60q, %v; want %.60q", path[len(path)-1], got, err, text)
	}
}

func (s *site) save(r Request) Saved {
	s.Helper()
	got, err := s.Save(s.Context(), r)
	if err != nil {
		s.Fatal(err)
	}
	return got
}

func (s *site) restore(r Request) {
	s.Helper()
	if err := s.Restore(s.Context(), r); err != nil {
		s.Fatal(err)
	}
}

func TestASessionIsInTheNextSandbox(t *testing.T) {
	s := newSite(t)
	a, b := s.box("a"), s.box("b")
	name := s.write("first\n", a, ".tool/sessions/2026/one.jsonl")
	s.write("state", a, ".tool.json")
	s.write("absolute", a, "data/x")
	past := time.Now().Add(-time.Hour).Truncate(time.Microsecond)
	if err := os.Chtimes(name, past, past); err != nil {
		t.Fatal(err)
	}
	r := s.request("a", "~/.tool/sessions", "~/.tool.json", "~/.missing", filepath.Join(a, "data"))
	if got := s.save(r); got != (Saved{Files: 3, Bytes: 19}) {
		t.Errorf("saved %+v", got)
	}
	s.calls[channel.Read] = 0
	if got := s.save(r); got != (Saved{Files: 3, Bytes: 19}) || s.calls[channel.Read] != 0 {
		t.Errorf("saved %+v again, %d files read", got, s.calls[channel.Read])
	}
	s.write("first\nsecond\n", a, ".tool/sessions/2026/one.jsonl")
	os.Remove(filepath.Join(a, "data/x"))
	if got := s.save(r); got != (Saved{Files: 2, Bytes: 18}) || s.calls[channel.Read] != 1 {
		t.Errorf("saved %+v, %d files read", got, s.calls[channel.Read])
	}
	if err := os.Chtimes(name, past, past); err != nil {
		t.Fatal(err)
	}
	s.save(r)
	s.boxes["a"].worker.Cmd.Process.Kill()
	r.SandboxID = "b"
	for range 2 {
		s.restore(r)
		s.want("first\nsecond\n", b, ".tool/sessions/2026/one.jsonl")
		s.want("state", b, ".tool.json")
	}
	if n := s.calls[channel.WriteFile]; n != 2 {
		t.Errorf("%d files were written", n)
	}
	if st, err := os.Stat(filepath.Join(b, ".tool/sessions/2026/one.jsonl")); err != nil || !st.ModTime().Equal(past) || st.Mode() != 0o640 {
		t.Errorf("%v, %v", st, err)
	}
	left, _ := filepath.Glob(filepath.Join(s.o.Dir, "agent", "*"))
	if len(left) != 3 {
		t.Errorf("kept %v", left)
	}
	for range 2 {
		if err := s.Remove("agent"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Restore(t.Context(), r); !errdefs.IsNotFound(err) {
		t.Errorf("removed: %v", err)
	}
}

// What the sandbox has and has written later is not replaced; what is older is.
func TestALaterFileStays(t *testing.T) {
	s := newSite(t)
	a, b := s.box("a"), s.box("b")
	now := time.Now()
	for name, at := range map[string]time.Time{"older": now.Add(-time.Hour), "same": now, "later": now.Add(time.Hour)} {
		s.write("saved", a, "s", name)
		os.Chtimes(filepath.Join(a, "s", name), now, now)
		os.Chtimes(s.write("there", b, "s", name), at, at)
	}
	s.save(s.request("a", "~/s"))
	s.restore(s.request("b", "~/s"))
	s.want("saved", b, "s/older")
	s.want("there", b, "s/same")
	s.want("there", b, "s/later")
}

func TestBeyondALimitTheLastCopyStays(t *testing.T) {
	s := newSite(t)
	a, b := s.box("a"), s.box("b")
	s.write("good", a, "s/one")
	r := s.request("a", "~/s")
	s.save(r)
	f := s.write("", a, "s/huge")
	if err := os.Truncate(f, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(t.Context(), r); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "agents.session_limit") {
		t.Errorf("a TiB: %v", err)
	}
	os.Remove(f)
	for i := range maxFiles {
		s.write("", a, "s", fmt.Sprint(i))
	}
	if _, err := s.Save(t.Context(), r); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "10000 files") {
		t.Errorf("10,001 files: %v", err)
	}
	r.SandboxID = "b"
	s.restore(r)
	s.want("good", b, "s/one")
}

// A file that grows without end while it is read ends at the limit.
func TestAFileThatGrowsWhileItIsReadIsBounded(t *testing.T) {
	s := newSite(t)
	a := s.box("a")
	name := s.write("x", a, "s/grows")
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		defer f.Close()
		for ctx.Err() == nil {
			f.Write(make([]byte, 256<<10))
			if st, err := f.Stat(); err == nil && st.Size() > 64<<20 {
				f.Truncate(0)
			}
		}
	}()
	for range 20 {
		got, err := s.Save(ctx, s.request("a", "~/s"))
		if err == nil && got.Bytes > s.limit || err != nil && !errdefs.IsResourceExhausted(err) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	cancel()
	<-done
}

// The tree does what it can: nothing but regular files is saved, nothing hangs, and nothing outside is read or written.
func TestAHostileTree(t *testing.T) {
	s := newSite(t)
	a, b := s.box("a"), s.box("b")
	secret := s.write("secret", s.TempDir(), "secret")
	s.write("good", a, "s/good")
	s.write("odd", a, "s/new\nline \"quoted\" \\ ..")
	s.write("bytes", a, "s/\xff\xfe")
	s.write("colon", a, "s/..\u202egnp")
	for target, name := range map[string]string{secret: "link", "/": "root", ".": "loop", "/dev/zero": "zero"} {
		if err := os.Symlink(target, filepath.Join(a, "s", name)); err != nil {
			t.Fatal(err)
		}
	}
	unix.Mkfifo(filepath.Join(a, "s/fifo"), 0o666)
	unix.Mknod(filepath.Join(a, "s/device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
	unix.Mkfifo(filepath.Join(a, "pipe"), 0o666)
	os.Chmod(s.write("setuid", a, "s/setuid"), 0o755|os.ModeSetuid)
	deep := filepath.Join(a, "s")
	for range 60 {
		deep = filepath.Join(deep, "d")
	}
	s.write("deep", deep, "f")
	r := s.request("a", "~/s", "~/pipe", "~/s/link/x")
	if got := s.save(r); got.Files != 4 {
		t.Errorf("saved %+v", got)
	}
	outside := s.TempDir()
	os.MkdirAll(filepath.Join(b, "s"), 0o755)
	os.Symlink(outside, filepath.Join(b, "s/elsewhere")) // its own files: the worker is inside the sandbox
	r.SandboxID = "b"
	s.restore(r)
	s.want("good", b, "s/good")
	s.want("odd", b, "s/new\nline \"quoted\" \\ ..")
	s.want("", b, "s/link")
	if st, err := os.Stat(filepath.Join(b, "s/setuid")); err != nil || st.Mode() != 0o755 {
		t.Errorf("%v, %v", st, err)
	}
}

// A worker is a process of the sandbox: its user may replace it. Then it answers what it likes.
func TestALyingWorkerNamesNothingOutside(t *testing.T) {
	s := newSite(t)
	b := s.box("b")
	answers := map[channel.Op][]channel.Frame{}
	s.o.Open = func(_ context.Context, id, _ string) (net.Conn, error) {
		if id == "b" {
			return s.boxes["b"].worker.Open()
		}
		ours, theirs := net.Pipe()
		now := maps.Clone(answers)
		go func() {
			defer theirs.Close()
			f, err := channel.NewReader(theirs).Read()
			for op, frames := range now {
				if err == nil && bytes.Contains(f.Data, []byte(`"op":"`+string(op)+`"`)) {
					for _, f := range frames {
						channel.Write(theirs, f)
					}
				}
			}
		}()
		return ours, nil
	}
	answers[channel.Stat] = []channel.Frame{{Kind: channel.Result, Data: []byte(`{"type":"d","path":"/h/s"}`)}}
	answers[channel.Read] = []channel.Frame{{Kind: channel.Result, Data: []byte(`{"type":"f","mode":4095,"version":"v"}`)}, {Kind: channel.Data, Data: []byte("evil")}, {Kind: channel.End}}
	answers[channel.List] = []channel.Frame{{Kind: channel.Data, Data: []byte(`{"entries":[
		{"type":"f","path":"/h/s/../.bashrc"},{"type":"f","path":"/etc/shadow"},{"type":"f","path":"/h/s//x"},{"type":"f","path":"/h/s/"},
		{"type":"f","path":"/h/s/a/../../.profile"},{"type":"f","path":"/h/s/size","size":-5},{"type":"f","path":"/h/s/good","size":9000000000000000000}]}`)}, {Kind: channel.End}}
	if _, err := s.Save(t.Context(), s.request("a", "~/s")); !errdefs.IsResourceExhausted(err) {
		t.Errorf("a size that is a lie: %v", err)
	}
	answers[channel.List][0].Data = bytes.Replace(answers[channel.List][0].Data, []byte("9000000000000000000"), []byte("1"), 1)
	if got := s.save(s.request("a", "~/s")); got.Files != 1 {
		t.Errorf("saved %+v", got)
	}
	s.restore(s.request("b", "~/s"))
	s.want("evil", b, "s/good")
	s.want("", b, ".bashrc")
	s.want("", b, ".profile")
	for _, frames := range [][]channel.Frame{
		nil, {{Kind: channel.Data, Data: []byte("{")}}, {{Kind: channel.Result}}, {{Kind: channel.Data, Data: []byte(`{"more":true}`)}, {Kind: channel.End}},
		{{Kind: channel.Failure, Text: "NONSENSE", Data: []byte("\xff")}},
	} {
		answers[channel.List] = frames
		if _, err := s.Save(t.Context(), s.request("a", "~/s")); err == nil {
			t.Errorf("%v is no error", frames)
		}
	}
	s.restore(s.request("b", "~/s"))
}

// The session of another agent of the sandbox is saved by that agent.
func TestSessionsOfOtherAgentsAreLeftOut(t *testing.T) {
	s := newSite(t)
	a := s.box("a")
	s.write("x", a, "s/one.jsonl")
	s.write("x", a, "s/two.jsonl")
	s.write("x", a, "s/two/message")
	r := s.request("a", "~/s")
	r.Others = []string{"two", "", "one"}
	if got := s.save(r); got.Files != 1 {
		t.Errorf("%+v", got)
	}
	r.Named = r.Paths
	s.write("x", a, "s/four.jsonl")
	if got := s.save(r); got.Files != 1 {
		t.Errorf("with its ID: %+v", got)
	}
	r.SessionID = "three"
	if err := s.Restore(t.Context(), r); !errdefs.IsNotFound(err) {
		t.Errorf("another session: %v", err)
	}
}

// A crash at any moment leaves the last copy: parts of another one belong to nothing and are removed by the next call.
func TestACopyThatWasCutOffIsNoHalf(t *testing.T) {
	s := newSite(t)
	a, b := s.box("a"), s.box("b")
	s.write("old", a, "s/one")
	r := s.request("a", "~/s")
	s.save(r)
	s.write("left by a crash", s.o.Dir, "agent/.tmp-1")
	s.write("left by a crash", s.o.Dir, "agent", strings.Repeat("0", 64))
	restored := r
	restored.SandboxID = "b"
	s.restore(restored)
	s.want("old", b, "s/one")
	s.save(r)
	left, _ := filepath.Glob(filepath.Join(s.o.Dir, "agent", "*"))
	hidden, _ := filepath.Glob(filepath.Join(s.o.Dir, "agent", ".tmp*"))
	if len(left)+len(hidden) != 2 {
		t.Errorf("left %v %v", left, hidden)
	}
	s.write("\xff\xff", s.o.Dir, "agent/manifest")
	if err := s.Restore(t.Context(), restored); !errdefs.IsNotFound(err) {
		t.Errorf("a damaged manifest: %v", err)
	}
	if got := s.save(r); got.Files != 1 {
		t.Errorf("%+v", got)
	}
	if st, err := os.Stat(filepath.Join(s.o.Dir, "agent")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	for _, id := range []string{"", ".", "..", "a/b", "../x"} {
		if err := s.Remove(id); err == nil {
			t.Errorf("agent ID %q is accepted", id)
		}
	}
}
