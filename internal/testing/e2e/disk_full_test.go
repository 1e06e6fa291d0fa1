//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// noQuota lets one sandbox fill the disk.
const noQuota = "[artifacts]\nsandbox_max_bytes = \"0\"\n"

// disk is a daemon whose data directory is on a small file system of its own.
type disk struct {
	*daemon
	data string
}

// newTmpfs is a disk of the given size on a tmpfs.
func newTmpfs(t testing.TB, size, conf string) *disk {
	t.Helper()
	return newDisk(t, conf, "mount -t tmpfs -o size="+size+" tmpfs $DATA")
}

// newExt4 is a disk of the given size on ext4 in a loop-mounted image.
func newExt4(t testing.TB, size, conf string) *disk {
	t.Helper()
	return newDisk(t, conf, onExt4(size))
}

// onExt4 is a script for mountSmall.
func onExt4(size string) string {
	return "truncate -s " + size + " $HOME/image && mkfs.ext4 -q -m 0 $HOME/image && mount -o loop $HOME/image $DATA"
}

// onBtrfs is a script for mountSmall, of at least 64 MiB. Data and metadata share their space: otherwise the file system counts free space that no file can have.
func onBtrfs(size string) string {
	return "truncate -s " + size + " $HOME/image && mkfs.btrfs -q --mixed $HOME/image && mount -o loop $HOME/image $DATA"
}

func newDisk(t testing.TB, conf, mount string) *disk {
	t.Helper()
	return newDiskWithin(t, "", conf, mount)
}

// newDiskWithin is newDisk with a daemon in a user namespace of its own, unless within is empty.
func newDiskWithin(t testing.TB, within, conf, mount string) *disk {
	t.Helper()
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	data := home + "/data"
	mountSmall(t, home, data, mount)
	d := prepared(t, home)
	d.conf, d.http, d.within = conf, freeAddress(t), within
	d.start()
	return &disk{d, data}
}

// full returns an error that says what is left on the file system of dir; nil: no file on it can grow.
func full(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return err
	}
	unusable := uint64(256 << 10) // ext4 keeps some clusters for itself
	if st.Type == unix.BTRFS_SUPER_MAGIC {
		unusable = 2 << 20
	}
	if left := st.Bavail * uint64(st.Bsize); left > unusable {
		return fmt.Errorf("%d bytes are left", left)
	}
	return nil
}

// fill has a sandbox write until nothing is left, and go on.
func (d *disk) fill(id string) *agboxv1.CreateExecResponse {
	d.Helper()
	e := d.exec(id, "sh", "-c", "cat /dev/zero")
	d.eventually("the disk is full", func() error { return full(d.data) })
	return e
}

// wantDiskFull asserts that err refuses because the disk is full, in a way that known clients understand.
func wantDiskFull(t testing.TB, err error) {
	t.Helper()
	if !isCode(err, codes.Unavailable) || !strings.Contains(err.Error(), "the disk ") {
		t.Fatalf("got %v", err)
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == "DISK_FULL" && info.GetDomain() == "agents-sandbox" {
			return
		}
	}
	t.Fatalf("no reason DISK_FULL: %v", status.Convert(err).Details())
}

// refusesNew asserts that creates and execs are refused, once the daemon has noticed.
func (d *daemon) refusesNew(id string) {
	d.Helper()
	d.eventually("new execs are refused", func() error {
		_, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
		if err == nil {
			return errors.New("accepted")
		}
		wantDiskFull(d, err)
		return nil
	})
	_, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: baseImage}})
	wantDiskFull(d, err)
}

// acceptsAgain waits until the daemon has seen that there is room.
func (d *daemon) acceptsAgain(id string) {
	d.Helper()
	d.eventually("execs are accepted again", func() error {
		_, err := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: id, Command: []string{"true"}})
		return err
	})
}

// recovers asserts that everything works again by itself.
func (d *disk) recovers(id string) {
	d.Helper()
	d.acceptsAgain(id)
	if got := d.sh(id, "echo again"); got != "again\n" {
		d.Errorf("got %q", got)
	}
	d.wantPage("/readyz", http.StatusOK, "[+]disk ok", "\nready\n")
}

// runs waits until the command of an exec runs.
func (d *disk) runs(id, execID string) {
	d.Helper()
	d.eventually("exec "+execID+" runs", func() error {
		_, err := os.Stat(d.data + "/agents-sandbox/exec-logs/" + id + "/" + execID + ".journal")
		return err
	})
}

