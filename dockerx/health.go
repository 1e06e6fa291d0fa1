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
	// defaultRetries is the engine's: so many probes must fail in a row.
	defaultRetries = 3
)

// listedHealth reads the verdict out of a list's status text, such as "Up 5 minutes (healthy)". The verdict is its end;
// the same since healthchecks exist.
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

// listedEndedWell reads the exit code out of a list's status text, such as "Exited (0) 5 minutes ago".
func listedEndedWell(state State, status string) bool {
	return state == StateExited && strings.HasPrefix(status, "Exited (0)")
}

// healthOf returns the verdict on the present run, and what the last probe since started said. The engine keeps both
// beyond the end of a run, and the output into the next one.
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

// lastProbe is nil when there is none. A probe that was killed with its container is recorded, too (seen, API 1.56): it says nothing.
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

// probed is the verdict of the probes. The engine says "unhealthy" of a container that it has paused, and then until the
// next probe, without that one has failed (seen, 20.10): the verdict of before stands.
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
