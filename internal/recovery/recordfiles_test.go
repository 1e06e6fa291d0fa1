package recovery_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox/agbox/internal/recovery"
)

// TestTheRecordFilesOfEarlierVersionsGo: no other file is removed.
func TestTheRecordFilesOfEarlierVersionsGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data[1]")
	stays := []string{"ids.db", "log/segment-00000001", "s/0123456789abcdef/ctl/exec/x.json", "s/0123456789abcdef/out/record"}
	goes := []string{"s/0123456789abcdef/record", "s/0123456789abcdef/execs", "s/0123456789abcdef/.execs.tmp", "agents/abc", "agents/removed"}
	for _, name := range append(stays, goes...) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := (recovery.Site{DataDir: dir}).RemoveRecordFiles(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range stays {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range append(goes, "agents") {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}