func TestAFullDiskNeverLocksItselfIn(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(testing.TB, string, string) *disk{"tmpfs": newTmpfs, "ext4": newExt4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lockIn(make(t, "48m", noQuota))
		})
	}
}

// lockIn fills the disk with the output of one sandbox and asserts that other calls work, and that deleting it frees space.
func lockIn(d *disk) {
	d.Helper()
	culprit, other, third := d.create(nil), d.create(nil), d.create(nil)
	for _, id := range []string{culprit, other, third} {
		d.await(id, ready)
	}
	ends := d.exec(other, "sh", "-c", "while ! test -e /tmp/go; do sleep 0.1; done; exit 7").GetExecId()
	cut := d.exec(third, "sleep", "1000").GetExecId()
	d.runs(other, ends)
	d.runs(third, cut)
	others := d.changed()
	flood := d.fill(culprit).GetExecId()

	late, _ := d.CreateExec(d.ctx(), &agboxv1.CreateExecRequest{SandboxId: other, Command: []string{"echo", "late"}})
	d.refusesNew(other)
	d.wantPage("/readyz", http.StatusServiceUnavailable, "[-]disk: ", "\nnot ready\n")
	d.wantPage("/metrics", http.StatusOK, `agboxd_disk_low{disk="data"} 1`)
	d.docker("exec", "agbox-primary-"+other, "touch", "/tmp/go")
	if st := d.ended(ends); st.GetExitCode() != 7 || st.GetState() != ruined {
		d.Errorf("the other's exec: %v", st)
	}
	d.halt(third)
	if st := d.ended(cut); st.GetState() != ended {
		d.Errorf("the stopped one's exec: %v", st)
	}
	others.change()
	d.restart()
	d.refusesNew(other)
	others.changeBack()
	d.remove(culprit)
	if !strings.Contains(d.log.tail(1<<20), "logs of a sandbox that is being deleted are dropped") {
		d.Error("the delete did not begin with the logs")
	}
	if st := d.ended(flood); st.GetState() != ended {
		d.Errorf("the flood: %v", st)
	}
	if late != nil { // it was accepted before the daemon knew
		if st := d.ended(late.GetExecId()); st.GetState() != finished || d.read(late.GetStdoutLogPath()) != "late\n" {
			d.Errorf("the exec that was accepted on a full disk: %v", st)
		}
	}
	d.recovers(other)
	d.resume(third)
	d.sh(third, "true")
	for _, id := range []string{others.paused, others.updated, others.resumed} {
		d.await(id, ready)
		d.sh(id, "true")
		d.remove(id)
	}
	d.remove(third)
	d.remove(other)
}

// changed are sandboxes that are changed while the disk is full: the accepts and what follows from them need no space but the reserve.
type changed struct {
	*disk
	paused, updated, resumed string
}

func (d *disk) changed() changed {
	d.Helper()
	c := changed{d, d.create(nil), d.create(nil), d.create(nil)}
	for _, id := range []string{c.paused, c.updated, c.resumed} {
		d.await(id, ready)
	}
	d.halt(c.resumed)
	return c
}

func (d changed) change() {
	d.Helper()
	must(d.PauseSandbox(d.ctx(), &agboxv1.PauseSandboxRequest{SandboxId: d.paused}))(d)
	d.await(d.paused, agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
	must(d.UpdateSandbox(d.ctx(), &agboxv1.UpdateSandboxRequest{
		SandboxId: d.updated, CreateSpec: &agboxv1.CreateSpec{Image: baseImage, PidsLimit: 321},
	}))(d)
	d.eventually("the container has its new limit", func() error {
		if got := d.docker("inspect", "-f", "{{.HostConfig.PidsLimit}}", "agbox-primary-"+d.updated); strings.TrimSpace(got) != "321" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: d.resumed}))(d)
	d.await(d.resumed, ready)
}

func (d changed) changeBack() {
	d.Helper()
	for id, want := range map[string]agboxv1.SandboxState{d.paused: agboxv1.SandboxState_SANDBOX_STATE_PAUSED, d.updated: ready, d.resumed: ready} {
		if s := d.state(id); s != want {
			d.Errorf("after a restart of the daemon %s is %s, want %s", id, s, want)
		}
	}
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: d.paused}))(d)
	d.await(d.paused, ready)
}
