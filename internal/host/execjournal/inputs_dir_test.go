package execjournal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

func TestInputsAreRemovedWithTheirDirectory(t *testing.T) {
	d, p := newDir(t)
	run := filepath.Dir(p.Ctl)
	if _, err := d.Prepare("box1"); err != nil {
		t.Fatal(err)
	}
	must(t, os.RemoveAll(p.Ctl))
	wantPrepared(t, d, true) // out is left
	for range 2 {
		must(t, d.RemoveInputs("box1"))
		wantPrepared(t, d, false)
	}
	must(t, os.Symlink(t.TempDir(), run))
	wantPrepared(t, d, true)
	if err := d.RemoveInputs("box1"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a link in its place: %v", err)
	}
}
