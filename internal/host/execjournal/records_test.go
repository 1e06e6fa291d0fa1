package execjournal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
)

func writeRecords(t *testing.T, run string) {
	t.Helper()
	must(t, os.MkdirAll(run, 0o700))
	for _, name := range RecordNames() {
		write(t, run, name, "")
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestRecordsAreNoInputs(t *testing.T) {
	d, p := newDir(t)
	run := filepath.Dir(p.Ctl)
	must(t, os.RemoveAll(run))
	wantPrepared(t, d, false)
	writeRecords(t, run)
	wantPrepared(t, d, false)
	if _, err := d.Prepare("box1"); err != nil {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(p.Ctl))
	wantPrepared(t, d, true) // out is left
	for range 2 {
		must(t, d.RemoveInputs("box1"))
		wantPrepared(t, d, false)
		want := RecordNames()
		slices.Sort(want)
		if got := names(t, run); !slices.Equal(got, want) {
			t.Fatalf("left are %v", got)
		}
	}
}

func TestRemoveTakesTheRecordsToo(t *testing.T) {
	d, p := newDir(t)
	writeRecords(t, filepath.Dir(p.Ctl))
	must(t, d.Remove("box1"))
	if got := names(t, filepath.Dir(filepath.Dir(p.Ctl))); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

// What can't be removed stops Remove before the record is gone: after a lost database the delete goes on.
func TestTheRecordIsTheLastToGo(t *testing.T) {
	d, p := newDir(t)
	run := filepath.Dir(p.Ctl)
	writeRecords(t, run)
	must(t, os.Remove(filepath.Join(run, ExecsName)))
	must(t, os.MkdirAll(filepath.Join(run, ExecsName, "in the way"), 0o700))
	if err := d.Remove("box1"); err == nil {
		t.Fatal("no error")
	}
	if got := names(t, run); !slices.Contains(got, RecordName) {
		t.Fatalf("left are %v", got)
	}
	must(t, os.RemoveAll(filepath.Join(run, ExecsName)))
	must(t, d.Remove("box1"))
	if _, err := os.Lstat(run); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestPrepareTakesADirectoryThatWasMadeForTheRecords(t *testing.T) {
	root := t.TempDir()
	d := New(filepath.Join(root, "logs"), filepath.Join(root, "s"))
	writeRecords(t, filepath.Join(root, "s", RunName("box1")))
	p, err := d.Prepare("box1")
	must(t, err)
	if st, err := os.Stat(filepath.Dir(p.Ctl)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
	must(t, os.RemoveAll(filepath.Dir(p.Ctl)))
	must(t, os.Symlink(root, filepath.Dir(p.Ctl)))
	wantPrepared(t, d, true)
	if err := d.RemoveInputs("box1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a link in its place: %v", err)
	}
}
