package recordfile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// fullDiskEnv names the directory that the child mounts its small file system on.
const fullDiskEnv = "AGBOX_RECORDFILE_FULL_DISK"

// fullDiskTest says which test's child it is.
const fullDiskTest = "AGBOX_RECORDFILE_FULL_DISK_TEST"

var fullDiskChildren = map[string]func(dir string) error{"sandboxes": fillTheDisk, "agents": fillTheDiskWithAgents}

func TestMain(m *testing.M) {
	if dir := os.Getenv(fullDiskEnv); dir != "" {
		if err := fullDiskChildren[os.Getenv(fullDiskTest)](dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestOnAFullDiskTheLastGoodStaysAndTheNewestComesWithSpace(t *testing.T) {
	onAFullDisk(t, "sandboxes")
}

// onAFullDisk runs a child in a mount namespace of its own: whatever happens, the file system goes with the process.
func onAFullDisk(t *testing.T, child string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fullDiskEnv+"="+t.TempDir(), fullDiskTest+"="+child)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "mount: operation not permitted") {
		t.Skip("mounting is not allowed here")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func fillTheDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil {
		return err
	}
	root := filepath.Join(dir, "s")
	var errs []error
	d := New(root, quiet(), func(err error) { errs = append(errs, err) })
	r := record("box", 0)
	r.ErrorMessage = strings.Repeat("x", 3000)
	var last *storev1.SandboxRecord
	execs := 0
	for range 300 { // far beyond what fits
		r = proto.CloneOf(r)
		r.LastSequence++
		d.Sandbox(r)
		if len(errs) == 0 {
			last = r
		}
		d.Exec("box", execRecord("box", execID(execs)))
		execs++
	}
	if len(errs) == 0 || !errors.Is(errs[0], syscall.ENOSPC) {
		return fmt.Errorf("errors are %v", errs)
	}
	found, _, err := ReadAll(root)
	if err != nil || len(found) != 1 || !proto.Equal(found[0].Record, last) || !found[0].Torn || !found[0].TornExecs {
		return fmt.Errorf("on the full disk, where it is behind: %v, want %d, %w", found, last.GetLastSequence(), err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	d.Flush() // what comes first may still find no space: a compaction then makes it
	d.Flush()
	if err := holds(root, r, execs); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	if d.boxes["box"].lateRecord != nil || len(d.boxes["box"].lateExecs) > 0 {
		return errors.New("what was written is still kept")
	}
	return nil
}

// holds checks what is in the files.
func holds(root string, r *storev1.SandboxRecord, execs int) error {
	found, problems, err := ReadAll(root)
	if err != nil || len(problems) > 0 || len(found) != 1 {
		return fmt.Errorf("%d found, problems %v, %w", len(found), problems, err)
	}
	if f := found[0]; !proto.Equal(f.Record, r) || len(f.Execs) != execs {
		return fmt.Errorf("found event %d with %d execs, want %d with %d", f.Record.GetLastSequence(), len(f.Execs), r.GetLastSequence(), execs)
	}
	return nil
}
