package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSystemdDoesNotRestartADrainedDaemon: an exit with 0 is only ever asked for, as by "agbox drain --exit" before a reboot; a
// restart then would bring the parked agents back. systemd counts a SIGPIPE as clean, and a Go program dies of it when its stderr
// is gone, without a request.
func TestSystemdDoesNotRestartADrainedDaemon(t *testing.T) {
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

// TestSystemPathsAreThoseOfTheUnit: commands that root runs find the service's files by SystemPaths.
func TestSystemPathsAreThoseOfTheUnit(t *testing.T) {
	unit, err := os.ReadFile("systemd/agboxd.service")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(unit)) {
		if list, ok := strings.CutPrefix(line, "Environment="); ok {
			for field := range strings.FieldsSeq(list) {
				key, value, _ := strings.Cut(field, "=")
				env[key] = value
			}
		}
	}
	got, err := ResolvePaths(func(key string) string { return env[key] }, 0)
	if err != nil || got != SystemPaths() {
		t.Errorf("the unit has %+v, %v", got, err)
	}
	if env["HOME"] == "" {
		t.Error("no HOME")
	}
}

// TestTheUnitStartsWithTheRightTimeAndMayAskForIt: ProtectClock filters adjtimex, by which the daemon learns whether the clock is
// synchronised, together with the calls that set it.
func TestTheUnitStartsWithTheRightTimeAndMayAskForIt(t *testing.T) {
	unit, err := os.ReadFile("systemd/agboxd.service")
	if err != nil {
		t.Fatal(err)
	}
	var after []string
	for line := range strings.Lines(string(unit)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "After":
			after = append(after, strings.Fields(value)...)
		case "ProtectClock":
			t.Errorf("%s", line)
		}
	}
	if !slices.Contains(after, "time-sync.target") {
		t.Errorf("it starts after %q", after)
	}
}
