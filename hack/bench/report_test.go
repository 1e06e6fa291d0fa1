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

// TestARatioFailsAboveItsBound: the medians decide, and each row above its bound is named.
func TestARatioFailsAboveItsBound(t *testing.T) {
	times := func(ms ...int) (list []time.Duration) {
		for _, n := range ms {
			list = append(list, time.Duration(n)*time.Millisecond)
		}
		return list
	}
	atBound := row{what: "create", most: 1.25, agbox: times(125, 125, 9000), bare: times(100, 100, 1)}
	unbounded := row{what: "pause", agbox: times(900), bare: times(100)}
	if err := broken([]row{atBound, unbounded}); err != nil {
		t.Errorf("at the bound, and without one: %v", err)
	}
	exec := row{what: "exec", most: 0.5, agbox: times(51), bare: times(100)}
	stop := row{what: "stop", most: 1.5, agbox: times(151, 200, 1), bare: times(100)}
	err := broken([]row{atBound, exec, unbounded, stop})
	want := "promise broken: exec: 0.51 times the bare engine's 100ms, and at most 0.50 times is promised; if the machine was busy, run it again when it is idle\n" +
		"promise broken: stop: 1.51 times the bare engine's 100ms, and at most 1.50 times is promised; if the machine was busy, run it again when it is idle"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
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
