package fakehost

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/host/execjournal"
)

// The daemon takes the lock for a moment to see whether somebody holds it.
func TestALockThatIsLookedAtDelaysAStartAndNoMore(t *testing.T) {
	dir := t.TempDir()
	probe, err := os.Create(filepath.Join(dir, execjournal.LockName("exec")))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(probe.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	time.AfterFunc(20*time.Millisecond, func() { closed <- probe.Close() })
	f, err := newFence(dir, execjournal.Request{ExecID: "exec", Nonce: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-closed, f.free()); err != nil {
		t.Error(err)
	}
}
