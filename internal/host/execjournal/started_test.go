package execjournal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/containerd/errdefs"
)

func TestStartedReadsTheReportOfTheRun(t *testing.T) {
	d, _ := newDir(t)
	logs := d.Paths("box1").Logs
	want := func(reported bool, why string) {
		t.Helper()
		s, err := d.Started("box1")
		if err != nil || s.Reported != reported || s.Error != why {
			t.Errorf("%+v, %v; want %t, %q", s, err, reported, why)
		}
	}
	report := func(s Start) {
		t.Helper()
		if err := withDir(logs, func(fd int) error { return Report(fd, s) }); err != nil {
			t.Fatal(err)
		}
	}
	want(false, "")
	report(Start{})
	want(true, "")
	if info, err := os.Stat(filepath.Join(logs, StartedName)); err != nil || info.Size() != 0 {
		t.Errorf("an ordinary start needs a disk block: %v, %v", info, err)
	}
	report(Start{Error: "no\nsuch user"})
	want(true, "no?such user")
	if err := d.Withhold("box1"); err != nil {
		t.Fatal(err)
	}
	want(false, "")
	if _, err := d.Started(".."); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}

// The sandbox's root may put anything there; only a sandbox that runs can.
func TestAForgedReportIsThatOfAnOrdinaryStart(t *testing.T) {
	d, _ := newDir(t)
	path := filepath.Join(d.Paths("box1").Logs, StartedName)
	for name, make := range map[string]func() error{
		"no JSON":         func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"another version": func() error { return os.WriteFile(path, []byte(`{"version":9,"error":"x"}`), 0o600) },
		"control codes":   func() error { return os.WriteFile(path, []byte(`{"version":1,"error":"\u001b[2J"}`), 0o600) },
		"a long error": func() error {
			return os.WriteFile(path, []byte(`{"version":1,"error":"`+strings.Repeat("x", 600)+`"}`), 0o600)
		},
		"a huge file":      func() error { return os.WriteFile(path, nil, 0o600) },
		"a FIFO":           func() error { return unix.Mkfifo(path, 0o600) },
		"a directory":      func() error { return os.Mkdir(path, 0o700) },
		"a link elsewhere": func() error { return os.Symlink("/etc/shadow", path) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if name == "a huge file" {
			if err := os.Truncate(path, 1<<40); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := d.Started("box1"); err != nil || s != (Start{Reported: true}) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
