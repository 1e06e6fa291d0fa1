package config

import (
	"os"
	"strings"
	"testing"
)

// TestTheUnitLeavesAloneWhatWasToldToEnd: an exit with 0 is only ever asked for, as by "agbox drain --exit" before a reboot; a
// restart then would bring the parked agents back. systemd counts a SIGPIPE as clean, and a Go program dies of it when its stderr
// is gone, which nobody asked for.
func TestTheUnitLeavesAloneWhatWasToldToEnd(t *testing.T) {
	unit, err := os.ReadFile("systemd/agboxd.service")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{}
	for line := range strings.Lines(string(unit)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			set[key] = value
		}
	}
	for key, want := range map[string]string{"Restart": "on-failure", "RestartForceExitStatus": "SIGPIPE", "StartLimitIntervalSec": "0"} {
		if set[key] != want {
			t.Errorf("%s=%s, want %s", key, set[key], want)
		}
	}
}
