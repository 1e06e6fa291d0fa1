//go:build faults

package hostclock

import (
	"cmp"
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

// change is a Change with its durations parsed.
type change struct {
	Change
	step, slept time.Duration
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
		fmt.Fprintf(os.Stderr, "%s: parse the clock's change: %v\n", path, err)
		return change{}
	}
	return c
}

func parse(data []byte) (c change, err error) {
	if err = json.Unmarshal(data, &c.Change); err == nil {
		c.step, err = time.ParseDuration(cmp.Or(c.Step, "0"))
	}
	if err == nil {
		c.slept, err = time.ParseDuration(cmp.Or(c.Slept, "0"))
	}
	return c, err
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
	if c.BootID != "" {
		t.BootID = c.BootID
	}
	if c.Synced != nil {
		t.Synced = *c.Synced
	}
	return t
}
