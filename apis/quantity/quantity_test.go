package quantity_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agbox/agbox/apis/quantity"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "512m": 512 << 20, "512M": 512 << 20, "512MB": 512 << 20, "512mb": 512 << 20, "512Mi": 512 << 20, "512mi": 512 << 20,
		"512MiB": 512 << 20, "512 MiB": 512 << 20, "1.5g": 3 << 29, "1Gi": 1 << 30, "2Ti": 2 << 40, "1PiB": 1 << 50, "7b": 7, ".5Ki": 512,
	} {
		if got, err := quantity.Bytes(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "i", "5i", "1ib", "-1", "+1", "1e9", "0x10", "1Mii", "1MiBi", "500mm", "1 MiB ", "1.1Pi", "9000000TiB", "g", ".", "1d"} {
		if got, err := quantity.Bytes(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "0d": 0, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour,
		"30d": 720 * time.Hour, "2d1h1s": 49*time.Hour + time.Second, "-5m": -5 * time.Minute,
	} {
		if got, err := quantity.Duration(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "-1d", "+1d", "1d-1h", "1d+1h", "1h1d", "1d1d", "1dd", "999999d", "1 d", "1D", "1w", "50000d2000000h"} {
		if got, err := quantity.Duration(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestEveryDurationOfGoKeepsItsMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64().Draw(t, "duration"))
		if got, err := quantity.Duration(want.String()); err != nil || got != want {
			t.Fatalf("%v: got %v, %v", want, got, err)
		}
	})
}

func TestCPUs(t *testing.T) {
	for text, want := range map[string]float64{"2": 2, "0.5": 0.5, "500m": 0.5, "1500m": 1.5, "0": 0} {
		if got, err := quantity.CPUs(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "m", "-1", "1e3", "inf", "NaN", "0.5m", "500M", "500 m", "2cpus"} {
		if got, err := quantity.CPUs(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
