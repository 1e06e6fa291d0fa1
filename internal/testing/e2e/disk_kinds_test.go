//go:build docker

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/fault"
)

// mounted runs a script as root that makes a file system in $HOME and mounts it on $DATA, a directory of its own outside of the daemon's.
func mounted(t testing.TB, script string) (dir string) {
	t.Helper()
	home := must(os.MkdirTemp("", "agbox-disk-"))(t)
	dir = home + "/mount"
	mountSmall(t, home, dir, script)
	return dir
}

// stuff writes a file until its file system takes no more of a process without CAP_SYS_RESOURCE, and returns what empties it again. btrfs
// reserves more of a quota than a write uses and returns the rest when it has written the data, so a file is whole once nothing fits
// after a sync.
func stuff(t testing.TB, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "stuffing")
	defer boundByQuotas(t)()
	f := must(os.Create(path))(t)
	defer f.Close()
	fill := func(size int) (written bool) {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
					t.Fatal(err)
				}
				return written
			}
			written = true
		}
	}
	fill(1 << 20)
	for fill(4096) {
		if err := f.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOneOfTwoDisksIsFull: records and logs are on file systems of their own, and one of them is full. Nothing new is accepted; what
// runs gets its end, a stop and a delete work, also over a restart, and everything resumes by itself.
func TestOneOfTwoDisksIsFull(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"records", "logs"} {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			logs := mounted(t, "mount -t tmpfs -o size=24m tmpfs $DATA")
			d := newTmpfs(t, "24m", fmt.Sprintf("%sexec_output_root = %q\n", noQuota, logs+"/logs"))
			culprit, other, third := d.create(nil), d.create(nil), d.create(nil)
			for _, id := range []string{culprit, other, third} {
				d.await(id, ready)
			}
			ends := d.exec(other, "sh", "-c", "while ! test -e /tmp/go; do sleep 0.1; done; echo end; exit 7")
			cut, flood := d.exec(third, "sleep", "1000"), d.exec(culprit, "sh", "-c", "while ! test -e /tmp/go; do sleep 0.1; done; cat /dev/zero")
			for _, e := range []*agboxv1.CreateExecResponse{ends, cut, flood} {
				d.started(e)
			}
			empty := func() {}
			if full == "records" {
				empty = stuff(t, d.data)
			} else {
				d.docker("exec", "agbox-primary-"+culprit, "touch", "/tmp/go")
			}
			d.refusesNew(other)
			d.wantPage("/readyz", http.StatusServiceUnavailable, "[-]disk: ", "\nnot ready\n")
			d.docker("exec", "agbox-primary-"+other, "touch", "/tmp/go")
			if full == "records" { // there is room for the last line
				if st := d.ended(ends.GetExecId()); st.GetExitCode() != 7 || st.GetState() != ruined || d.read(st.GetStdoutLogPath()) != "end\n" {
					t.Errorf("the other's exec: %v", st)
				}
			}
			d.halt(third)
			if st := d.ended(cut.GetExecId()); st.GetState() != ended {
				t.Errorf("the stopped one's exec: %v", st)
			}
			d.restart()
			d.refusesNew(other)
			d.remove(culprit)
			if st := d.ended(flood.GetExecId()); st.GetState() != ended {
				t.Errorf("the flood: %v", st)
			}
			empty()
			if st := d.ended(ends.GetExecId()); st.GetExitCode() != 7 || st.GetState() != ruined || d.read(st.GetStdoutLogPath()) != "end\n" {
				t.Errorf("the other's exec: %v", st)
			}
			d.recovers(other)
			d.resume(third)
			d.sh(third, "true")
			d.remove(third)
			d.remove(other)
		})
	}
}

// withQuota is a data directory on btrfs whose quota is used up long before the file system is: EDQUOT, and every commit needs new blocks.
const withQuota = "truncate -s 512m $HOME/image && mkfs.btrfs -q $HOME/image && mkdir $HOME/all && mount -o loop $HOME/image $HOME/all && " +
	"btrfs quota enable $HOME/all && btrfs subvolume create $HOME/all/s && btrfs qgroup limit 64m $HOME/all/s && mount --bind $HOME/all/s $DATA && umount -l $HOME/all"

