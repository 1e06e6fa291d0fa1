package main

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAPromiseFailsAtItsBound(t *testing.T) {
	for got, broken := range map[time.Duration]bool{0: false, 19999 * time.Microsecond: false, 20 * time.Millisecond: true, time.Second: true} {
		if err := below("a prompt", got, 20*time.Millisecond); (err != nil) != broken {
			t.Errorf("%s: %v", got, err)
		}
	}
	err := below("a prompt", 21*time.Millisecond, 20*time.Millisecond)
	if want := "promise broken: a prompt: 21ms, and less than 20ms is promised"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestTheClockOfAProcessIsThatOfAllItsThreads compares it with the kernel's CPU clock of the test process, before and after.
func TestTheClockOfAProcessIsThatOfAllItsThreads(t *testing.T) {
	own := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	before := own()
	got, err := cpu(os.Getpid())
	if after := own(); err != nil || got < before || got > after {
		t.Errorf("got %s, %v, want between %s and %s", got, err, before, after)
	}
	if _, err := cpu(1 << 22); err == nil { // larger than every process ID
		t.Error("there is no such process, and no error")
	}
}
