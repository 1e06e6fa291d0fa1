package unixsocket_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agbox/agbox/internal/host/unixsocket"
)

func TestListen(t *testing.T) {
	for _, row := range []struct {
		mode      os.FileMode
		group     int
		wantDir   os.FileMode
		wantGroup int
	}{
		{0o600, 4242, 0o700, os.Getgid()},
		{0o660, unixsocket.Keep, 0o710, os.Getgid()},
		{0o660, 4242, 0o710, 4242},
	} {
		if row.wantGroup != os.Getgid() && os.Getuid() != 0 {
			continue // only root gives files to another group
		}
		dir, err := os.MkdirTemp("", "agbox") // t.TempDir() is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "s")
		for range 2 { // the second one replaces the file that the first one leaves
			l, err := unixsocket.Listen(path, row.mode, row.group)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			wantMode(t, path, row.mode, row.wantGroup)
			wantMode(t, dir, row.wantDir, row.wantGroup)
		}
	}
	if _, err := unixsocket.Listen("/nonexistent/s", 0o600, unixsocket.Keep); err == nil {
		t.Error("a socket in a directory that does not exist: no error")
	}
}

func wantMode(t *testing.T, path string, mode os.FileMode, group int) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != mode || int(got.Gid) != group {
		t.Errorf("%s has mode %o and group %d, want %o and %d", path, info.Mode().Perm(), got.Gid, mode, group)
	}
}
