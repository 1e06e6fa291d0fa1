//go:build docker

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
	"github.com/agbox/agbox/internal/attack"
	"github.com/agbox/agbox/internal/attack/judge"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// processes lists what runs in a sandbox, zombies, too, without the shim's own.
func (d *daemon) processes(id string) string {
	d.Helper()
	return d.docker("exec", naming.Primary(id), "sh", "-c", "cd /proc; for p in [0-9]*; do read -r line <$p/stat && echo \"$line\"; done 2>/dev/null | "+
		"cut -d' ' -f2-3 | grep -v -e agbox-shim -e '(sh)' -e '(cut)' -e '(grep)'")
}

// Floods are refused at the limits, harm nothing else in the sandbox, leave nothing, also if they are killed, and find limits that are gone.
func TestFloodsOfASandbox(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	spec := &agboxv1.CreateSpec{
		Command: []string{"sleep", "100000"}, MemoryLimit: "128MiB", PidsLimit: 200, Network: &agboxv1.NetworkSpec{Mode: "none"},
		Security: &agboxv1.SecuritySpec{Profile: "hardened"},
	}
	id, bare := d.named("limited", spec), d.named("bare", &agboxv1.CreateSpec{Network: &agboxv1.NetworkSpec{Mode: "none"}})
	d.await(id, ready)
	d.await(bare, ready)
	x := d.exec(id, "sleep", "100000")
	d.started(x)
	before := d.processes(id)
	if strings.Count(before, "(sleep)") != 2 {
		t.Fatalf("before a flood run\n%s", before)
	}
	lives := func(what string) {
		t.Helper()
		d.eventually(what+": nothing is left", func() error {
			if after := d.processes(id); after != before {
				return fmt.Errorf("the processes were\n%sand are\n%s", before, after)
			}
			return nil
		})
		if got := d.sh(id, "find / -xdev -name '*agbox-attack*' 2>/dev/null; echo works"); got != "works\n" {
			t.Errorf("%s: %q", what, got)
		}
		if got := d.types(id); strings.Contains(got, "FAILED") || strings.Contains(got, "RESTARTED") {
			t.Errorf("%s: events: %s", what, got)
		}
	}

	got := d.attacked("limited", "--floods")
	for _, check := range []string{attack.Pids, attack.MemoryLimit} {
		if c := got[check]; c.GetStatus() != judge.Held || !strings.Contains(c.GetText(), "refused") {
			t.Errorf("%s: %s", check, c)
		}
	}
	if c := got[attack.DiskLimit]; c.GetStatus() != judge.Allowed || !strings.Contains(c.GetText(), "not flooded: there is no limit") {
		t.Errorf("disk: %s", c)
	}
	lives("a flood")
	got = d.attacked("bare", "--floods") // 4096 processes are the default
	if c := got[attack.Pids]; c.GetStatus() != judge.Held || !strings.Contains(c.GetText(), "refused after 40") {
		t.Errorf("by default: %s", c)
	}
	if c := got[attack.MemoryLimit]; c.GetStatus() != judge.Allowed || !strings.Contains(c.GetText(), "not flooded: there is no limit") {
		t.Errorf("by default: %s", c)
	}

	floods := []string{execjournal.ContainerShim, attack.Verb}
	for _, f := range []attack.Flood{{Check: attack.Pids, Limit: 200}, {Check: attack.MemoryLimit, Limit: 128 << 20}, {Check: attack.DiskLimit, Limit: 256 << 20}} {
		floods = append(floods, f.String())
	}
	for round := range 6 {
		f := d.exec(id, floods...)
		d.killSometime(2 * time.Second)
		if round%2 == 0 {
			_, _ = d.CancelExec(d.ctx(), &agboxv1.CancelExecRequest{ExecId: f.GetExecId()}) // it may have ended
		} else {
			for line := range strings.Lines(d.docker("top", naming.Primary(id), "-eo", "pid,args")) {
				if pid, args, _ := strings.Cut(strings.TrimSpace(line), " "); strings.Contains(args, "agbox-shim attack ") {
					_ = unix.Kill(must(strconv.Atoi(pid))(t), unix.SIGKILL) // it may have ended
				}
			}
		}
		d.ended(f.GetExecId())
		lives("a flood that was killed")
	}

	d.docker("update", "--pids-limit", "4096", "--memory", "1g", "--memory-swap", "1g", naming.Primary(id))
	for _, flags := range [][]string{nil, {"--floods"}} {
		got := d.attacked("limited", flags...)
		for _, check := range []string{attack.Pids, attack.MemoryLimit} {
			if c := got[check]; c.GetStatus() != judge.Hole {
				t.Errorf("with a hole, %v: %s", flags, c)
			}
		}
	}
	lives("a flood that met no limit")
}

// The flood of a disk meets a limit that the engine enforces, and leaves no file.
func TestTheDiskFlood(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mkfs.btrfs"); err != nil || os.Getuid() != 0 {
		t.Skip("a private engine on btrfs needs mkfs.btrfs and root")
	}
	if (&daemon{TB: t}).inContainerd() {
		t.Skip("containerd's store holds no limits: the engine may have no other one")
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	local(t, dir, "truncate -s 1200m image && mkfs.btrfs -q image && mkdir data && mount -o loop image data")
	t.Cleanup(func() { _ = exec.Command("umount", "-R", "-l", data).Run() }) // after the engine's end
	e := dockerd.Start(t, "--data-root", data, "--storage-driver", "btrfs")
	loadImage(t, e, baseImage)
	d := newDaemon(t, e.Host(), "")
	id := d.named("limited", &agboxv1.CreateSpec{DiskLimit: "64MiB"})
	d.await(id, ready)
	if c := d.attacked("limited")[attack.DiskLimit]; c.GetStatus() != judge.Untried || !strings.Contains(c.GetText(), "--floods tries it") {
		t.Errorf("seen from inside: %s", c)
	}
	for range 2 { // the space is free again
		if c := d.attacked("limited", "--floods")[attack.DiskLimit]; c.GetStatus() != judge.Held || !strings.Contains(c.GetText(), "refused after") {
			t.Errorf("flooded: %s", c)
		}
	}
	if got := d.sh(id, "head -c 20000000 /dev/urandom >/tmp/f && find / -xdev -name '*agbox-attack*'; echo works"); got != "works\n" {
		t.Errorf("afterwards: %q", got)
	}
}

// TestAWatchedDiskIsNotFlooded: agboxd would stop the sandbox.
func TestAWatchedDiskIsNotFlooded(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	if driver := d.docker("info", "--format", "{{.Driver}}, {{.DriverStatus}}"); !strings.HasPrefix(driver, "overlay") || strings.Contains(driver, "xfs") {
		t.Skipf("the engine may hold limits: %s", driver)
	}
	d.await(d.named("limited", &agboxv1.CreateSpec{DiskLimit: "64MiB"}), ready)
	if c := d.attacked("limited", "--floods")[attack.DiskLimit]; c.GetStatus() != judge.Untried || !strings.Contains(c.GetText(), "agboxd measures") {
		t.Errorf("%s", c)
	}
}
