package hostfiles

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// item is one entry of a stream.
type item struct {
	tar.Header
	body string
}

// packed packs c and reads the stream back.
func packed(t *testing.T, c Copy) map[string]item {
	t.Helper()
	var buf bytes.Buffer
	if err := Pack(t.Context(), &buf, c); err != nil {
		t.Fatal(err)
	}
	return unpacked(t, &buf)
}

func unpacked(t *testing.T, r io.Reader) map[string]item {
	t.Helper()
	items := map[string]item{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return items
		}
		must(t, err)
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		body, err := io.ReadAll(tr)
		must(t, err)
		if _, twice := items[h.Name]; twice {
			t.Errorf("%q comes twice", h.Name)
		}
		items[h.Name] = item{*h, string(body)}
	}
}

// refusal packs c, which must fail.
func refusal(t *testing.T, c Copy) error {
	t.Helper()
	err := Pack(t.Context(), io.Discard, c)
	if err == nil {
		t.Fatal("packed without an error")
	}
	return err
}

func names(items map[string]item) []string { return slices.Sorted(maps.Keys(items)) }

func wantNames(t *testing.T, items map[string]item, want ...string) {
	t.Helper()
	if got := names(items); !slices.Equal(got, want) {
		t.Errorf("got the entries %q, want %q", got, want)
	}
}

// tree creates files with their name as content; names that end in a slash are directories, "a -> b" is a link.
func tree(t testing.TB, entries ...string) string {
	t.Helper()
	root := t.TempDir()
	root, err := filepath.EvalSymlinks(root)
	must(t, err)
	for _, e := range entries {
		grow(t, root, e)
	}
	return root
}

func grow(t testing.TB, root, entry string) {
	t.Helper()
	name, link, isLink := strings.Cut(entry, " -> ")
	full := filepath.Join(root, name)
	must(t, os.MkdirAll(filepath.Dir(full), 0o755))
	switch {
	case isLink:
		must(t, os.Symlink(strings.ReplaceAll(link, "ROOT", root), full))
	case strings.HasSuffix(name, "/"):
		must(t, os.MkdirAll(full, 0o755))
	default:
		must(t, os.WriteFile(full, []byte(name), 0o644))
	}
}

func TestParents(t *testing.T) {
	for target, want := range map[string][]string{
		"/": nil, "/a": nil, "/a/b": {"/a"}, "/a/b/c": {"/a", "/a/b"},
	} {
		if got := Parents(target); !slices.Equal(got, want) {
			t.Errorf("Parents(%q) = %q, want %q", target, got, want)
		}
	}
}

func TestPackDirectory(t *testing.T) {
	src := tree(t, "a", "d/e/f", "d/empty/", "l -> d/e")
	at := time.Date(2001, 2, 3, 4, 5, 6, 789, time.UTC)
	must(t, os.Chmod(filepath.Join(src, "a"), 0o750|os.ModeSetuid|os.ModeSetgid))
	must(t, os.Chmod(filepath.Join(src, "d"), 0o711|os.ModeSticky|os.ModeSetgid))
	must(t, os.Chtimes(filepath.Join(src, "a"), at, at))

	items := packed(t, Copy{Source: src, Target: "/home/u/x", UID: 1000, GID: 3000000})
	wantNames(t, items, "home/u/x/a", "home/u/x/d/", "home/u/x/d/e/", "home/u/x/d/e/f", "home/u/x/d/empty/", "home/u/x/l")
	for name, it := range items {
		if it.Uid != 1000 || it.Gid != 3000000 {
			t.Errorf("%q belongs to %d:%d", name, it.Uid, it.Gid)
		}
	}
	if a := items["home/u/x/a"]; a.Mode != 0o750 || !a.ModTime.Equal(at) || a.body != "a" {
		t.Errorf("a has mode %o, time %v, body %q", a.Mode, a.ModTime, a.body)
	}
	if d := items["home/u/x/d/"]; d.Mode != 0o1711 || d.Typeflag != tar.TypeDir {
		t.Errorf("d has mode %o and type %c", d.Mode, d.Typeflag)
	}
	if l := items["home/u/x/l"]; l.Typeflag != tar.TypeSymlink || l.Linkname != "d/e" {
		t.Errorf("l is a %c to %q", l.Typeflag, l.Linkname)
	}
}

func TestPackFile(t *testing.T) {
	src := tree(t, "a")
	items := packed(t, Copy{Source: src + "/a", Target: "/etc/b", Exclude: []string{"a"}})
	wantNames(t, items, "etc/b")
	if b := items["etc/b"]; b.body != "a" || b.Mode != 0o644 {
		t.Errorf("b has body %q and mode %o", b.body, b.Mode)
	}
}

func TestPackToTheRoot(t *testing.T) {
	wantNames(t, packed(t, Copy{Source: tree(t, "a/b"), Target: "/"}), "a/", "a/b")
}

func TestOnlyMissingDirectoriesHaveEntries(t *testing.T) {
	src := tree(t, "a")
	items := packed(t, Copy{Source: src, Target: "/opt/x/y", UID: 5, GID: 6, Missing: []string{"/opt/x", "/opt/x/y"}})
	wantNames(t, items, "opt/x/", "opt/x/y/", "opt/x/y/a")
	if x := items["opt/x/"]; x.Mode != 0o755 || x.Uid != 5 || x.Gid != 6 || x.Typeflag != tar.TypeDir {
		t.Errorf("got %+v", x.Header)
	}
	for _, c := range []Copy{
		{Source: src, Target: "/opt/x", Missing: []string{"/optional"}},
		{Source: src, Target: "/opt/x", Missing: []string{"/opt/x/a"}},
	} {
		if err := refusal(t, c); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestMissingTargetOfAFileGetsNoDirectory(t *testing.T) {
	items := packed(t, Copy{Source: tree(t, "a") + "/a", Target: "/opt/x", Missing: []string{"/opt", "/opt/x"}})
	wantNames(t, items, "opt/", "opt/x")
	if x := items["opt/x"]; x.Typeflag != tar.TypeReg || x.body != "a" {
		t.Errorf("got %+v", x)
	}
}

func TestExcludedIsNeitherOpenedNorJudged(t *testing.T) {
	src := tree(t, "keep", "d/keep", "d/secret", "out -> /etc/passwd", "cut/off")
	must(t, unix.Mkfifo(src+"/d/pipe", 0o644))
	must(t, unix.Mkfifo(src+"/cut/pipe", 0o644))
	grow(t, src, "to-secret -> d/secret")
	items := packed(t, Copy{Source: src, Target: "/t", Exclude: []string{"secret", "pipe", "/out", "cut/"}})
	wantNames(t, items, "t/d/", "t/d/keep", "t/keep", "t/to-secret")
}

func TestMissingSources(t *testing.T) {
	src := tree(t, "a", "l -> a", "d/b", "m -> d")
	for _, s := range []string{src + "/none", src + "/l", src + "/m/b", src + "/a/x"} {
		if err := refusal(t, Copy{Source: s, Target: "/t"}); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestPackReturnsTheContextsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Pack(ctx, io.Discard, Copy{Source: tree(t, "a"), Target: "/t"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPackReturnsTheWritersError(t *testing.T) {
	r, w := io.Pipe()
	gone := errors.New("gone")
	r.CloseWithError(gone)
	if err := Pack(t.Context(), w, Copy{Source: tree(t, "a"), Target: "/t"}); !errors.Is(err, gone) || errdefs.IsInvalidArgument(err) {
		t.Errorf("got %v", err)
	}
}
