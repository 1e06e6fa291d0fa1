package serve_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
	"github.com/agbox/agbox/internal/filetree"
	"github.com/agbox/agbox/internal/shim/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	os.Exit(m.Run())
}

const patience = 30 * time.Second

func pointer[T any](v T) *T { return &v }

// call runs an operation with one answer.
func call(t testing.TB, w *workertest.Worker, c channel.Call) (channel.Entry, error) {
	t.Helper()
	var e channel.Entry
	err := channel.NewReader(w.Call(c)).ReadAnswer(channel.Result, &e)
	return e, err
}

// reason checks that an error is a failure of the reason, which names all texts.
func reason(t testing.TB, err error, want string, texts ...string) {
	t.Helper()
	failed, ok := errors.AsType[*channel.Failed](err)
	if !ok || failed.Reason != want {
		t.Errorf("got %v, want %s", err, want)
		return
	}
	for _, text := range texts {
		if !strings.Contains(failed.Message, text) {
			t.Errorf("%q does not contain %q", failed.Message, text)
		}
	}
}

// upload starts a write and sends data; end finishes it.
type upload struct {
	net.Conn
	r *channel.Reader
}

func start(t testing.TB, w *workertest.Worker, c channel.Call) (*upload, error) {
	t.Helper()
	conn := w.Call(c)
	u := &upload{conn, channel.NewReader(conn)}
	return u, u.r.ReadAnswer(channel.Result, nil)
}

func (u *upload) end(v any) error {
	if err := channel.Write(u, channel.Frame{Kind: channel.End}); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return u.r.ReadAnswer(channel.Result, v)
}

func write(t testing.TB, w *workertest.Worker, c channel.Call, data string) (e channel.Entry, err error) {
	t.Helper()
	c.Op = channel.WriteFile
	u, err := start(t, w, c)
	if err != nil {
		return e, err
	}
	if _, err := channel.NewDataWriter(u).Write([]byte(data)); err != nil && !errors.Is(err, syscall.EPIPE) {
		return e, err
	}
	return e, u.end(&e)
}

