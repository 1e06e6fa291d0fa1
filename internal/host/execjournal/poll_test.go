package execjournal

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// quietDir returns a Dir that polls the log directory of box1, which has not changed for an hour.
func quietDir(t *testing.T) (d *Dir, logs string) {
	t.Helper()
	root := t.TempDir()
	d = New(root, root)
	logs = filepath.Join(root, "box1")
	must(t, os.Mkdir(logs, 0o700))
	must(t, os.Chtimes(logs, time.Now(), time.Now().Add(-time.Hour)))
	must(t, d.AddWatch("box1"))
	return d, logs
}

// TestDirectoriesWithoutAWatchArePolled: changes are reported, also two within one tick of the directory's mtime.
// TestPollsSlowDown covers the delay.
func TestDirectoriesWithoutAWatchArePolled(t *testing.T) {
	d, dir := quietDir(t)
	told := make(chan time.Time, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.poll(ctx, func(string, string) { told <- time.Now() })
	}()
	defer func() { cancel(); <-done }()
	time.Sleep(300 * time.Millisecond) // three polls at least: the absence of reports cannot be waited for
	if n := len(told); n > 0 {
		t.Errorf("%d changes of a quiet directory", n)
	}
	for i := range 20 {
		begun := time.Now()
		d.pollSoon("box1")
		must(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))), nil, 0o600))
		for at := range told {
			if !at.Before(begun) {
				break
			}
		}
	}
	d.forgetWatch("box1")
	if n := d.Unwatched(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestPollsSlowDown: polls slow down, and are fast again after pollSoon.
func TestPollsSlowDown(t *testing.T) {
	d, dir := quietDir(t)
	now, looks := time.Now(), 0
	for end := now.Add(10 * time.Second); now.Before(end); looks++ {
		changed, next := d.pollDue(now)
		if len(changed) > 0 {
			t.Fatal("a change was reported for an unchanged directory")
		}
		now = now.Add(next)
	}
	if looks > 130 {
		t.Errorf("%d looks in 10 s", looks)
	}
	if _, next := d.pollDue(now); next > pollLatest {
		t.Errorf("the next look is in %s", next)
	}
	must(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	if changed, next := d.pollDue(now.Add(pollLatest)); len(changed) != 1 || next > pollSoonest {
		t.Errorf("%v, %s", changed, next)
	}
}

// TestAChangeAtTheTimeOfAnotherIsReportedByALatePoll: two changes have one mtime, and the first poll is between them.
func TestAChangeAtTheTimeOfAnotherIsReportedByALatePoll(t *testing.T) {
	d, dir := quietDir(t)
	tick := time.Now()
	change := func(name string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		must(t, os.Chtimes(dir, tick, tick))
	}
	change("one")
	if changed, _ := d.pollDue(tick.Add(time.Millisecond)); len(changed) != 1 {
		t.Fatalf("the first change: %v", changed)
	}
	change("two")
	late := tick.Add(time.Second) // the host was busy
	if changed, _ := d.pollDue(late); len(changed) != 1 {
		t.Errorf("the second change: %v", changed)
	}
	if changed, _ := d.pollDue(late.Add(pollLatest)); len(changed) != 0 {
		t.Errorf("no change: %v", changed)
	}
}

// TestARefusedWatchIsRequestedAgain: the directory is polled until the kernel grants its watch.
func TestARefusedWatchIsRequestedAgain(t *testing.T) {
	d, _ := quietDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Watch(ctx, func(string, string) {}) }()
	defer func() { cancel(); must(t, <-done) }()
	await := func(want int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); d.Unwatched() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d directories are polled, want %d", d.Unwatched(), want)
			}
		}
	}
	await(0)
	d.mu.Lock()
	d.watched["box1"].refused, d.watched["box1"].asked = true, time.Time{}
	d.mu.Unlock()
	d.wake()
	await(0)
}
