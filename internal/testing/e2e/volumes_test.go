//go:build docker

package e2e

import (
	"fmt"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// A volume of the primary belongs to the user of commands, also in a hardened sandbox; a service keeps the owner that its image gives it.
func TestVolumesOutliveTheirSandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	db := web("db", 0)
	db.Volumes = []*agboxv1.VolumeSpec{{Name: "db", Target: "/var/lib/db"}}
	spec := &agboxv1.CreateSpec{
		Security: &agboxv1.SecuritySpec{Profile: "hardened"}, RequiredServices: []*agboxv1.ServiceSpec{db},
		Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}, {Name: "cache", Target: "/home/agbox/.cache"}},
	}
	first := d.named("web", spec)
	d.await(first, ready)
	d.sh(first, "echo one > /data/f; touch /home/agbox/.cache/f")
	d.docker("exec", naming.Service(first, "db"), "sh", "-c", "echo two > /var/lib/db/f")
	d.stopBox(first)
	d.await(first, stopped)
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: first}))(t)
	d.await(first, ready)
	if got := d.sh(first, "cat /data/f; stat -c %U /data"); got != "one\nagbox\n" {
		t.Errorf("after a resume the volume has %q", got)
	}
	d.remove(first)
	if got := d.agbox("volume", "ls", "-o", "name"); got != "web/cache\nweb/data\nweb/db\n" {
		t.Errorf("after the delete the volumes are %q", got)
	}
	second := d.named("web", spec)
	d.await(second, ready)
	if got := d.sh(second, "cat /data/f; ls /home/agbox/.cache"); got != "one\nf\n" {
		t.Errorf("the next sandbox of the name has %q", got)
	}
	if got := d.docker("exec", naming.Service(second, "db"), "cat", "/var/lib/db/f"); got != "two\n" {
		t.Errorf("its service has %q", got)
	}
	other := d.named("shop", &agboxv1.CreateSpec{Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}}})
	d.await(other, ready)
	if got := d.sh(other, "ls -A /data"); got != "" {
		t.Errorf("a sandbox of another name has %q", got)
	}
	d.agbox("delete", "web", "--volumes", "--wait")
	if got := d.agbox("volume", "ls", "-o", "name"); got != "shop/data\n" {
		t.Errorf("after the delete with volumes there are %q", got)
	}
}

// A new database finds the volumes of the lost one: by its labels, also if the store has another UUID.
func TestVolumesSurviveTheLossOfTheDatabaseAndOfTheUUID(t *testing.T) {
	t.Parallel()
	v := newVillage(t)
	spec := &agboxv1.CreateSpec{Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}}}
	id := v.named("web", spec)
	v.await(id, ready)
	v.sh(id, "echo kept > /data/f")
	v.killLogged()
	v.lose(theDatabase, theLog, theUUID)
	v.start()
	v.await(id, ready)
	if got := v.sandbox(id).GetSpec().GetVolumes(); len(got) != 1 || got[0].GetTarget() != "/data" {
		t.Errorf("the rebuilt spec has the volumes %v", got)
	}
	v.remove(id)
	next := v.named("web", spec)
	v.await(next, ready)
	if got := v.sh(next, "cat /data/f"); got != "kept\n" {
		t.Errorf("the next sandbox of the name has %q", got)
	}
	must(v.DeleteSandbox(v.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: next, Volumes: true}))(t)
	v.await(next, deleted)
	if left := must(v.ListVolumes(v.ctx(), &agboxv1.ListVolumesRequest{}))(t).GetVolumes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	v.removeAll()
}

// The engine says that a volume is in use: the delete is recorded, survives the daemon, and ends once the volume is free.
func TestDeleteWithAVolumeInUseWaits(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.named("web", &agboxv1.CreateSpec{Volumes: []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}}})
	d.await(id, ready)
	volume := must(d.ListVolumes(d.ctx(), &agboxv1.ListVolumesRequest{}))(t).GetVolumes()[0].GetEngineName()
	holder := strings.TrimSpace(d.docker("create", "-v", volume+":/x", baseImage, "true"))
	t.Cleanup(func() { d.docker("rm", "-f", holder) })
	must(d.DeleteSandbox(d.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: id, Volumes: true}))(t)
	waits := func() {
		t.Helper()
		d.eventually("the status says why", func() error {
			if sb := d.sandbox(id); !strings.Contains(sb.GetStatusMessage(), "volume data") || sb.GetState() == deleted {
				return fmt.Errorf("%s: %s", sb.GetState(), sb.GetStatusMessage())
			}
			return nil
		})
	}
	waits()
	d.restart()
	waits()
	d.docker("rm", "-f", holder)
	d.await(id, deleted)
	if left := must(d.ListVolumes(d.ctx(), &agboxv1.ListVolumesRequest{}))(t).GetVolumes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
