package hostclock

import (
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestReadTheHostsClocks(t *testing.T) {
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	a := c.Read()
	time.Sleep(20 * time.Millisecond) // the interval that the clocks must show
	b := c.Read()
	if a.BootID == "" || a.BootID != b.BootID || a.BootID != c.BootID() {
		t.Errorf("boot IDs %q, %q", a.BootID, b.BootID)
	}
	if d := c.Now().Sub(b.Wall); d < 0 || d > 10*time.Second {
		t.Errorf("Now is %v after the previous reading", d)
	}
	for what, d := range map[string]time.Duration{
		"wall": b.Wall.Sub(a.Wall), "since boot": b.SinceBoot - a.SinceBoot, "awake": b.Awake - a.Awake,
	} {
		if d < 20*time.Millisecond || d > 10*time.Second {
			t.Errorf("%s went on by %v", what, d)
		}
	}
	if apart := b.Wall.Add(-b.SinceBoot).Sub(a.Wall.Add(-a.SinceBoot)).Abs(); apart > maxApart {
		t.Errorf("the time of the boot differs by %v", apart)
	}
}

// TestSyncedIsTheKernels compares with a system call of the test's own, which fails under a seccomp filter. The bit is STA_UNSYNC of adjtimex(2).
func TestSyncedIsTheKernels(t *testing.T) {
	const unsynced = 0x40
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	raw := func() bool {
		var tx unix.Timex
		_, _, errno := unix.Syscall(unix.SYS_ADJTIMEX, uintptr(unsafe.Pointer(&tx)), 0, 0)
		return errno == 0 && tx.Status&unsynced == 0
	}
	for range tries { // it may change between two readings
		before, got, after := raw(), c.Read().Synced, raw()
		if before == after {
			if got != before {
				t.Errorf("Synced is %v, the kernel says %v", got, before)
			}
			break
		}
	}
	for status, want := range map[int32]bool{0: true, 0x2001: true, unsynced: false, 0x2001 | unsynced: false} {
		if isSynced(status) != want {
			t.Errorf("status %#x: %v", status, !want)
		}
	}
}
