package dockerx

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/docker/docker/api/types/container"
)

func TestHealthInAList(t *testing.T) {
	for status, want := range map[string]Health{
		"Up 3 seconds (health: starting)":   HealthStarting,
		"Up 2 hours (healthy)":              HealthHealthy,
		"Up Less than a second (unhealthy)": HealthUnhealthy,
		"Up 5 minutes":                      HealthNone,
		"":                                  HealthNone,
	} {
		if got := listedHealth(StateRunning, status); got != want {
			t.Errorf("%q: %q", status, got)
		}
	}
	for _, s := range []State{StatePaused, StateExited, StateCreated} {
		if got := listedHealth(s, "Up 5 minutes (healthy)"); got != HealthNone {
			t.Errorf("%s: %q", s, got)
		}
	}
}

func TestListedEndedWell(t *testing.T) {
	for status, want := range map[string]bool{
		"Exited (0) 5 minutes ago": true, "Exited (137) 2 hours ago": false, "Created": false, "Up 5 minutes": false, "": false,
	} {
		if got := listedEndedWell(StateExited, status); got != want {
			t.Errorf("%q: %t", status, got)
		}
	}
	if listedEndedWell(StateRunning, "Exited (0) 1 second ago") {
		t.Error("one that runs")
	}
}

func TestHealthOfARun(t *testing.T) {
	started := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	probe := func(after time.Duration, output string) *container.HealthcheckResult {
		return &container.HealthcheckResult{Start: started.Add(after), Output: output}
	}
	log := func(status string, probes ...*container.HealthcheckResult) *container.Health {
		streak := 0
		for _, p := range probes {
			if p != nil && p.ExitCode != 0 {
				streak++
			}
		}
		return &container.Health{Status: status, FailingStreak: streak, Log: probes}
	}
	bad := func(after time.Duration, output string) *container.HealthcheckResult {
		return &container.HealthcheckResult{Start: started.Add(after), Output: output, ExitCode: 1}
	}
	thrice := &Healthcheck{}
	for name, tc := range map[string]struct {
		raw     *container.Health
		check   *Healthcheck
		running bool
		health  Health
		output  string
	}{
		"no healthcheck":                {nil, nil, true, HealthNone, ""},
		"a healthcheck of NONE":         {log("none"), thrice, true, HealthNone, ""},
		"before the first probe":        {log("starting"), thrice, true, HealthStarting, ""},
		"a probe of an earlier run":     {log("starting", probe(-time.Second, "old")), thrice, true, HealthStarting, ""},
		"the last probe":                {log("unhealthy", bad(1, "a"), bad(2, "b")), &Healthcheck{Retries: 2}, true, HealthUnhealthy, "b"},
		"the last probe after the exit": {log("unhealthy", bad(1, "a")), thrice, false, HealthNone, "a"},
		"a probe that died with it":     {log("unhealthy", bad(1, "a"), bad(2, "")), thrice, false, HealthNone, "a"},
		"only such a probe":             {log("unhealthy", bad(1, "")), thrice, false, HealthNone, ""},
		"a probe without a record":      {log("healthy", nil), thrice, true, HealthHealthy, ""},
		"frozen, or just thawed":        {log("unhealthy", probe(1, "a")), thrice, true, HealthHealthy, "a"},
		"thawed, and one failed":        {log("unhealthy", probe(1, "a"), bad(2, "b")), thrice, true, HealthHealthy, "b"},
		"thawed, and too many did":      {log("unhealthy", bad(1, "a"), bad(2, "b"), bad(3, "c")), thrice, true, HealthUnhealthy, "c"},
		"frozen before any verdict":     {log("unhealthy", nil, bad(2, "b")), thrice, true, HealthStarting, "b"},
		"frozen in a second run":        {log("unhealthy", probe(-time.Second, "old")), thrice, true, HealthStarting, ""},
	} {
		if h, out := healthOf(tc.raw, tc.check, tc.running, started); h != tc.health || out != tc.output {
			t.Errorf("%s: %q, %q", name, h, out)
		}
	}
}

func TestTailIsValidAndShort(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"short":               {"abc", "abc"},
		"long":                {strings.Repeat("x", 10) + "abcde", "xabcde"},
		"cut between letters": {"xxxx" + "äää", "äää"},
		"cut inside a letter": {"äää" + "x", "ääx"},
		"invalid bytes":       {"a\xff", "a\uFFFD"},
		"many invalid bytes":  {strings.Repeat("a\xff", 10), "a\uFFFD"},
	} {
		got := tail(tc.in, 6)
		if !utf8.ValidString(got) || len(got) > 6 || got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
