//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// A link inside a mounted tree leads where its text leads inside the container, for the sandbox's own processes and for a mount on it.
// The engine follows none on the host. (A copy below a mount is refused.)
func TestALinkInAMountLeadsNowhereOnTheHost(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	own, tree, plain := d.dataDir(), t.TempDir(), t.TempDir()
	for _, err := range []error{
		os.Chmod(tree, 0o777), os.Symlink(own, filepath.Join(tree, "abs")),
		os.Symlink(strings.Repeat("../", 20)+own, filepath.Join(tree, "rel")), os.Symlink(filepath.Join(own, "ids.db"), filepath.Join(tree, "db")),
		os.Symlink(d.home, filepath.Join(tree, "above")), os.Symlink("/proc/1/root"+own, filepath.Join(tree, "magic")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	id := d.create(&agboxv1.CreateSpec{
		User: "0",
		Mounts: []*agboxv1.MountSpec{
			{Source: tree, Target: "/mnt", Writable: true}, {Source: plain, Target: "/mnt/rel/mounted", Writable: true},
		},
	})
	d.await(id, ready)
	const script = `cd /mnt; for l in db abs/ids.db rel/ids.db above/data/agents-sandbox/ids.db magic/ids.db; do cat $l 2>/dev/null && echo read $l; done
		for l in abs rel magic; do echo x >$l/planted && echo planted $l; done; rm -rf abs/exec-logs; ls abs/ | sort | tr '\n' ' '`
	if got, want := d.sh(id, script), "planted abs\nplanted rel\nplanted magic\nmounted planted "; got != want {
		t.Errorf("the sandbox sees %q, want %q", got, want)
	}
	for _, name := range []string{"planted", "mounted"} {
		if _, err := os.Lstat(filepath.Join(own, name)); err == nil {
			t.Errorf("%s is in agboxd's directory", name)
		}
	}
	if _, err := os.Stat(d.logDir(id)); err != nil {
		t.Error(err)
	}
	d.remove(id)
}

// A source that becomes a link to agboxd's own directory after its accept is mounted by no start: neither the first one nor that of a
// resume. Its sandbox goes on once the source is what it was.
func TestASourceThatBecomesALinkToAgboxdIsNotMounted(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	parent := t.TempDir()
	source, aside := filepath.Join(parent, "src"), filepath.Join(parent, "aside")
	if err := errors.Join(os.Mkdir(source, 0o777), os.Chmod(source, 0o777)); err != nil {
		t.Fatal(err)
	}
	swap := func() { // replaces the source by a link
		t.Helper()
		if err := errors.Join(os.Rename(source, aside), os.Symlink(d.dataDir(), source)); err != nil {
			t.Fatal(err)
		}
	}
	back := func() {
		t.Helper()
		if err := errors.Join(os.Remove(source), os.Rename(aside, source)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(id string) {
		t.Helper()
		d.eventually("the status of "+id+" names the link", func() error {
			if line := d.sandbox(id).GetStatusMessage(); !strings.Contains(line, "symbolic link") || !strings.Contains(line, source) {
				return fmt.Errorf("it is %q", line)
			}
			return nil
		})
		if d.inspectIfThere(naming.Primary(id)).State.Running {
			t.Error("the primary runs")
		}
	}
	id := d.create(&agboxv1.CreateSpec{ // its service is waited for, so the source is replaced before the primary is created
		User: "0", Command: []string{"sh", "-c", "touch /mnt/ran; exec sleep 1000000"}, RequiredServices: []*agboxv1.ServiceSpec{web("db", 3)},
		Mounts: []*agboxv1.MountSpec{{Source: source, Target: "/mnt", Writable: true}},
	})
	swap()
	refused(id)
	back()
	d.await(id, ready)
	d.halt(id)
	swap()
	if _, err := d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	refused(id)
	back()
	d.await(id, ready)
	if _, err := os.Lstat(filepath.Join(d.dataDir(), "ran")); err == nil {
		t.Error("the command wrote into agboxd's directory")
	}
	d.sh(id, "test -e /mnt/ran")
	d.remove(id)
}
