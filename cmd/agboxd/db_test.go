package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agbox/agbox/internal/backup"
	"github.com/agbox/agbox/store/storetest"
)

func TestDBCheck(t *testing.T) {
	p := newPlace(t)
	if code, _, errs := outcome("db", "check"); code != exitRuntime || !strings.Contains(errs, "no such file") {
		t.Errorf("no database: %d %q", code, errs)
	}
	p.add("one1")
	if code, out, errs := outcome("db", "check"); code != exitOK || errs != "" || out != p.paths.Database+": ok\n" {
		t.Errorf("a good one: %d %q %q", code, out, errs)
	}
	s := p.open()
	if code, _, errs := outcome("db", "check"); code != exitRuntime || !strings.Contains(errs, "another process has it open") {
		t.Errorf("beside a daemon: %d %q", code, errs)
	}
	p.must(s.Close())
	storetest.Put(t, p.paths.Database, "sandbox-config", "one1", []byte("\xff"))
	storetest.Put(t, p.paths.Database, "sandbox-names", "free", []byte{})
	code, out, errs := outcome("db", "check")
	if code != exitRuntime || !strings.Contains(errs, "2 findings") || strings.Count(out, "\n") != 2 ||
		!strings.Contains(out, "sandbox-config/one1: decode CreateSpec") || !strings.Contains(out, `I3 name free: sandbox "" holds it, which is not live`) {
		t.Errorf("damaged records: %d %q %q", code, out, errs)
	}
	other := filepath.Join(t.TempDir(), "other.db")
	p.must(os.WriteFile(other, []byte(strings.Repeat("no database ", 1000)), 0o600))
	if code, out, errs := outcome("db", "check", other); code != exitRuntime || out != "" || !strings.Contains(errs, other) {
		t.Errorf("no database: %d %q %q", code, out, errs)
	}
}

func TestDBCompact(t *testing.T) {
	p := newPlace(t)
	if code, _, errs := outcome("db", "compact"); code != exitRuntime || !strings.Contains(errs, "no such file") {
		t.Errorf("no database: %d %q", code, errs)
	}
	p.add("one1")
	code, out, errs := outcome("db", "compact")
	if code != exitOK || errs != "" || !strings.Contains(out, "bytes before") {
		t.Fatalf("%d %q %q", code, out, errs)
	}
	p.wants("compacted", "one1")
	if code, out, _ := outcome("db", "check"); code != exitOK {
		t.Errorf("%d %q", code, out)
	}
}

func TestACompactionSurvivesADeathAtEachStep(t *testing.T) {
	for _, at := range []string{"check the old", "copy", "check the new", "install"} {
		t.Run(at, func(t *testing.T) {
			p := newPlace(t)
			p.add("one1")
			offline, release, err := lockDatabase(t.Context(), p.paths)
			p.must(err)
			c := &backup.Compaction{Offline: offline, Database: p.paths.Database, Check: backup.CheckInChild}
			c.After = func(step string) error {
				if step == at {
					return errCrash
				}
				return nil
			}
			if err := c.Run(t.Context()); !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			release()
			p.wants("after the crash", "one1")
			if code, _, errs := outcome("db", "compact"); code != exitOK {
				t.Errorf("again: %d %q", code, errs)
			}
			p.wants("compacted", "one1")
			if _, err := os.Stat(p.paths.Database + ".compact"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left behind: %v", err)
			}
		})
	}
}