func read(t testing.TB, w *workertest.Worker, c channel.Call) (channel.Entry, string, error) {
	t.Helper()
	c.Op = channel.Read
	var e channel.Entry
	r := channel.NewReader(w.Call(c))
	if err := r.ReadAnswer(channel.Result, &e); err != nil {
		return e, "", err
	}
	data, err := io.ReadAll(channel.NewDataReader(r))
	return e, string(data), err
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// left lists a directory.
func left(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFilesAreWrittenAndReadAsAUser(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	e, err := write(t, w, channel.Call{Path: "a/b", Parents: true}, "hello")
	must(t, err)
	if e.Path != dir+"/a/b" || e.Name != "b" || e.Type != channel.Regular || e.Size != 5 || e.Mode != 0o644 || e.UID != uint32(os.Geteuid()) || e.Version == "" {
		t.Errorf("%+v", e)
	}
	for want, c := range map[string]channel.Call{
		"hello": {}, "lo": {Offset: pointer[int64](3)}, "el": {Offset: pointer[int64](1), Limit: 2}, "": {Offset: pointer[int64](5)},
	} {
		c.Path = dir + "/a/b"
		if got, data, err := read(t, w, c); err != nil || data != want || fmt.Sprint(got) != fmt.Sprint(e) {
			t.Errorf("%q, %v, %+v", data, err, got)
		}
	}
	_, _, err = read(t, w, channel.Call{Path: "a/b", Offset: pointer[int64](6)})
	reason(t, err, channel.FileOffset)
	_, _, err = read(t, w, channel.Call{Path: "none"})
	reason(t, err, channel.FileNotFound, dir+"/none")
	_, _, err = read(t, w, channel.Call{Path: "a"})
	reason(t, err, channel.FileType, "regular file")
	_, _, err = read(t, w, channel.Call{Path: "a/b/c"})
	reason(t, err, channel.FileType)
	if _, data, err := read(t, w, channel.Call{Path: "/proc/self/status"}); err != nil || !strings.Contains(data, "Name:") {
		t.Errorf("a file of /proc: %q, %v", data, err)
	}
	_, err = call(t, w, channel.Call{Op: "sing"})
	reason(t, err, channel.BadCall, "sing")
}

func TestAWriteReplacesAFileAtOnce(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	file := dir + "/file"
	must(t, os.WriteFile(file, []byte("old content"), 0o600), os.Chmod(file, 0o2751), os.Symlink("file", dir+"/link"), os.Symlink("new", dir+"/dangling"))
	if os.Geteuid() == 0 {
		must(t, os.Chown(file, 1234, 5678), os.Chmod(file, 0o2751))
	}
	before, err := os.Stat(file)
	must(t, err)
	u, err := start(t, w, channel.Call{Op: channel.WriteFile, Path: "link", Modified: pointer[int64](1e9 + 7)})
	must(t, err)
	_, err = channel.NewDataWriter(u).Write([]byte("new"))
	must(t, err)
	if data, err := os.ReadFile(file); string(data) != "old content" || err != nil {
		t.Errorf("before the end: %q, %v", data, err)
	}
	var e channel.Entry
	must(t, u.end(&e))
	after, err := os.Stat(file)
	must(t, err)
	b, a := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	if data, _ := os.ReadFile(file); string(data) != "new" || a.Mode != b.Mode || a.Uid != b.Uid || a.Gid != b.Gid || a.Ino == b.Ino || e.Modified != 1e9+7 {
		t.Errorf("%q, %o %d:%d instead of %o %d:%d, %+v", data, a.Mode, a.Uid, a.Gid, b.Mode, b.Uid, b.Gid, e)
	}
	if _, err := write(t, w, channel.Call{Path: "dangling", Mode: pointer[uint32](0o4711)}, "x"); err != nil {
		t.Error(err)
	}
	if st, err := os.Lstat(dir + "/new"); err != nil || st.Mode() != os.ModeSetuid|0o711 {
		t.Errorf("%v, %v", st, err)
	}
	if names := left(t, dir); !slices.Equal(names, []string{"dangling", "file", "link", "new"}) {
		t.Errorf("%q", names)
	}
}

func TestAWriteIsNothingIfTheClientOrTheWorkerGoes(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, os.WriteFile(dir+"/file", []byte("old"), 0o600))
	for _, name := range []string{"file", "fresh"} {
		u, err := start(t, w, channel.Call{Op: channel.WriteFile, Path: name})
		must(t, err)
		_, err = channel.NewDataWriter(u).Write(make([]byte, 1<<20))
		must(t, err, u.Close())
	}
	// A later request on the same worker, then its death in the middle of a write.
	u, err := start(t, w, channel.Call{Op: channel.WriteFile, Path: "file"})
	must(t, err)
	_, err = channel.NewDataWriter(u).Write(make([]byte, 1<<20))
	must(t, err, w.Cmd.Process.Kill())
	if err := u.end(nil); err == nil {
		t.Error("a dead worker answers")
	}
	<-w.Done()
	if names := left(t, dir); !slices.Equal(names, []string{"file"}) {
		t.Errorf("left: %q", names)
	}
	if data, err := os.ReadFile(dir + "/file"); string(data) != "old" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
}

func TestWaysToWrite(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, os.WriteFile(dir+"/file", []byte("0123456789"), 0o600), os.Link(dir+"/file", dir+"/second"), os.Mkdir(dir+"/dir", 0o755))
	content := func(name, want string) {
		t.Helper()
		if data, err := os.ReadFile(dir + "/" + name); string(data) != want || err != nil {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	_, err := write(t, w, channel.Call{Path: "file", Offset: pointer[int64](3)}, "abc")
	must(t, err)
	content("second", "012abc6789")
	_, err = write(t, w, channel.Call{Path: "file", Offset: pointer[int64](10)}, "+")
	must(t, err)
	content("second", "012abc6789+")
	_, err = write(t, w, channel.Call{Path: "file", Offset: pointer[int64](12)}, "x")
	reason(t, err, channel.FileOffset, "11 bytes")
	_, err = write(t, w, channel.Call{Path: "none", Offset: pointer[int64](1)}, "x")
	reason(t, err, channel.FileNotFound)
	_, err = write(t, w, channel.Call{Path: "part", Offset: pointer[int64](0)}, "x")
	must(t, err)
	content("part", "x")
	_, err = write(t, w, channel.Call{Path: "file", InPlace: true}, "short")
	must(t, err)
	content("second", "short")
	_, err = write(t, w, channel.Call{Path: "file", Exclusive: true}, "x")
	reason(t, err, channel.FileExists, dir+"/file")
	_, err = write(t, w, channel.Call{Path: "mine", Exclusive: true}, "x")
	must(t, err)
	// Two exclusive writers at the same time: one wins.
	one, err := start(t, w, channel.Call{Op: channel.WriteFile, Path: "raced", Exclusive: true})
	must(t, err)
	two, err := start(t, w, channel.Call{Op: channel.WriteFile, Path: "raced", Exclusive: true})
	must(t, err, one.end(nil))
	reason(t, two.end(nil), channel.FileExists, dir+"/raced")
	for _, bad := range []string{"dir", "dir/", "new/", "."} {
		_, err = write(t, w, channel.Call{Path: bad}, "x")
		if failed, ok := errors.AsType[*channel.Failed](err); !ok || failed.Reason != channel.FileType && failed.Reason != channel.FileNotFound {
			t.Errorf("%s: %v", bad, err)
		}
	}
	_, err = write(t, w, channel.Call{Path: "no/dir/file"}, "x")
	reason(t, err, channel.FileNotFound)
	if names := left(t, dir); !slices.Equal(names, []string{"dir", "file", "mine", "part", "raced", "second"}) {
		t.Errorf("left: %q", names)
	}
}

func TestAVersionDetectsAConcurrentChange(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	e, err := write(t, w, channel.Call{Path: "f"}, "one")
	must(t, err)
	e2, err := write(t, w, channel.Call{Path: "f", Version: e.Version}, "two")
	must(t, err)
	_, err = write(t, w, channel.Call{Path: "f", Version: e.Version}, "three")
	reason(t, err, channel.FileChanged)
	u, err := start(t, w, channel.Call{Op: channel.WriteFile, Path: "f", Version: e2.Version})
	must(t, err, os.WriteFile(dir+"/f", []byte("TWO"), 0o600)) // during the upload, of the same size
	reason(t, u.end(nil), channel.FileChanged)
	must(t, os.Remove(dir+"/f"))
	_, err = write(t, w, channel.Call{Path: "f", Version: e2.Version}, "four")
	reason(t, err, channel.FileChanged)
	if names := left(t, dir); len(names) != 0 {
		t.Errorf("left: %q", names)
	}
}

func TestAFullDiskIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	w := workertest.Start(t, "", "/")
	_, err := write(t, w, channel.Call{Path: dir + "/big"}, strings.Repeat("x", 2<<20))
	reason(t, err, channel.FileNoSpace, dir+"/big", "no space")
	if names := left(t, dir); len(names) != 0 {
		t.Errorf("left: %q", names)
	}
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "in/big", Size: 2 << 20, Mode: 0o600}))
	_, _ = tw.Write(bytes.Repeat([]byte("x"), 2<<20))
	must(t, tw.Close())
	u, err := start(t, w, channel.Call{Op: channel.Untar, Path: dir})
	must(t, err)
	_, _ = channel.NewDataWriter(u).Write(b.Bytes())
	reason(t, u.end(nil), channel.FileNoSpace, dir+"/in/big")
}

