//go:build docker

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// Under a read-only root all that a sandbox may write outlives a stop, the daemon and the engine's start of the container, and goes with it.
func TestReadOnlyRoot(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	source := filepath.Join(t.TempDir(), "src")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "f"), []byte("copied\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	secret := newSecretFile(t, "the value")
	for _, row := range []struct{ profile, image, name string }{{"standard", baseImage, "one"}, {"hardened", builtImage(t, withoutAgbox+"RUN rm -rf /workspace /var/tmp\n", nil), "two"}} {
		spec := withProfile(row.profile, &agboxv1.CreateSpec{
			Image: row.image, Copies: []*agboxv1.CopySpec{{Source: source, Target: "/workspace"}, {Source: source, Target: "/home/agbox/a/b"}},
			Secrets: []*agboxv1.SecretSpec{{Name: "token", File: secret.path, Target: "/run/secrets/token"}}, Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/home/agbox/data"}},
		})
		spec.Security.ReadOnlyRoot = true
		id := d.named(row.name, spec)
		d.await(id, ready)
		d.shows(id, "/run/secrets/token", "the value")
		for _, dir := range []string{"/etc", "/usr", "/var", "/"} {
			if st := d.ended(must(d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, User: "0", Command: []string{"sh", "-c", "touch " + dir + "/x"}}))(t).GetExecId()); st.GetExitCode() == 0 {
				t.Errorf("%s: root can write to %s", row.profile, dir)
			}
		}
		write := "id -u; cat f ~/a/b/f; for d in /workspace ~ ~/a ~/data /tmp /var/tmp /dev/shm; do echo kept > $d/kept; done"
		if got := d.sh(id, write); got != "1000\ncopied\ncopied\n" {
			t.Errorf("%s: %q", row.profile, got)
		}
		_, err := d.CreateSnapshot(d.ctx(), &agboxv1.CreateSnapshotRequest{SandboxId: id, SnapshotId: "of-" + row.name})
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "agbox cp") {
			t.Errorf("%s: a snapshot: %v", row.profile, err)
		}
		d.stopBox(id)
		d.await(id, stopped)
		if got := d.agbox("cat", row.name, "/workspace/kept"); got != "kept\n" {
			t.Errorf("%s: of the stopped sandbox cat prints %q", row.profile, got)
		}
		d.restart()
		must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(t)
		d.await(id, ready)
		if got := d.sh(id, "cat f /workspace/kept ~/kept ~/a/kept ~/data/kept /tmp/kept /var/tmp/kept"); got != "copied\n"+strings.Repeat("kept\n", 6) {
			t.Errorf("%s: after a resume: %q", row.profile, got)
		}
		d.shows(id, "/run/secrets/token", "the value")
		if got := d.agbox("describe", row.name); !strings.Contains(got, row.profile+"; read-only root") {
			t.Errorf("describe says\n%s", got)
		}
		volumes := func() string {
			return d.docker("volume", "ls", "-q", "--filter", "label="+naming.SandboxID+"="+id)
		}
		if n := len(strings.Fields(volumes())); n != 6 {
			t.Errorf("%s: %d volumes", row.profile, n)
		}
		if row.profile == "standard" {
			d.docker("rm", "-f", naming.Primary(id)) // without -v
		}
		d.remove(id)
		if left := volumes(); left != "" {
			t.Errorf("%s: the delete left the volumes %s", row.profile, left)
		}
		d.agbox("volume", "rm", row.name+"/data")
	}
}