// Data directories whose quota of 64 MiB is used up long before the file system is. The quota of XFS for a group holds for root's files
// too, which belong to that group because of the mount option.
const (
	ofProject = " && mkdir $HOME/all && mount -o loop,prjquota $HOME/image $HOME/all && mkdir $HOME/all/s && chattr -p 7 +P $HOME/all/s && " +
		"setquota -P 7 0 65536 0 0 $HOME/all && mount --bind $HOME/all/s $DATA && umount -l $HOME/all"
	ext4Project = "truncate -s 512m $HOME/image && mkfs.ext4 -q -O quota,project -E quotatype=prjquota $HOME/image" + ofProject
	xfsProject  = "truncate -s 512m $HOME/image && mkfs.xfs -q $HOME/image" + ofProject
	xfsGroup    = "truncate -s 512m $HOME/image && mkfs.xfs -q $HOME/image && mount -o loop,grpid,gquota $HOME/image $DATA && " +
		"chgrp 4711 $DATA && setquota -g 4711 0 65536 0 0 $DATA"
)

// limit is a limit of the data directory.
type limit struct {
	script string
	within string // see daemon
	want   error  // of a write beyond it, without CAP_SYS_RESOURCE
	shown  bool   // by statfs(2)
	waits  bool   // the end of an exec may wait until there is room
	blocks bool   // output that has no room waits: the stop of another sandbox releases no ballast
	option string // of the kernel, without CONFIG_; "": none
	tools  []string
}

// TestAQuotaOfTheFileSystemNeverLocksItselfIn: the data directory has a quota. ext4 ignores quotas for processes with CAP_SYS_RESOURCE,
// which root on the host has, and root in a container and a daemon in a user namespace (ext4-bound) lack. Project quotas of XFS give ENOSPC, its
// other quotas EDQUOT.
func TestAQuotaOfTheFileSystemNeverLocksItselfIn(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]limit{
		"btrfs":       {script: withQuota, want: syscall.EDQUOT},
		"ext4":        {script: ext4Project, want: syscall.EDQUOT, shown: true, blocks: true, option: "QFMT_V2", tools: []string{"setquota"}},
		"ext4-bound":  {script: ext4Project, within: "true", want: syscall.EDQUOT, shown: true, blocks: true, option: "QFMT_V2", tools: []string{"setquota"}},
		"XFS-project": {script: xfsProject, want: syscall.ENOSPC, shown: true, blocks: true, option: "XFS_QUOTA", tools: []string{"mkfs.xfs", "setquota"}},
		"XFS-group":   {script: xfsGroup, want: syscall.EDQUOT, option: "XFS_QUOTA", tools: []string{"mkfs.xfs", "setquota"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, l.option, l.tools...)
			fills(t, l)
		})
	}
}

// TestAFullBtrfsNeverLocksItselfIn: btrfs needs new blocks to change a file, so the ends of execs wait until a commit that met the error has
// released ballast, or until there is room.
func TestAFullBtrfsNeverLocksItselfIn(t *testing.T) {
	t.Parallel()
	fills(t, limit{script: onBtrfs("96m"), want: syscall.ENOSPC, shown: true, waits: true})
}

