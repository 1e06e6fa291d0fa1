package execjournal

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestDirectoriesWithoutAWatchArePolled: changes are reported, also two within one tick of the directory's time. How soon is
// TestLooksSlowDown's.
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
	time.Sleep(300 * time.Millisecond) // three looks at least: that nothing is reported is not an event to wait for
	if n := len(told); n > 0 {
		t.Errorf("%d changes of a quiet directory", n)
	}
	for i := range 20 {
		begun := time.Now()
		p.stir("box1")
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

// TestLooksSlowDown and are soon again when something is about to happen.
func TestLooksSlowDown(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chtimes(dir, time.Now(), time.Now().Add(-time.Hour)))
	p := newPoller()
	p.add("box1", dir)
	now, looks := time.Now(), 0
	for end := now.Add(10 * time.Second); now.Before(end); looks++ {
		changed, next := p.look(now)
		if len(changed) > 0 {
			t.Fatal("a change of a quiet directory")
		}
		now = now.Add(next)
	}
	if looks > 130 {
		t.Errorf("%d looks in 10 s", looks)
	}
	if _, next := p.look(now); next > pollLatest {
		t.Errorf("the next look is in %s", next)
	}
	must(t, os.WriteFile(filepath.Join(dir, "x"), nil, 0o600))
	if changed, next := p.look(now.Add(pollLatest)); len(changed) != 1 || next > pollSoonest {
		t.Errorf("%v, %s", changed, next)
	}
}

// TestAChangeAtTheTimeOfAnotherIsReportedByALatePoll: both changes carry one time, and the first poll comes between them.
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
	if changed, _ := p.look(tick.Add(time.Millisecond)); len(changed) != 1 {
		t.Fatalf("the first change: %v", changed)
	}
	change("two")
	late := tick.Add(time.Second) // the host was busy
	if changed, _ := p.look(late); len(changed) != 1 {
		t.Errorf("the second change: %v", changed)
	}
	if changed, _ := p.look(late.Add(pollLatest)); len(changed) != 0 {
		t.Errorf("no change: %v", changed)
	}
}
