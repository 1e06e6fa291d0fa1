package execjournal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDropLogsTruncatesOnlyLogs(t *testing.T) {
	d, p := newDir(t)
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, []byte("host"), 0o644))
	text := strings.Repeat("x", 8192)
	for _, name := range []string{"e1.stdout.log", "e1.stderr.log", "_main.stdout.log", "agent.stdout.log", "e1.journal", "e1.lock", "other"} {
		write(t, p.Logs, name, text)
	}
	must(t, os.Symlink(outside, filepath.Join(p.Logs, "e2.stdout.log")))
	must(t, os.Mkdir(filepath.Join(p.Logs, "e3.stdout.log"), 0o755))
	for i, want := range []int64{3 * 8192, 0} {
		freed, err := d.DropLogs("box1", func(id string) bool { return id == "agent" })
		if err != nil || freed != want {
			t.Errorf("call %d: %d bytes, %v", i, freed, err)
		}
	}
	for name, want := range map[string]int{
		"e1.stdout.log": 0, "e1.stderr.log": 0, "_main.stdout.log": 0, "agent.stdout.log": 8192, "e1.journal": 8192, "e1.lock": 8192, "other": 8192,
		"e2.stdout.log": 4,
	} {
		if got, err := os.ReadFile(filepath.Join(p.Logs, name)); err != nil || len(got) != want {
			t.Errorf("%s has %d bytes, want %d (%v)", name, len(got), want, err)
		}
	}
	if freed, err := d.DropLogs("nobody", func(string) bool { return false }); err != nil || freed != 0 {
		t.Errorf("%d, %v", freed, err)
	}
}
