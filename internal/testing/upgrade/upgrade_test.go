package upgrade

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestDifferences(t *testing.T) {
	list := func(elements ...any) []any { return elements }
	was := Answers{"same": list("a", 1.0), "sandbox one": map[string]any{"state": "READY", "gone": true, "labels": list("x")}, "never again": 1.0}
	is := Answers{"same": list("a", 1.0), "sandbox one": map[string]any{"state": "FAILED", "new": true, "labels": list("x", "y")}}
	want := []string{
		"never again: was 1, is <nil>",
		"sandbox one/gone: was true, is <nil>",
		"sandbox one/labels: was [x], is [x y]",
		"sandbox one/new: was <nil>, is true",
		"sandbox one/state: was READY, is FAILED",
	}
	if got := Differences(was, is); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := Differences(was, is, "never again", "sandbox */gone", "sandbox one/[ln]*"); !slices.Equal(got, want[4:]) {
		t.Errorf("with exceptions: got %q", got)
	}
	if got := Differences(was, was); len(got) > 0 {
		t.Errorf("with itself: %q", got)
	}
}

func TestAnArchiveKeepsContentsModesAndLinks(t *testing.T) {
	from, to, file := t.TempDir(), filepath.Join(t.TempDir(), "to"), filepath.Join(t.TempDir(), "a.tar.gz")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"a/private": 0o600, "a/shared": 0o640, "a/closed": 0o400, "left/out": 0o600} {
		path := filepath.Join(from, name)
		must(os.MkdirAll(filepath.Dir(path), 0o700))
		must(os.WriteFile(path, []byte(name), 0o600))
		must(os.Chmod(path, mode))
	}
	must(os.Chmod(filepath.Join(from, "a"), 0o755))
	must(os.Symlink("private", filepath.Join(from, "a", "link")))
	must(Pack(from, file, "left"))
	must(Unpack(file, to))
	for name, mode := range map[string]os.FileMode{
		"a": 0o755 | os.ModeDir, "a/private": 0o600, "a/shared": 0o640, "a/closed": 0o400, "a/link": 0o777 | os.ModeSymlink,
	} {
		info, err := os.Lstat(filepath.Join(to, name))
		must(err)
		if info.Mode() != mode {
			t.Errorf("%s has mode %s, want %s", name, info.Mode(), mode)
		}
	}
	text, err := os.ReadFile(filepath.Join(to, "a", "link"))
	must(err)
	if _, err := os.Lstat(filepath.Join(to, "left")); string(text) != "a/private" || err == nil {
		t.Errorf("the file says %q; what was left out: %v", text, err)
	}
}
