//go:build docker

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// A user who can write to a part of a mount's path swaps it for a link all the time. Whatever the engine makes of that,
// nothing of a sandbox ever sees what the link leads to.
func TestAMountThatIsSwappedWhileTheSandboxStarts(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	shared, secret := t.TempDir(), t.TempDir()
	inside, link := filepath.Join(shared, "sub"), filepath.Join(shared, "link")
	for _, err := range []error{os.Chmod(secret, 0o777), os.Mkdir(inside, 0o777), os.Chmod(inside, 0o777), os.Symlink(secret, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := unix.Renameat2(unix.AT_FDCWD, inside, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	var ids []string
	for range 200 { // most are refused at accept
		resp, err := d.CreateSandbox(d.ctx(), &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{
			Image: baseImage, Command: []string{"sh", "-c", "touch /mnt/sub/ran; exec sleep 1000000"},
			Mounts: []*agboxv1.MountSpec{{Source: inside, Target: "/mnt/sub", Writable: true}},
		}})
		if err == nil {
			ids = append(ids, resp.GetSandbox().GetSandboxId())
		}
		if len(ids) == 8 {
			break
		}
	}
	for _, id := range ids {
		d.eventually("a first start of "+id, func() error {
			sb := d.sandbox(id)
			if sb.GetState() == pending && (sb.GetStatusMessage() == "" || sb.GetStatusMessage() == "creating") {
				return errors.New("not yet")
			}
			return nil
		})
	}
	close(stop)
	swapper.Wait()
	if info, err := os.Lstat(inside); err == nil && !info.IsDir() {
		if err := unix.Renameat2(unix.AT_FDCWD, inside, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) == 0 {
		t.Fatal("nothing was accepted")
	}
	up := 0
	for _, id := range ids {
		d.eventually("the end of the start of "+id, func() error {
			if d.sandbox(id).GetState() == pending {
				return errors.New("pending")
			}
			return nil
		})
		if d.sandbox(id).GetState() == ready {
			up++
		}
		d.remove(id)
	}
	t.Logf("%d of %d came up", up, len(ids))
	left, err := os.ReadDir(secret)
	if err != nil || len(left) > 0 {
		t.Errorf("something of a sandbox ran on what the link leads to: %v, %v", left, err)
	}
}

// The engine would run the image's healthcheck as root and outside of every fence.
func TestAnImagesHealthcheckDoesNotRunInThePrimary(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	image := "agbox-e2e-healthcheck:" + strings.ToLower(filepath.Base(t.TempDir()))
	build := exec.Command("docker", "build", "-q", "-t", image, "-")
	build.Stdin = strings.NewReader("FROM " + baseImage + "\nHEALTHCHECK --interval=1s CMD echo probed >> /mnt/probes\n")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "rmi", "-f", image).Run() })
	dir := t.TempDir()
	id := d.create(&agboxv1.CreateSpec{Image: image, Mounts: []*agboxv1.MountSpec{{Source: dir, Target: "/mnt", Writable: true}}})
	d.await(id, ready)
	if health := d.docker("inspect", "-f", "{{.Config.Healthcheck.Test}} {{.State.Health}}", naming.Primary(id)); strings.TrimSpace(health) != "[NONE] <nil>" {
		t.Errorf("health %q", health)
	}
	d.remove(id)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
