package execjournal

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
)

// litter creates the directories of box-1 and entries that belong to no sandbox.
func litter(t *testing.T) (d *Dir, logs, runs string) {
	t.Helper()
	base := t.TempDir()
	logs, runs = filepath.Join(base, "logs"), filepath.Join(base, "s")
	d = New(logs, runs)
	if _, err := d.Prepare("box-1"); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(logs, "lost+found"), filepath.Join(runs, "tmp"), filepath.Join(base, "else")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{filepath.Join(logs, "link"), filepath.Join(runs, "0123456789abcdef")} {
		if err := os.Symlink(filepath.Join(base, "else"), link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(logs, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return d, logs, runs
}

func TestOnlyDirectoriesOfSandboxesAreListed(t *testing.T) {
	d, logs, runs := litter(t)
	got, err := d.Dirs()
	want := []SandboxDir{{Path: filepath.Join(logs, "box-1"), SandboxID: "box-1"}, {Path: filepath.Join(runs, RunName("box-1"))}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := New("/nowhere/logs", "/nowhere/s").Dirs(); err != nil || len(got) != 0 {
		t.Errorf("missing roots: %v, %v", got, err)
	}
}

func TestOnlyDirectoriesOfSandboxesAreRemoved(t *testing.T) {
	d, logs, runs := litter(t)
	for _, path := range []string{
		logs, runs, filepath.Join(logs, "lost+found"), filepath.Join(runs, "tmp"), filepath.Dir(logs), "", "logs/box-1",
		logs + "/box-1/..", logs + "/../else", filepath.Join(logs, "box-1", "box-1"), filepath.Join(runs, "0123456789ABCDEF"),
	} {
		if err := d.RemoveDir(path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := d.RemoveDir(filepath.Join(runs, "0123456789abcdef")); err == nil {
		t.Error("a link was followed")
	}
	dirs, err := d.Dirs()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, dirs...) { // twice: it is idempotent
		if err := d.RemoveDir(dir.Path); err != nil {
			t.Error(err)
		}
	}
	if left, err := d.Dirs(); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(logs), "else")); err != nil {
		t.Error(err)
	}
}
