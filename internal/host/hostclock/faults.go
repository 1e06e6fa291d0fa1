//go:build faults

package hostclock

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// EnvFile names the environment variable with the path of a file that changes the clocks of this process only: the host's
// clocks stay unchanged. The file is read at each reading, so a test steps the clock by renaming a complete file to that
// path. It holds a Change in JSON, such as
//
//	{"step": "48h"}
//	{"slept": "8h", "synced": true}
//
// A missing or empty file, or one that does not parse (which is reported on stderr), changes nothing.
const EnvFile = "AGBOX_FAULT_CLOCK"

// Change is the content of the file that EnvFile names.
type Change struct {
	// Step is the error of the wall clock, as a Go duration.
	Step string `json:"step,omitempty"`
	// Slept is how long the host has been suspended so far, as a Go duration: the wall clock and CLOCK_BOOTTIME advanced,
	// CLOCK_MONOTONIC did not.
	Slept string `json:"slept,omitempty"`
	// BootID replaces the kernel's, as after a reboot.
	BootID string `json:"boot_id,omitempty"`
	// Synced replaces the kernel's report whether the clock is synchronised; absent: the kernel's own.
	Synced *bool `json:"synced,omitempty"`
}

type change struct {
	step, slept time.Duration
	bootID      string
	synced      *bool
}

func injected() change {
	path := os.Getenv(EnvFile)
	if path == "" {
		return change{}
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) == 0 {
		return change{}
	}
	c, err := parse(data)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
	}
	return c
}

func parse(data []byte) (change, error) {
	var f Change
	if err := json.Unmarshal(data, &f); err != nil {
		return change{}, fmt.Errorf("parse the clock's change: %w", err)
	}
	c := change{bootID: f.BootID, synced: f.Synced}
	for text, to := range map[*string]*time.Duration{&f.Step: &c.step, &f.Slept: &c.slept} {
		if *text == "" {
			continue
		}
		d, err := time.ParseDuration(*text)
		if err != nil {
			return change{}, fmt.Errorf("parse the clock's change: %w", err)
		}
		*to = d
	}
	return c, nil
}

// now drops the monotonic part when the clock was changed, so that differences are those of the changed clock.
func (c change) now(t time.Time) time.Time {
	if c.step == 0 && c.slept == 0 {
		return t
	}
	return t.Round(0).Add(c.step + c.slept)
}

func (c change) times(t Times) Times {
	t.Wall, t.SinceBoot = t.Wall.Add(c.step+c.slept), t.SinceBoot+c.slept
	if c.bootID != "" {
		t.BootID = c.bootID
	}
	if c.synced != nil {
		t.Synced = *c.synced
	}
	return t
}
