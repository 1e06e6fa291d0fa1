package execjournal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

func wantPrepared(t *testing.T, d *Dir, want bool) {
	t.Helper()
	if got, err := d.Prepared("box1"); got != want || err != nil {
		t.Fatalf("prepared: %v, %v", got, err)
	}
}

func TestRemoveInputsKeepsTheLogs(t *testing.T) {
	d, p := newDir(t)
	wantPrepared(t, d, true)
	write(t, p.Logs, "e1.stdout.log", "said\n")
	write(t, p.Out, "left", "by the container")
	must(t, os.Symlink(p.Logs, filepath.Join(p.Out, "link")))
	must(t, d.Start("box1", Request{ExecID: "e1", Nonce: testNonce, Command: []string{"true"}}))
	for range 2 {
		must(t, d.RemoveInputs("box1"))
		wantPrepared(t, d, false)
	}
	if data, err := os.ReadFile(filepath.Join(p.Logs, "e1.stdout.log")); string(data) != "said\n" {
		t.Errorf("the log: %q, %v", data, err)
	}
}

// Directories that a crash left partly created or removed must still be removed.
func TestPreparedReportsPartialDirectories(t *testing.T) {
	d, p := newDir(t)
	must(t, os.RemoveAll(p.Ctl))
	must(t, os.RemoveAll(p.Out))
	wantPrepared(t, d, true)
	if _, err := d.Prepare("box1"); err != nil {
		t.Fatal(err)
	}
	must(t, d.RemoveInputs("box1"))
	wantPrepared(t, d, false)
	if _, err := d.Prepare("box1"); err != nil {
		t.Fatal(err)
	}
	wantPrepared(t, d, true)
}

func TestInputsOfAHostileTree(t *testing.T) {
	d, p := newDir(t)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.Mkdir(victim, 0o755))
	write(t, victim, "file", "precious")
	run := filepath.Dir(p.Ctl)
	must(t, os.RemoveAll(run))
	must(t, os.Symlink(victim, run))
	if err := d.RemoveInputs("box1"); err == nil {
		t.Error("RemoveInputs followed a symlink in place of the run directory")
	}
	if data, _ := os.ReadFile(filepath.Join(victim, "file")); string(data) != "precious" {
		t.Error("a symlink was followed")
	}
	if err := d.RemoveInputs("../box1"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("escaping ID: %v", err)
	}
}