func fills(t *testing.T, l limit) {
	d := newDiskWithin(t, l.within, noQuota, l.script)
	culprit, other, third := d.create(nil), d.create(nil), d.create(nil)
	for _, id := range []string{culprit, other, third} {
		d.await(id, ready)
	}
	ends := d.exec(other, "sh", "-c", "while ! test -e /tmp/go; do sleep 0.1; done; exit 7")
	cut := d.exec(third, "sleep", "1000")
	d.started(ends)
	d.started(cut)
	const output = 1 << 20
	var loud *agboxv1.CreateExecResponse
	if l.blocks {
		loud = d.exec(other, "sh", "-c", fmt.Sprintf("while ! test -e /tmp/go; do sleep 0.1; done; head -c %d /dev/zero", output))
		d.started(loud)
	}
	empty := stuff(t, d.data)
	d.wantsRoom(l.want)
	if l.shown != (full(d.data) == nil) {
		t.Errorf("statfs(2): %v", full(d.data))
	}
	d.docker("exec", "agbox-primary-"+other, "touch", "/tmp/go")
	d.halt(third) // if its commit finds no room it releases ballast; supervisors, which have none, can record ends from then on
	if st := d.ended(cut.GetExecId()); st.GetState() != ended {
		t.Errorf("the stopped one's exec: %v", st)
	}
	other7 := func() {
		t.Helper()
		if st := d.ended(ends.GetExecId()); st.GetExitCode() != 7 || st.GetState() != ruined {
			t.Errorf("the other's exec: %v", st)
		}
	}
	if !l.waits {
		other7()
	}
	if l.blocks {
		if st := must(d.GetExec(d.ctx(), &agboxv1.GetExecRequest{ExecId: loud.GetExecId()}))(t).GetExec(); st.GetState() != agboxv1.ExecState_EXEC_STATE_RUNNING {
			t.Errorf("a command ended whose output has no room: %v", st)
		}
	}
	d.refusesNew(other)
	d.restart()
	d.remove(culprit)
	empty()
	other7()
	if l.blocks {
		if st := d.ended(loud.GetExecId()); st.GetState() != finished || len(d.read(st.GetStdoutLogPath())) != output {
			t.Errorf("the command whose output had no room: %v", st)
		}
	}
	d.recovers(other)
	d.resume(third)
	d.sh(third, "true")
	d.remove(third)
	d.remove(other)
}

// wantsRoom asserts that a write without CAP_SYS_RESOURCE gets the error.
func (d *disk) wantsRoom(want error) {
	d.Helper()
	defer boundByQuotas(d)()
	if err := os.WriteFile(d.data+"/more", make([]byte, 1<<20), 0o600); !errors.Is(err, want) {
		d.Fatalf("want %v, got %v", want, err)
	}
	_ = os.Remove(d.data + "/more") // it may not be there
}

// TestAWriterThatNeverStopsIsEndedOnAFullDisk: whatever space a commit frees, the writer takes it if it can. The ends of others are
// recorded, the writer's sandbox is stopped and deleted, and then everything works again. Nothing else frees space.
func TestAWriterThatNeverStopsIsEndedOnAFullDisk(t *testing.T) {
	t.Parallel()
	for name, newOn := range map[string]func(t testing.TB) *disk{
		"tmpfs": func(t testing.TB) *disk { return newTmpfs(t, "48m", noQuota) },
		"ext4":  func(t testing.TB) *disk { return newExt4(t, "48m", noQuota) },
		"btrfs": func(t testing.TB) *disk { return newDisk(t, noQuota, withQuota) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newOn(t)
			culprit, other, third := d.create(nil), d.create(nil), d.create(nil)
			for _, id := range []string{culprit, other, third} {
				d.await(id, ready)
			}
			ends := d.exec(other, "sh", "-c", "while ! test -e /tmp/go; do sleep 0.1; done; exit 7").GetExecId()
			cut := d.exec(third, "sleep", "1000").GetExecId()
			d.runs(other, ends)
			d.runs(third, cut)
			var floods []string
			for range 3 {
				e := d.exec(culprit, "sh", "-c", "trap '' TERM; while ! test -e /tmp/go; do sleep 0.1; done; while :; do cat /dev/zero; done")
				floods = append(floods, e.GetExecId())
			}
			d.docker("exec", "agbox-primary-"+culprit, "touch", "/tmp/go") // all were accepted
			d.refusesNew(other)
			d.eventually("the disk is full", func() error {
				err := os.WriteFile(d.data+"/more", make([]byte, 512<<10), 0o600)
				_ = os.Remove(d.data + "/more") // it may not be there
				if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
					return errors.Join(errors.New("there is room, or another trouble"), err)
				}
				return nil
			})
			d.docker("exec", "agbox-primary-"+other, "touch", "/tmp/go")
			d.halt(third)
			if st := d.ended(cut); st.GetState() != ended {
				t.Errorf("the stopped one's exec: %v", st)
			}
			if st := d.ended(ends); st.GetExitCode() != 7 || st.GetState() != ruined {
				t.Errorf("the other's exec: %v", st)
			}
			d.restart()
			d.halt(culprit)
			for _, id := range floods {
				if st := d.ended(id); st.GetState() != ended {
					t.Errorf("the writer: %v", st)
				}
			}
			d.remove(culprit)
			d.recovers(other)
			d.resume(third)
			d.sh(third, "true")
			d.remove(third)
			d.remove(other)
		})
	}
}

