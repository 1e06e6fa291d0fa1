package hostfiles

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestLinks(t *testing.T) {
	const refused = "refused"
	for _, tt := range []struct {
		name string
		tree []string
		link string // its path
		want string
	}{
		{"relative, to a file", []string{"a", "d/l -> ../a"}, "d/l", "../a"},
		{"dangling inside", []string{"d/l -> ../none/x"}, "d/l", "../none/x"},
		{"to itself", []string{"l -> l"}, "l", "l"},
		{"in a loop of two", []string{"a -> b", "b -> a"}, "a", "b"},
		{"to the top", []string{"d/l -> .."}, "d/l", ".."},
		{"absolute, to a file inside", []string{"a", "d/e/l -> ROOT/a"}, "d/e/l", "../../a"},
		{"absolute, to the top", []string{"d/l -> ROOT"}, "d/l", "../."},
		{"absolute, to the top, from the top", []string{"l -> ROOT/"}, "l", "."},
		{"absolute, dangling inside", []string{"l -> ROOT/x/y"}, "l", "x/y"},
		{"absolute, with doubled slashes", []string{"l -> ROOT//x"}, "l", "x"},
		{"absolute, inside but up and down again", []string{"d/l -> ROOT/x/../y"}, "d/l", "../x/../y"},
		{"absolute, out", []string{"l -> /etc/passwd"}, "l", refused},
		{"absolute, dangling outside", []string{"l -> /none/x"}, "l", refused},
		{"absolute, to a directory whose name begins like ours", []string{"l -> ROOTx/y"}, "l", refused},
		{"absolute, into ours and out again", []string{"l -> ROOT/../x"}, "l", refused},
		{"up and out", []string{"d/l -> ../../x"}, "d/l", refused},
		{"out and in again", []string{"l -> ../" + "BASE/x"}, "l", refused},
		{"out by way of a directory", []string{"d/e/", "l -> d/e/../../../x"}, "l", refused},
		{"up behind a link that stays", []string{"d/e/f/", "m -> d/e/f", "l -> m/../../x"}, "l", "m/../../x"},
		{"up behind a link, out though the letters stay inside", []string{"d/", "d/m -> ..", "d/l -> m/../x"}, "d/l", refused},
		{"up behind an absolute link that stays", []string{"d/e/", "m -> ROOT/d/e", "l -> m/../../x"}, "l", "m/../../x"},
		{"up behind a link in a loop", []string{"m -> m", "l -> m/../x"}, "l", "m/../x"},
		{"up behind what is not there", []string{"l -> none/../x"}, "l", "none/../x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t)
			for _, e := range tt.tree {
				grow(t, root, strings.ReplaceAll(e, "BASE", filepath.Base(root)))
			}
			var buf bytes.Buffer
			err := Pack(t.Context(), &buf, Copy{Source: root, Target: "/t"})
			if tt.want == refused {
				if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `"`+tt.link+`" is a symbolic link`) {
					t.Errorf("got %v, want a refusal of %q", err, tt.link)
				}
				return
			}
			must(t, err)
			if got := unpacked(t, &buf)["t/"+tt.link].Linkname; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestAbsoluteLinksThatNameTheTreeThroughALink(t *testing.T) {
	outer := tree(t, "real/a", "other -> real")
	grow(t, outer, "real/d/l -> "+outer+"/other/a")
	items := packed(t, Copy{Source: outer + "/real", Target: "/t"})
	if got := items["t/d/l"].Linkname; got != "../a" {
		t.Errorf("got %q", got)
	}
}

func TestSpecialFilesAreRefused(t *testing.T) {
	for what, make := range map[string]func(path string) error{
		"FIFO":   func(path string) error { return unix.Mkfifo(path, 0o666) },
		"device": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))) },
		"socket": func(path string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err == nil {
				l.SetUnlinkOnClose(false)
				l.Close()
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			src := tree(t, "d/x")
			if err := make(src + "/d/it"); err != nil {
				t.Skipf("cannot make a %s: %v", what, err)
			}
			err := refusal(t, Copy{Source: src, Target: "/t"})
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `"d/it" is a `+what) {
				t.Errorf("got %v", err)
			}
			if err := refusal(t, Copy{Source: src + "/d/it", Target: "/t"}); !strings.Contains(err.Error(), "is not a file or directory") {
				t.Errorf("as the source: got %v", err)
			}
		})
	}
}

