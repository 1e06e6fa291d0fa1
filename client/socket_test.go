package client

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheSystemServicesSocketIsFoundWhereTheUserHasNone(t *testing.T) {
	dir := t.TempDir()
	own, system := filepath.Join(dir, "own.sock"), filepath.Join(dir, "agbox", "agboxd.sock")
	if got := existing(own, system); got != own {
		t.Errorf("without both: %s", got)
	}
	if err := os.Mkdir(filepath.Dir(system), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := existing(own, system); got != system {
		t.Errorf("a service that starts: %s", got)
	}
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := existing(own, system); got != own {
		t.Errorf("with an own one: %s", got)
	}
}
