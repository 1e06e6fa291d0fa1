//go:build docker

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// hostileTree makes a log directory wide and deep, with a mount point in it: its removal can't end before release is called.
func hostileTree(t *testing.T, logs string) (release func()) {
	t.Helper()
	for dir := range 20 {
		wide := filepath.Join(logs, "wide", fmt.Sprint(dir))
		if err := os.MkdirAll(wide, 0o755); err != nil {
			t.Fatal(err)
		}
		for file := range 500 {
			if err := os.WriteFile(filepath.Join(wide, fmt.Sprint(file)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	busy := filepath.Join(logs, "busy")
	for _, dir := range []string{filepath.Join(logs, "deep") + strings.Repeat("/d", 1500), busy} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "tmpfs", busy).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	release = func() { _ = exec.Command("umount", busy).Run() }
	t.Cleanup(release)
	return release
}

// TestHostileTreesDelayNoOtherSandbox: the files of eight sandboxes are being removed and the removals can't end, and a ninth is created and
// runs a command meanwhile. It is judged by this order and by no time.
func TestHostileTreesDelayNoOtherSandbox(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("a mount point, which can't be removed, needs root")
	}
	d := newDaemon(t, "", "")
	var ids []string
	for range 8 {
		ids = append(ids, d.create(nil))
	}
	var releases []func()
	for _, id := range ids {
		d.await(id, ready)
		releases = append(releases, hostileTree(t, filepath.Join(d.home, "data/agents-sandbox/exec-logs", id)))
	}
	for _, id := range ids {
		must(d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id}))(t)
	}
	ninth := d.create(nil)
	d.await(ninth, ready)
	if got := d.sh(ninth, "echo through"); got != "through\n" {
		t.Errorf("got %q", got)
	}
	for i, id := range ids {
		if s := d.state(id); s != agboxv1.SandboxState_SANDBOX_STATE_DELETING {
			t.Errorf("%s is %s, so the ninth may have waited for it", id, s)
		}
		d.eventually("the removal of the files of "+id+" comes to what can't be removed", func() error {
			if status := d.sandbox(id).GetStatusMessage(); !strings.Contains(status, "busy") {
				return fmt.Errorf("its status is %q", status)
			}
			return nil
		})
		releases[i]()
	}
	for _, id := range ids {
		d.await(id, deleted)
		if held := d.held(id); held != "" {
			t.Errorf("%s holds %s", id, held)
		}
	}
	d.remove(ninth)
}
