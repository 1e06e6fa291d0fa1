package dockerx

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/docker/docker/api/types/container"
)

const (
	// maxHealthOutput is in bytes.
	maxHealthOutput = 1024
	// defaultRetries is the engine's default: this many consecutive probes must fail.
	defaultRetries = 3
)

// listedHealth parses the verdict at the end of a list's status text, such as "Up 5 minutes (healthy)". The format is the
// same in all versions with healthchecks.
func listedHealth(state State, status string) Health {
	if state != StateRunning {
		return HealthNone
	}
	for suffix, h := range map[string]Health{
		"(healthy)":          HealthHealthy,
		"(unhealthy)":        HealthUnhealthy,
		"(health: starting)": HealthStarting,
	} {
		if strings.HasSuffix(status, suffix) {
			return h
		}
	}
	return HealthNone
}

// listedEndedWell parses the exit code in a list's status text, such as "Exited (0) 5 minutes ago".
func listedEndedWell(state State, status string) bool {
	return state == StateExited && strings.HasPrefix(status, "Exited (0)")
}

// healthOf returns the verdict for the present run, and the output of the last probe since started. The engine keeps both
// after the exit, and the output into the next run.
func healthOf(raw *container.Health, check *Healthcheck, running bool, started time.Time) (Health, string) {
	if raw == nil {
		return HealthNone, ""
	}
	verdict := HealthNone
	if running && raw.Status != container.NoHealthcheck {
		verdict = probed(raw, check, started)
	}
	if p := lastProbe(raw.Log, running); p != nil && !p.Start.Before(started) {
		return verdict, tail(p.Output, maxHealthOutput)
	}
	return verdict, ""
}

// lastProbe returns nil when there is none. It skips probes that were killed with their container, which the engine records, too (observed with API 1.56).
func lastProbe(probes []*container.HealthcheckResult, running bool) *container.HealthcheckResult {
	n := len(probes)
	for n > 1 && !running && probes[n-1] != nil && probes[n-1].ExitCode != 0 && probes[n-1].Output == "" {
		n--
	}
	if n == 0 {
		return nil
	}
	return probes[n-1]
}

// probed returns the verdict of the probes. After a pause the engine reports "unhealthy" until the next probe, without a
// failed probe (observed with 20.10): then the previous verdict holds.
func probed(raw *container.Health, check *Healthcheck, started time.Time) Health {
	retries := defaultRetries
	if check != nil && check.Retries > 0 {
		retries = check.Retries
	}
	if raw.Status != container.Unhealthy || raw.FailingStreak >= retries {
		return Health(raw.Status)
	}
	for _, p := range raw.Log {
		if p != nil && p.ExitCode == 0 && !p.Start.Before(started) {
			return HealthHealthy
		}
	}
	return HealthStarting
}

// tail returns the end of s as valid UTF-8 of at most limit bytes.
func tail(s string, limit int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if over := len(s) - limit; over > 0 {
		for over < len(s) && !utf8.RuneStart(s[over]) {
			over++
		}
		s = s[over:]
	}
	return s
}