// asNobody runs f without the rights of root, in a separate thread that exits afterwards.
func asNobody(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if os.Getuid() == 0 {
			unix.Setfsuid(65534)
		}
		f()
	}()
	<-done
}

func TestUnreadableIsRefusedWithItsPath(t *testing.T) {
	src := tree(t, "d/secret", "shut/x")
	must(t, os.Chmod(filepath.Dir(src), 0o755)) // the test's directory is private to its user
	must(t, os.Chmod(src+"/d/secret", 0))
	must(t, os.Chmod(src+"/shut", 0))
	t.Cleanup(func() { os.Chmod(src+"/shut", 0o755) })
	for entry, exclude := range map[string]string{"d/secret": "shut", "shut": "secret"} {
		var err error
		asNobody(func() {
			err = Pack(t.Context(), &bytes.Buffer{}, Copy{Source: src, Target: "/t", Exclude: []string{exclude}})
		})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `"`+entry+`" cannot be read`) {
			t.Errorf("%s: got %v", entry, err)
		}
	}
}

func TestStrangeNames(t *testing.T) {
	strange := []string{"new\nline", "not\xff\xfeutf8", strings.Repeat("n", 255), "-rf", "a=b", " ", "\\", "tab\t", ".wh.x", "…", "\x01"}
	src := tree(t, strange...)
	items := packed(t, Copy{Source: src, Target: "/t"})
	for _, name := range strange {
		if got := items["t/"+name].body; got != name {
			t.Errorf("%q has the body %q", name, got)
		}
	}
	if len(items) != len(strange) {
		t.Errorf("got %q", names(items))
	}
}

// dig creates nested directories and a file in the last one, and returns the path of that file below top.
func dig(t *testing.T, top, name string, levels int) string {
	t.Helper()
	fd, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, "end", unix.O_CREAT|unix.O_WRONLY, 0o644)
	must(t, err)
	unix.Close(file)
	unix.Close(fd)
	return strings.Repeat(name+"/", levels) + "end"
}

func TestSourcePathsMayExceedThePathLimit(t *testing.T) {
	top := tree(t)
	name := strings.Repeat("d", 250)
	end := dig(t, top, name, 28)
	src := top + strings.Repeat("/"+name, 14)
	rel := end[14*251:]
	if _, ok := packed(t, Copy{Source: src, Target: "/t"})["t/"+rel]; !ok || len(src)+len(rel) < unix.PathMax {
		t.Errorf("a path of %d bytes is missing", len(src)+len(rel))
	}
}

func TestTargetPathsAreBounded(t *testing.T) {
	src := tree(t)
	end := dig(t, src, strings.Repeat("d", 250), 16)
	fits := "/" + strings.Repeat("t", unix.PathMax-1-len("//")-len(end))
	packed(t, Copy{Source: src, Target: fits})
	err := refusal(t, Copy{Source: src, Target: fits + "t"})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `/end" has a target path of more than 4095 bytes`) || len(err.Error()) > 1000 {
		t.Errorf("got %v", err)
	}
}

func TestNestingIsBounded(t *testing.T) {
	src := tree(t)
	dig(t, src, "d", maxDepth)
	packed(t, Copy{Source: src, Target: "/t"})
	src = tree(t)
	dig(t, src, "d", maxDepth+1)
	if err := refusal(t, Copy{Source: src, Target: "/t"}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "nested more than 1000") {
		t.Errorf("got %.200v", err)
	}
}

