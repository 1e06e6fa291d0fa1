package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/testing/smalldisk"
)

// newSmallBox returns a box whose log directory is a file system of its own, of 256 KiB.
func newSmallBox(t *testing.T, args ...string) *box {
	t.Helper()
	b := newBox(t)
	smalldisk.Mount(t, b.paths.Logs, "size=256k,mode=755")
	b.args = args
	return b.boot()
}

func TestFullDiskDelaysButLosesNothing(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	r := b.start(b.sh("head -c 1000000 /dev/zero; echo end"))
	b.until("the disk to be full", func() bool {
		var st unix.Statfs_t
		must(t, unix.Statfs(b.paths.Logs, &st))
		return st.Bfree == 0
	})
	if s := b.look(r); s.Phase != execphase.Running {
		t.Fatalf("%v on a full disk", s.Phase)
	}
	must(t, unix.Mount("tmpfs", b.paths.Logs, "tmpfs", unix.MS_REMOUNT, "size=8m"))
	j := b.ended(r)
	out, _ := b.logs(r)
	if j.ExitCode != 0 || j.LogLost || len(out) != 1000004 || !strings.HasSuffix(out, "end\n") || j.StdoutBytes != 1000004 {
		t.Errorf("%d bytes, %+v", len(out), j)
	}
}

func TestFullDiskNeverKeepsACancelFromEnding(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	r := b.start(b.sh("cat /dev/zero"))
	b.until("the disk to be full", func() bool {
		var st unix.Statfs_t
		must(t, unix.Statfs(b.paths.Logs, &st))
		return st.Bfree == 0
	})
	b.cancel(r)
	if j := b.ended(r); !j.Cancelled || !j.LogLost {
		t.Errorf("%+v", j)
	}
	b.until("the supervisor to go", func() bool { return b.remnants() == 0 })
}

func TestFullDiskKeepsAResultWithoutOutput(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	r := b.start(b.sh("echo up; while ! test -e " + b.paths.Logs + "/filler; do sleep 0.02; done; sleep 0.2; exit 9"))
	b.says(r, "up\n")
	smalldisk.Fill(t, b.paths.Logs)
	if j := b.ended(r); j.ExitCode != 9 || j.LogLost {
		t.Errorf("%+v", j)
	}
}

func TestFullDiskStartsNothingUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	filler := smalldisk.Fill(t, b.paths.Logs)
	marker := filepath.Join(t.TempDir(), "ran")
	r := b.start(b.request("touch", marker))
	b.until("init to have tried", func() bool {
		_, err := os.Stat(filepath.Join(b.paths.Logs, execjournal.StdoutName(r.ExecID)))
		return err == nil
	})
	if s := b.look(r); s.Phase != execphase.NotStarted {
		t.Fatalf("%v on a full disk", s.Phase)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Fatal("it ran without a journal")
	}
	must(t, os.Remove(filler))
	if j := b.ended(r); j.ExitCode != 0 {
		t.Errorf("%+v", j)
	}
	b.read(marker)
}

func TestFullDiskKeepsTheMarkerForLater(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t)
	r := b.sh("head -c 1000000 /dev/zero; exit 9")
	r.LogLimitBytes, r.LogLimitAction = 500_000, execjournal.LogLimitDrop
	b.start(r)
	b.until("the disk to be full", func() bool {
		var st unix.Statfs_t
		must(t, unix.Statfs(b.paths.Logs, &st))
		return st.Bfree == 0
	})
	must(t, unix.Mount("tmpfs", b.paths.Logs, "tmpfs", unix.MS_REMOUNT, "size=8m"))
	j := b.ended(r)
	out, _ := b.logs(r)
	wantCut(t, out, 500_000, 1, 500_000, j.StdoutBytes)
	if j.ExitCode != 9 || j.LogLost || j.StdoutDroppedBytes != 500_000 {
		t.Errorf("%+v", j)
	}
}

func TestFullDiskDelaysTheEndOfTheMainProcessUntilTheStop(t *testing.T) {
	t.Parallel()
	b := newSmallBox(t, "--", "/bin/sh", "-c", "trap '' TERM; head -c 270000 /dev/zero; exit 9") // exits independently of the TERM
	b.until("the disk to be full", func() bool {
		var st unix.Statfs_t
		must(t, unix.Statfs(b.paths.Logs, &st))
		return st.Bfree == 0
	})
	select {
	case <-b.done:
		t.Fatal("output was given up")
	case <-time.After(2 * retryEvery):
	}
	b.signal(unix.SIGTERM)
	if code := b.exitCode(); code != 9 {
		t.Errorf("exit code %d", code)
	}
}

