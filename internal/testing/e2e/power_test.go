//go:build docker

package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// TestAPowerFailureLosesNoEndAndStartsNothingTwice: the host goes down while an exec runs whose journal was not synced, right after
// another one ended. What a file system had not written by then is gone: the disk goes on as a copy of its image at that moment.
func TestAPowerFailureLosesNoEndAndStartsNothingTwice(t *testing.T) {
	for _, row := range []struct {
		name, format, mount string
		keepsRun            bool // the directory of requests survives the reboot: it is not on a tmpfs
	}{
		{"ext4", "", ",commit=600", false}, // it commits nothing by itself for a while
		{"requests survive", "", ",commit=600", true},
		{"ext4 without a journal", " -O ^has_journal", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, noSweep, "truncate -s 256m $HOME/image && mkfs.ext4 -q -m 0"+row.format+" $HOME/image && mount -o loop"+row.mount+" $HOME/image $DATA")
			id := d.create(nil)
			d.await(id, ready)
			done := d.exec(id, "sh", "-c", "echo done; exit 3")
			d.ended(done.GetExecId())
			lost := d.exec(id, "sh", "-c", "echo ran >> /tmp/ran; sleep 1000")
			d.eventually("the command runs", func() error {
				return exec.Command("docker", "exec", naming.Primary(id), "test", "-s", "/tmp/ran").Run()
			})

			d.powerOff(row.keepsRun)
			journal, err := os.ReadFile(filepath.Join(d.data, "agents-sandbox/exec-logs", id, execjournal.JournalName(lost.GetExecId())))
			t.Logf("the journal after the failure: %v, %q", err, journal) // mostly none; a sync of another file may have stored it
			d.start()

			if e := d.ended(lost.GetExecId()); e.GetErrorCode() != plan.CodeExecLost {
				t.Errorf("the exec that ran: %v", e)
			}
			if e := d.ended(done.GetExecId()); e.GetExitCode() != 3 {
				t.Errorf("the exec that had ended: %v", e)
			}
			if out := d.read(done.GetStdoutLogPath()); out != "done\n" {
				t.Errorf("its output is %q", out)
			}
			d.await(id, ready)
			if got := d.sh(id, "cat /tmp/ran"); got != "ran\n" {
				t.Errorf("the command ran more than once: %q", got)
			}
			d.remove(id)
		})
	}
}

// TestABackupThatWasAnsweredSurvivesAPowerFailure: the file and its name are on disk when the command returns.
func TestABackupThatWasAnsweredSurvivesAPowerFailure(t *testing.T) {
	t.Parallel()
	d := newDisk(t, noSweep, "truncate -s 256m $HOME/image && mkfs.ext4 -q -m 0 $HOME/image && mount -o loop,commit=600 $HOME/image $DATA")
	id := d.create(nil)
	d.await(id, ready)
	d.ended(d.exec(id, "echo", "kept").GetExecId())
	file := filepath.Join(d.home, "data/backup")
	d.agbox("backup", "--with-logs", file)
	d.powerOff(false)
	if out := d.agbox("backup", "verify", file); !strings.Contains(out, "is complete") {
		t.Error(out)
	}
	d.start()
	d.await(id, ready)
	d.remove(id)
}

// powerOff ends the daemon and the containers as a power failure does, and puts the disk as it was at that moment in its place. With keepsRun the
// directory of requests stays.
func (d *disk) powerOff(keepsRun bool) {
	d.Helper()
	image := filepath.Join(d.home, "image")
	if err := copyFile(image, image+".cut"); err != nil {
		d.Fatal(err)
	}
	_ = exec.Command("e2fsck", "-fy", image+".cut").Run() // as at a boot; it fails if it repaired something
	d.kill()
	label := "label=" + naming.Instance + "=" + strings.TrimSpace(d.read(d.daemon.data("instance")))
	if running := strings.Fields(d.docker("ps", "-q", "--filter", label)); len(running) > 0 {
		d.docker(append([]string{"kill"}, running...)...)
	}
	for _, step := range [][]string{{"umount", "-l", d.data}, {"mount", "-o", "loop", image + ".cut", d.data}} {
		if out, err := exec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			d.Fatalf("%v: %v\n%s", step, err, out)
		}
	}
	if !keepsRun {
		d.reboot()
		return
	}
	d.boot = filepath.Join(d.home, "boot_id")
	if err := os.WriteFile(d.boot, []byte(rand.Text()+"\n"), 0o600); err != nil {
		d.Fatal(err)
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return dst.Close()
}