func TestSparseFilesAndHardLinks(t *testing.T) {
	src := tree(t, "a", "hole")
	must(t, os.Link(src+"/a", src+"/b"))
	must(t, os.Truncate(src+"/hole", 1<<20))
	items := packed(t, Copy{Source: src, Target: "/t"})
	if items["t/a"].body != "a" || items["t/b"].body != "a" {
		t.Error("hard links are not files of their own")
	}
	if got := items["t/hole"].body; got != "hole"+strings.Repeat("\x00", 1<<20-4) {
		t.Errorf("the sparse file has %d bytes", len(got))
	}
}

// meddler is a context that calls a function when it is checked for the n-th time. Pack checks it between the stat and the
// open of an entry, which is the moment to replace the entry.
type meddler struct {
	context.Context
	n  int
	do func()
}

func (m *meddler) Err() error {
	if m.n--; m.n == 0 {
		m.do()
	}
	return m.Context.Err()
}

func TestReplacedEntriesAreRefused(t *testing.T) {
	outside := tree(t, "secret")
	for _, tt := range []struct {
		name  string
		entry string
		swap  func(path string) error
		ok    bool // left out instead of refused
	}{
		{"a directory becomes a link", "it/x", func(p string) error { return os.Symlink(outside, p) }, false},
		{"a directory becomes a file", "it/x", func(p string) error { return os.WriteFile(p, nil, 0o644) }, false},
		{"a directory vanishes", "it/x", func(string) error { return nil }, true},
		{"a file becomes a link", "it", func(p string) error { return os.Symlink(outside+"/secret", p) }, false},
		{"a file becomes a FIFO", "it", func(p string) error { return unix.Mkfifo(p, 0o644) }, false},
		{"a file becomes a directory", "it", func(p string) error { return os.Mkdir(p, 0o755) }, false},
		{"a file vanishes", "it", func(string) error { return nil }, true},
		{"a link becomes a file", "it -> x", func(p string) error { return os.WriteFile(p, nil, 0o644) }, false},
		{"a link vanishes", "it -> x", func(string) error { return nil }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src := tree(t, tt.entry)
			ctx := &meddler{t.Context(), 1, func() {
				must(t, os.RemoveAll(src+"/it"))
				must(t, tt.swap(src+"/it"))
			}}
			var buf bytes.Buffer
			err := Pack(ctx, &buf, Copy{Source: src, Target: "/t"})
			if tt.ok {
				must(t, err)
				wantNames(t, unpacked(t, &buf))
			} else if !errdefs.IsUnavailable(err) || errdefs.IsInvalidArgument(err) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(buf.String(), "secret") {
				t.Error("what is outside was read")
			}
		})
	}
}

// meddlingWriter calls a function when the header of t/f has been written.
type meddlingWriter struct {
	bytes.Buffer
	do func()
}

func (w *meddlingWriter) Write(b []byte) (int, error) {
	if w.do != nil && bytes.HasPrefix(b, []byte("t/f\x00")) {
		w.do()
		w.do = nil
	}
	return w.Buffer.Write(b)
}

func TestFilesThatChangeDuringTheCopy(t *testing.T) {
	src := tree(t, "f")
	const size = 200_000
	must(t, os.WriteFile(src+"/f", bytes.Repeat([]byte("x"), size), 0o644))

	w := &meddlingWriter{do: func() { must(t, os.Truncate(src+"/f", 2*size)) }}
	must(t, Pack(t.Context(), w, Copy{Source: src, Target: "/t"}))
	if got := unpacked(t, w)["t/f"].body; got != strings.Repeat("x", size) {
		t.Errorf("a file that grew has %d bytes", len(got))
	}

	w = &meddlingWriter{do: func() { must(t, os.Truncate(src+"/f", size/2)) }}
	err := Pack(t.Context(), w, Copy{Source: src, Target: "/t"})
	if want := fmt.Sprintf("it shrank from %d bytes to %d", 2*size, size/2); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("a file that shrank: got %v", err)
	}
}