// TestACancelThatIsALinkToTheRequest: agboxd writes such a cancel when its own disk is full.
func TestACancelThatIsALinkToTheRequest(t *testing.T) {
	t.Parallel()
	b := newBox(t).boot()
	for _, r := range []execjournal.Request{b.sh("echo up; exec sleep 1000"), b.agent("echo up; exec sleep 1000")} {
		r = b.start(r)
		b.says(r, "up\n")
		exec := filepath.Join(b.paths.Ctl, execjournal.ExecDir)
		must(t, os.Link(filepath.Join(exec, execjournal.RequestName(r.ExecID)), filepath.Join(exec, execjournal.CancelName(r.ExecID))))
		if j := b.ended(r); !j.Cancelled {
			t.Errorf("%+v", j)
		}
	}
}

func TestAnEmptyJournalIsAFence(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.sh("touch " + b.paths.Logs + "/ran")
	must(t, os.WriteFile(filepath.Join(b.paths.Logs, execjournal.JournalName(r.ExecID)), nil, 0o644))
	b.boot().start(r)
	b.until("a later exec to have ended", func() bool { return b.ended(b.start(b.sh("true"))).ExitCode == 0 })
	if _, err := os.Stat(filepath.Join(b.paths.Logs, "ran")); err == nil {
		t.Error("it ran")
	}
}

func TestOutputThatAQuotaRefusedLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	smalldisk.Mount(t, dir, "size=4m")
	log := filepath.Join(dir, "log")
	must(t, os.WriteFile(log, nil, 0o600))
	logFD, err := unix.Open(log, unix.O_WRONLY|unix.O_APPEND, 0)
	must(t, err)
	defer unix.Close(logFD)
	dirFD, err := execjournal.OpenDir(dir)
	must(t, err)
	defer unix.Close(dirFD)
	filler := smalldisk.Fill(t, dir)
	st, err := os.Stat(filler)
	must(t, err)
	s := &stream{pipe: -1, log: logFD, dir: dirFD, pending: []byte("text"), yields: true}
	must(t, os.Truncate(filler, st.Size()-outputRoom/2))
	if s.flush(); len(s.pending) != 4 {
		t.Fatal("output took the space of others")
	}
	must(t, os.Remove(filler))
	s.flush()
	if got, err := os.ReadFile(log); err != nil || string(got) != "text" || len(s.pending) != 0 {
		t.Errorf("%q, %v; pending: %q", got, err, s.pending)
	}
}

// Programs keep the certificates that they trusted, until there is room for the new ones.
func TestFullDiskKeepsTheAuthority(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	smalldisk.Mount(t, b.paths.Out, "size=64k,mode=755")
	path := filepath.Join(b.paths.Out, execjournal.SecretsDir, execjournal.AuthoritySecret)
	put := func(others string) {
		t.Helper()
		s := execjournal.Secret{Value: []byte("authority\n"), Others: []byte(others), Roots: true}
		must(t, b.dir.PutSecret(sandbox, "", execjournal.AuthoritySecret, s))
	}
	bundle := filepath.Join(t.TempDir(), "bundle")
	must(t, os.WriteFile(bundle, []byte("one"), 0o600))
	put("")
	b.args = []string{"--bundle=" + bundle}
	b.boot()
	b.shows(path, "one\nauthority\n")
	large := strings.Repeat("x", 100<<10)
	must(t, os.WriteFile(bundle, []byte(large), 0o600))
	b.until("the problem", func() bool {
		return strings.Contains(strings.Join(b.dir.SecretProblems(sandbox), ""), "no space left on device")
	})
	if got, err := os.ReadFile(path); err != nil || string(got) != "one\nauthority\n" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	must(t, unix.Mount("tmpfs", b.paths.Out, "tmpfs", unix.MS_REMOUNT, "size=8m"))
	b.shows(path, large+"\nauthority\n")
	b.until("no problem", func() bool { return b.dir.SecretProblems(sandbox) == nil })
	b.stop()
}
