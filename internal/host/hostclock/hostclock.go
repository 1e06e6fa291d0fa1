// Package hostclock reads the clocks of the host. In a build with the tag "faults", which no release has, a file can change
// the clocks of this process; see faults.go.
package hostclock

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxApart is the longest that one reading of all clocks may take; a longer one is retried.
const (
	maxApart = 10 * time.Millisecond
	tries    = 5
)

// Times are the clocks of the host, read at one moment.
type Times struct {
	// Wall is the wall clock, without Go's monotonic part.
	Wall time.Time
	// SinceBoot is CLOCK_BOOTTIME, which counts while the host is suspended; Awake is CLOCK_MONOTONIC, which does not.
	SinceBoot, Awake time.Duration
	// BootID is the kernel's boot ID, or a changed one in a build with faults.
	BootID string
	// Synced: the kernel reports the wall clock as synchronised. False when it does not report it, as under a seccomp filter.
	Synced bool
}

// Clock reads the clocks. Create one with Open.
type Clock struct{ bootID string }

// Open reads the boot ID, and checks that the clocks can be read.
func Open() (*Clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read the boot ID: %w", err)
	}
	for _, id := range []int32{unix.CLOCK_BOOTTIME, unix.CLOCK_MONOTONIC} {
		if _, err := read(id); err != nil {
			return nil, err
		}
	}
	return &Clock{strings.TrimSpace(string(boot))}, nil
}

// BootID is the kernel's boot ID.
func (c *Clock) BootID() string { return c.bootID }

// Now is the wall clock, with Go's monotonic part.
func (c *Clock) Now() time.Time { return injected().now(time.Now()) }

// Read reads all clocks.
func (c *Clock) Read() Times {
	var t Times
	for range tries {
		before := since(unix.CLOCK_BOOTTIME)
		t = Times{Wall: time.Now().Round(0), SinceBoot: since(unix.CLOCK_BOOTTIME), Awake: since(unix.CLOCK_MONOTONIC), BootID: c.bootID}
		if t.SinceBoot-before < maxApart && since(unix.CLOCK_BOOTTIME)-before < maxApart {
			break
		}
	}
	t.Synced = synced()
	return injected().times(t)
}

func synced() bool {
	var t unix.Timex // with no modes it only reads
	_, err := unix.Adjtimex(&t)
	return err == nil && isSynced(t.Status)
}

// isSynced reports whether the status of the kernel's clock means that it is synchronised.
func isSynced(status int32) bool { return status&unix.STA_UNSYNC == 0 }

// since reads a clock that Open has found readable.
func since(id int32) time.Duration {
	d, _ := read(id)
	return d
}

func read(id int32) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, fmt.Errorf("read clock %d: %w", id, err)
	}
	return time.Duration(ts.Nano()), nil
}
