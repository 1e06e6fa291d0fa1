package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// S6: a daemon that exits without a kill is reported unless the disk is full; one that the storm kills is not.
func TestADaemonThatEndsByItselfIsReported(t *testing.T) {
	for name, row := range map[string]struct {
		program string
		disk    func(*disk)
		ends    bool
		want    string
	}{
		"it runs":                    {"exec sleep 1000", func(*disk) {}, false, ""},
		"it ends":                    {"exec sleep 0.1", func(*disk) {}, true, "the daemon ended by itself"},
		"it ends on a full disk":     {"exec sleep 0.1", (*disk).fills, true, ""},
		"it ends long after that":    {"exec sleep 0.1", func(d *disk) { d.fills(); d.hasRoom(time.Now().Add(-time.Minute)) }, true, "the daemon ended by itself"},
		"it ends right after that":   {"exec sleep 0.1", func(d *disk) { d.fills(); d.hasRoom(time.Now()) }, true, ""},
		"it is killed, and runs on":  {"test -e killed && exec sleep 1000; touch killed; exec sleep 999", func(*disk) {}, false, ""},
		"it is killed, then it ends": {"test -e killed && exec sleep 0.1; touch killed; exec sleep 999", func(*disk) {}, true, "the daemon ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			s := &storm{book: newBook(), site: &site{home: home}}
			s.daemon = &daemon{site: s.site}
			if err := os.Mkdir(s.site.bin(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(s.site.bin(), "agboxd"), []byte("#!/bin/sh\ncd "+home+"\n"+row.program+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := s.daemon.start(); err != nil {
				t.Fatal(err)
			}
			defer s.daemon.end()
			row.disk(&s.disk)
			if row.program[:4] == "test" {
				awaitFile(t, filepath.Join(home, "killed"))
				if err := s.daemon.kill(0); err != nil {
					t.Fatal(err)
				}
			}
			s.watchUntil(t, row.ends)
			s.book.wantProblem(t, row.want)
		})
	}
}

// awaitFile waits for a file that the program creates in its first run.
func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond) // polls: a shell script creates the file without a notification
	}
	t.Fatalf("%s was not made", path)
}

// watchUntil watches until the daemon has exited once without a kill. If it must not exit, watchUntil checks a few times, because nothing
// announces that it will not.
func (s *storm) watchUntil(t *testing.T, ends bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- s.watch(ctx) }()
	deadline := time.Now().Add(30 * time.Second)
	if !ends {
		deadline = time.Now().Add(3 * watchEvery)
	}
	for !s.endedByItself() && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond) // polls: the watch sets the flag endedByItself and has no channel
	}
	cancel()
	if err := <-watched; err != nil {
		t.Fatal(err)
	}
	if s.endedByItself() != ends {
		t.Errorf("the daemon ended by itself: %t", !ends)
	}
}

func (s *storm) endedByItself() bool {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	return s.book.counts["ends of the daemon by itself"] > 0
}