func TestSpecialFilesNeverBlock(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, unix.Mkfifo(dir+"/fifo", 0o600))
	for _, name := range []string{"fifo", "/dev/null", "/dev/tty"} {
		_, _, err := read(t, w, channel.Call{Path: name})
		reason(t, err, channel.FileType)
		for _, c := range []channel.Call{{}, {InPlace: true}, {Offset: pointer[int64](0)}} {
			c.Path = name
			_, err = write(t, w, c, "x")
			reason(t, err, channel.FileType)
		}
		if e, err := call(t, w, channel.Call{Op: channel.Stat, Path: name}); err != nil || e.Type != channel.Other {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

func TestMakeMoveAndRemove(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	e, err := call(t, w, channel.Call{Op: channel.MakeDir, Path: "a", Mode: pointer[uint32](0o1777)})
	if must(t, err); e.Mode != 0o1777 || e.Type != channel.Directory {
		t.Errorf("%+v", e)
	}
	_, err = call(t, w, channel.Call{Op: channel.MakeDir, Path: "a"})
	reason(t, err, channel.FileExists)
	_, err = call(t, w, channel.Call{Op: channel.MakeDir, Path: "x/y"})
	reason(t, err, channel.FileNotFound)
	for range 2 {
		_, err = call(t, w, channel.Call{Op: channel.MakeDir, Path: "x/y/", Parents: true})
		must(t, err)
	}
	must(t, os.WriteFile(dir+"/x/f", nil, 0o600), os.Symlink("x", dir+"/l"))
	_, err = call(t, w, channel.Call{Op: channel.MakeDir, Path: "x/f", Parents: true})
	reason(t, err, channel.FileExists)
	e, err = call(t, w, channel.Call{Op: channel.Move, Path: "l", To: "a/l"})
	if must(t, err); e.Path != dir+"/a/l" || e.Target != "x" {
		t.Errorf("%+v", e)
	}
	_, err = call(t, w, channel.Call{Op: channel.Remove, Path: "x"})
	reason(t, err, channel.FileNotEmpty)
	_, err = call(t, w, channel.Call{Op: channel.Remove, Path: "x", Recursive: true})
	must(t, err)
	_, err = call(t, w, channel.Call{Op: channel.Remove, Path: "x", Recursive: true})
	reason(t, err, channel.FileNotFound)
	for _, root := range []string{"/", "//", "/.", "/proc/.."} {
		_, err = call(t, w, channel.Call{Op: channel.Remove, Path: root, Recursive: true})
		reason(t, err, channel.FileBusy)
	}
	if names := left(t, dir); !slices.Equal(names, []string{"a"}) {
		t.Errorf("left: %q", names)
	}
}

// list returns the paths relative to the directory.
func list(t testing.TB, w *workertest.Worker, c channel.Call) (names []string, more bool, err error) {
	t.Helper()
	c.Op = channel.List
	d := channel.NewDataReader(channel.NewReader(w.Call(c)))
	for {
		data, err := d.Next()
		if errors.Is(err, io.EOF) {
			return names, more, nil
		}
		if err != nil {
			return names, more, err
		}
		var p channel.Page
		must(t, json.Unmarshal(data, &p))
		more = p.More
		for _, e := range p.Entries {
			names = append(names, strings.TrimPrefix(e.Path, c.Path+"/"))
		}
	}
}

func TestListsAreSortedBoundedAndContinue(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, os.MkdirAll(dir+"/b/c/d", 0o755), os.WriteFile(dir+"/a", nil, 0o600), os.WriteFile(dir+"/b.txt", nil, 0o600), os.WriteFile(dir+"/b/z", nil, 0o600),
		os.WriteFile(dir+"/b/c/d/e", nil, 0o600), os.Symlink("b", dir+"/link"), os.WriteFile(dir+"/\xff", nil, 0o600))
	one := []string{"a", "b", "b.txt", "link", "\uFFFD"}
	if got, more, err := list(t, w, channel.Call{Path: dir}); err != nil || more || !slices.Equal(got, one) {
		t.Errorf("%q, %v, %v", got, more, err)
	}
	all := []string{"a", "b", "b/c", "b/c/d", "b/c/d/e", "b/z", "b.txt", "link", "\uFFFD"}
	for limit := range int64(len(all)) + 1 {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, more, err := list(t, w, channel.Call{Path: dir, Depth: 100, Limit: limit, After: after})
			must(t, err)
			got = append(got, page...)
			if more != (limit > 0 && len(got) < len(all)) {
				t.Errorf("limit %d after %q: more is %v", limit, after, more)
			}
			if !more {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
	_, _, err := list(t, w, channel.Call{Path: dir + "/a"})
	reason(t, err, channel.FileType)
	must(t, os.Mkdir(dir+"/many", 0o755))
	var want []string
	for i := range 3000 {
		name := fmt.Sprintf("%04d-%s", i, strings.Repeat("\x01", 200)) // six bytes each in JSON
		want = append(want, name)
		must(t, os.WriteFile(dir+"/many/"+name, nil, 0o600))
	}
	if got, more, err := list(t, w, channel.Call{Path: dir + "/many"}); err != nil || more || !slices.Equal(got, want) {
		t.Errorf("%d, %v, %v", len(got), more, err)
	}
}

func TestArchivesGoDownAndUp(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, os.MkdirAll(dir+"/tree/sub", 0o755), os.WriteFile(dir+"/tree/sub/f", []byte("data"), 0o640), os.Symlink("sub/f", dir+"/tree/l"))
	l, err := net.Listen("unix", dir+"/tree/sock")
	must(t, err)
	defer l.Close()
	var told []string
	d := channel.NewDataReader(channel.NewReader(w.Call(channel.Call{Op: channel.Tar, Path: "tree"})))
	d.Told = func(text string) { told = append(told, text) }
	archive, err := io.ReadAll(d)
	must(t, err)
	if len(told) != 1 || !strings.Contains(told[0], dir+"/tree/sock: a socket") {
		t.Errorf("%q", told)
	}
	u, err := start(t, w, channel.Call{Op: channel.Untar, Path: "up/there", Parents: true})
	must(t, err)
	_, err = channel.NewDataWriter(u).Write(append(archive, make([]byte, 10240)...)) // padding, as tar adds it
	must(t, err)
	var got channel.Unpacked
	must(t, u.end(&got))
	if got.Entries != 4 || got.Bytes != 4 || len(got.Skipped) != 0 {
		t.Errorf("%+v", got)
	}
	if data, err := os.ReadFile(dir + "/up/there/tree/l"); string(data) != "data" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	u, err = start(t, w, channel.Call{Op: channel.Untar, Path: "up"})
	must(t, err)
	_, _ = channel.NewDataWriter(u).Write(bytes.Repeat([]byte("no archive"), 1000))
	reason(t, u.end(nil), channel.ArchiveInvalid)
	_, err = start(t, w, channel.Call{Op: channel.Untar, Path: "missing"})
	reason(t, err, channel.FileNotFound)
	_, err = start(t, w, channel.Call{Op: channel.Untar, Path: "tree/l"})
	reason(t, err, channel.FileType)
	_, err = io.ReadAll(channel.NewDataReader(channel.NewReader(w.Call(channel.Call{Op: channel.Tar, Path: "missing"}))))
	reason(t, err, channel.FileNotFound)
}

func TestTheUserDecidesWhatIsAllowed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("/tmp", "agbox-serve")
	must(t, err, os.Chmod(dir, 0o755))
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.WriteFile(dir+"/secret", []byte("s"), 0o600), os.WriteFile(dir+"/group", []byte("g"), 0o660), os.Chown(dir+"/group", 0, 4321), os.Mkdir(dir+"/open", 0o777), os.Chmod(dir+"/open", 0o777))
	must(t, os.WriteFile(dir+"/open/shared", []byte("g"), 0o660), os.Chown(dir+"/open/shared", 0, 4321), os.Chmod(dir+"/open/shared", 0o660))
	w := workertest.Start(t, "1234:4321", dir)
	_, _, err = read(t, w, channel.Call{Path: "secret"})
	reason(t, err, channel.FilePermission, dir+"/secret")
	_, data, err := read(t, w, channel.Call{Path: "group"})
	if must(t, err); data != "g" {
		t.Error(data)
	}
	_, err = write(t, w, channel.Call{Path: "new"}, "x")
	reason(t, err, channel.FilePermission)
	e, err := write(t, w, channel.Call{Path: "open/new"}, "x")
	if must(t, err); e.UID != 1234 || e.GID != 4321 || e.Mode != 0o644 {
		t.Errorf("%+v", e)
	}
	_, err = write(t, w, channel.Call{Path: "open/shared"}, "x")
	reason(t, err, channel.FilePermission, "0:4321", "in place")
	_, err = write(t, w, channel.Call{Path: "open/shared", InPlace: true}, "y")
	must(t, err)
	_, err = call(t, w, channel.Call{Op: channel.Remove, Path: "group"})
	reason(t, err, channel.FilePermission)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Cmd.Process.Pid))
	must(t, err)
	for _, line := range []string{"Uid:\t1234\t1234\t1234\t1234", "Gid:\t4321\t4321\t4321\t4321", "Groups:\t \n", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", w.Cmd.Process.Pid)); err != nil || len(score) < 4 {
		t.Errorf("%s, %v", score, err)
	}
	if names := left(t, dir+"/open"); !slices.Equal(names, []string{"new", "shared"}) {
		t.Errorf("left: %q", names)
	}
	_, err = call(t, workertest.Start(t, "nobody-of-this-name", dir), channel.Call{Op: channel.Stat, Path: "/"})
	reason(t, err, channel.UserUnknown, "nobody-of-this-name")
}

