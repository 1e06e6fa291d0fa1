package execjournal

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDirectoriesWithoutAWatchArePolled: changes are reported, also two within one tick of the directory's mtime.
// TestPollsSlowDown covers the delay.
func TestDirectoriesWithoutAWatchArePolled(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chtimes(dir, time.Now(), time.Now().Add(-time.Hour)))
	p := newPoller()
	p.add("box1", dir)
	told := make(chan time.Time, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx, func(string) { told <- time.Now() })
	}()
	defer func() { cancel(); <-done }()
	time.Sleep(300 * time.Millisecond) // three polls at least: the absence of reports cannot be waited for
	if n := len(told); n > 0 {
		t.Errorf("%d changes of a quiet directory", n)
	}
	for i := range 20 {
		begun := time.Now()
		p.pollSoon("box1")
		must(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))), nil, 0o600))
		for at := range told {
			if !at.Before(begun) {
				break
			}
		}
	}
	p.remove("box1")
	if ids := p.ids(); len(ids) != 0 {
		t.Errorf("left: %v", ids)
	}
}

// TestPollsSlowDown: polls slow down, and are fast again after pollSoon.
func TestPollsSlowDown(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chtimes(dir, time.Now(), time.Now().Add(-time.Hour)))
	p := newPoller()
	p.add("box1", dir)
	now, looks := time.Now(), 0
	for end := now.Add(10 * time.Second); now.Before(end); looks++ {
		changed, next := p.pollDue(now)
		if len(changed) > 0 {
			t.Fatal("a change was reported for an unchanged directory")
		}
		now = now.Add(next)
	}
	if looks > 130 {
		t.Errorf("%d looks in 10 s", looks)
	}
	if _, next := p.pollDue(now); next > pollLatest {
		t.Errorf("the next look is in %s", next)
	}
	must(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	if changed, next := p.pollDue(now.Add(pollLatest)); len(changed) != 1 || next > pollSoonest {
		t.Errorf("%v, %s", changed, next)
	}
}

// TestAChangeAtTheTimeOfAnotherIsReportedByALatePoll: two changes have one mtime, and the first poll is between them.
func TestAChangeAtTheTimeOfAnotherIsReportedByALatePoll(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chtimes(dir, time.Now(), time.Now().Add(-time.Hour)))
	p := newPoller()
	p.add("box1", dir)
	tick := time.Now()
	change := func(name string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		must(t, os.Chtimes(dir, tick, tick))
	}
	change("one")
	if changed, _ := p.pollDue(tick.Add(time.Millisecond)); len(changed) != 1 {
		t.Fatalf("the first change: %v", changed)
	}
	change("two")
	late := tick.Add(time.Second) // the host was busy
	if changed, _ := p.pollDue(late); len(changed) != 1 {
		t.Errorf("the second change: %v", changed)
	}
	if changed, _ := p.pollDue(late.Add(pollLatest)); len(changed) != 0 {
		t.Errorf("no change: %v", changed)
	}
}