// TestKilledWhileTheBallastIsReleasedAndMade: each kill leaves a daemon that starts, and a ballast that is whole once there is room. The
// list of points comes from the source: an operation on the disk that this test does not reach fails it.
func TestKilledWhileTheBallastIsReleasedAndMade(t *testing.T) {
	t.Parallel()
	d := newDisk(t, noQuota+"[disk]\nreserve = \"2MiB\"\n", withQuota)
	id := d.create(nil)
	d.await(id, ready)
	d.kill()
	if err := os.RemoveAll(d.ballast()); err != nil {
		t.Fatal(err)
	}
	faults := t.TempDir()
	d.program, d.env = faultyDaemon(t), append(d.env, fault.EnvDir+"="+faults)
	making := []string{"disk.make_ballast.before", "disk.fill_ballast.before", "disk.fill_ballast.after", "disk.make_ballast.after"}
	for _, point := range making {
		d.diesAt(faults, point, d.launch)
	}
	d.start()
	d.wholeBallast()
	for _, point := range []string{"disk.release_ballast.before", "disk.release_ballast.after"} {
		var empty func()
		d.diesAt(faults, point, func() { // by a change on a full disk
			d.restart()
			d.wholeBallast()
			empty = stuff(t, d.data)
			_, _ = d.StopSandbox(d.ctx(), &agboxv1.StopSandboxRequest{SandboxId: id}) // its answer is lost
		})
		d.start()
		d.halt(id)
		empty()
		d.wholeBallast()
		d.resume(id)
		d.await(id, ready)
	}
	d.sh(id, "true")
	d.remove(id)
	fired := strings.Fields(d.read(filepath.Join(faults, "done")))
	for _, point := range diskPoints(t) {
		if !slices.Contains(fired, point) {
			t.Errorf("never killed at %s", point)
		}
	}
}

func (d *disk) ballast() string { return filepath.Join(d.data, "agents-sandbox", "ballast") }

// diesAt has the daemon die at a point during do.
func (d *disk) diesAt(faults, point string, do func()) {
	d.Helper()
	plan := must(os.OpenFile(filepath.Join(faults, "plan"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(d)
	_, err := plan.WriteString(point + " kill\n")
	if err = errors.Join(err, plan.Close()); err != nil {
		d.Fatal(err)
	}
	do()
	select {
	case <-d.done:
	case <-d.ctx().Done():
		d.Fatalf("the daemon does not come to %s", point)
	}
}

// wholeBallast waits until the ballast holds what it is to hold.
func (d *disk) wholeBallast() {
	d.Helper()
	d.eventually("the ballast is whole", func() error {
		pieces, err := os.ReadDir(d.ballast())
		if err != nil {
			return err
		}
		held := int64(0)
		for _, p := range pieces {
			var st syscall.Stat_t
			if err := syscall.Stat(filepath.Join(d.ballast(), p.Name()), &st); err != nil {
				return err
			}
			held += st.Blocks * 512
		}
		if held < 2<<20 {
			return fmt.Errorf("it holds %d bytes", held)
		}
		return nil
	})
}
