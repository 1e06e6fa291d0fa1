package buildfiles

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

const template = "template0"

var hash = strings.Repeat("0a", 32)

func TestArchives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "builds")
	d := New(path)
	if has, err := d.Has(template, hash); has || err != nil {
		t.Errorf("before: %t, %v", has, err)
	}
	if _, err := d.Open(template, hash); !errdefs.IsNotFound(err) {
		t.Errorf("before: %v", err)
	}
	for _, text := range []string{"one", "two"} {
		if err := d.Save(t.Context(), template, hash, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := d.Open(template, hash)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(f); string(text) != "two" {
		t.Errorf("read %q", text)
	}
	f.Close()
	for _, name := range []string{"", ".", "../" + template, "a/b", strings.ToUpper(template)} {
		if err := d.Save(t.Context(), name, hash, strings.NewReader("x")); !errdefs.IsInvalidArgument(err) {
			t.Errorf("template %q: %v", name, err)
		}
		if err := d.Save(t.Context(), template, name, strings.NewReader("x")); !errdefs.IsInvalidArgument(err) {
			t.Errorf("hash %q: %v", name, err)
		}
	}
	if err := d.RemoveArchives(template); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAnArchiveIsBounded(t *testing.T) {
	d := New(t.TempDir())
	if err := os.MkdirAll(filepath.Join(d.path, template), 0o700); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(d.path, template, strings.Repeat("1", 64)+archiveSuffix)
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(full, maxArchives); err != nil { // a hole
		t.Fatal(err)
	}
	if err := d.Save(t.Context(), template, hash, strings.NewReader("1")); !errdefs.IsResourceExhausted(err) {
		t.Errorf("one more archive: %v", err)
	}
	if testing.Short() {
		return
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(t.Context(), template, hash, zeros{}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("an endless archive: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(d.path, template)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestLogs(t *testing.T) {
	d := New(t.TempDir())
	l, err := d.CreateLog(template, "build000")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1, 5)
	for _, text := range []string{"a b", "", " c"} {
		if err := l.Append(Line{at, 2, text}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.f.WriteString("12 1 torn"); err != nil {
		t.Fatal(err)
	}
	l.Close()
	lines, err := d.ReadLog(template, "build000", 1, 10)
	if err != nil || len(lines) != 2 || lines[0] != (Line{at, 2, ""}) || lines[1] != (Line{at, 2, " c"}) {
		t.Errorf("%v, %v", lines, err)
	}
	if lines, err := d.ReadLog(template, "other000", 0, 10); err != nil || len(lines) != 0 {
		t.Errorf("no log: %v, %v", lines, err)
	}
	if lines, err := d.ReadLog(template, "build000", 0, 1); err != nil || len(lines) != 1 {
		t.Errorf("one line: %v, %v", lines, err)
	}
}

func TestSweep(t *testing.T) {
	d := New(t.TempDir())
	for _, name := range []string{template, "busy0000"} {
		if err := d.Save(t.Context(), name, hash, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		l, err := d.CreateLog(name, "known000")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if l, err = d.CreateLog(name, "unknown0"); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	sweep := func(now time.Time) {
		t.Helper()
		err := d.Sweep(now, time.Hour, func(name string) bool { return name == "busy0000" }, func(build string) bool { return build == "known000" })
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(name string) int { entries, _ := os.ReadDir(filepath.Join(d.path, name)); return len(entries) }
	sweep(time.Now())
	if count(template) != 2 || count("busy0000") != 3 {
		t.Errorf("%d and %d files are left", count(template), count("busy0000"))
	}
	sweep(time.Now().Add(2 * time.Hour))
	if count(template) != 1 || count("busy0000") != 3 {
		t.Errorf("later: %d and %d files are left", count(template), count("busy0000"))
	}
}