func TestASlowReaderStallsOnlyItself(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	big, err := os.Create(dir + "/big")
	must(t, err, big.Truncate(1<<40), big.Close())
	for range 50 {
		r := channel.NewReader(w.Call(channel.Call{Op: channel.Read, Path: "big"}))
		must(t, r.ReadAnswer(channel.Result, nil)) // and then reads no more
		r = channel.NewReader(w.Call(channel.Call{Op: channel.Tar, Path: "big"}))
		_, err := r.Read()
		must(t, err)
	}
	_, err = write(t, w, channel.Call{Path: "small"}, "x")
	must(t, err)
	_, data, err := read(t, w, channel.Call{Path: "small"})
	if must(t, err); data != "x" {
		t.Error(data)
	}
	// The memory of 100 stalled streams: a buffer or two each. The files are a terabyte.
	if rss := memory(t, w); rss > raceFactor*40<<20 {
		t.Errorf("%d MiB", rss>>20)
	}
}

func memory(t testing.TB, w *workertest.Worker) (rss int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Cmd.Process.Pid))
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &rss); n == 1 {
			return rss << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

func TestPortsAndSockets(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	unixl, err := net.Listen("unix", filepath.Join(dir, "sock"))
	must(t, err)
	var servers sync.WaitGroup
	defer servers.Wait()
	for _, l := range []net.Listener{tcp, unixl} {
		defer l.Close()
		servers.Add(1)
		go func() { // answers with what it got once the other side has half-closed
			defer servers.Done()
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				servers.Add(1)
				go func() {
					defer servers.Done()
					defer c.Close()
					data, _ := io.ReadAll(c)
					_, _ = fmt.Fprintf(c, "%d bytes, then this", len(data))
				}()
			}
		}()
	}
	port := uint16(tcp.Addr().(*net.TCPAddr).Port)
	for _, c := range []channel.Call{{Op: channel.Dial, Port: port}, {Op: channel.Dial, Path: "sock"}} {
		conn := w.Call(c)
		must(t, channel.NewReader(conn).ReadAnswer(channel.Result, nil))
		_, err := conn.Write(make([]byte, 1<<20))
		must(t, err, conn.(*net.UnixConn).CloseWrite())
		if data, err := io.ReadAll(conn); string(data) != "1048576 bytes, then this" || err != nil {
			t.Errorf("%q, %v", data, err)
		}
	}
	tcp.Close()
	_, err = call(t, w, channel.Call{Op: channel.Dial, Port: port})
	reason(t, err, channel.PortRefused, fmt.Sprint(port))
	_, err = call(t, w, channel.Call{Op: channel.Dial, Path: "none"})
	reason(t, err, channel.FileNotFound, dir+"/none")
	must(t, os.WriteFile(dir+"/plain", nil, 0o600))
	_, err = call(t, w, channel.Call{Op: channel.Dial, Path: "plain"})
	reason(t, err, channel.PortRefused, dir+"/plain")
}

// TestTheWorkerAgreesWithPack compares an archive of the worker with one made here.
func TestTheWorkerAgreesWithPack(t *testing.T) {
	dir := t.TempDir()
	w := workertest.Start(t, "", dir)
	must(t, os.MkdirAll(dir+"/x/y", 0o755), os.WriteFile(dir+"/x/y/z", []byte("1"), 0o600))
	for _, name := range []string{"x", "x/", "x/.", "x/y/z"} {
		got, err := io.ReadAll(channel.NewDataReader(channel.NewReader(w.Call(channel.Call{Op: channel.Tar, Path: name}))))
		must(t, err)
		base := filepath.Base(name)
		if strings.HasSuffix(name, "/.") {
			base = "."
		}
		var want bytes.Buffer
		must(t, filetree.Pack(&want, dir+"/"+name, filetree.PackOptions{Name: base}))
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s differs", name)
		}
	}
}
