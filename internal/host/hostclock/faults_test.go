//go:build faults

package hostclock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestEnvFileChangesTheClocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	t.Setenv(EnvFile, path)
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	before := c.Read()
	if err := os.WriteFile(path, []byte(`{"step": "-48h", "slept": "8h", "boot_id": "other", "synced": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	after := c.Read()
	if d := after.Wall.Sub(before.Wall) + 40*time.Hour; d < 0 || d > time.Minute {
		t.Errorf("the wall clock is off by %v", d)
	}
	if d := after.SinceBoot - before.SinceBoot - 8*time.Hour; d < 0 || d > time.Minute {
		t.Errorf("the time since boot is off by %v", d)
	}
	if d := after.Awake - before.Awake; d < 0 || d > time.Minute {
		t.Errorf("the time awake is off by %v", d)
	}
	if after.BootID != "other" || !after.Synced || time.Until(c.Now()) > -39*time.Hour {
		t.Errorf("%+v, now %v", after, c.Now())
	}
	for _, text := range []string{"", "{", `{"step": "soon"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d := c.Read().Wall.Sub(before.Wall); d < 0 || d > time.Minute {
			t.Errorf("%q changes the clock by %v", text, d)
		}
	}
}
