package nearest_test

import (
	"testing"

	"github.com/agbox/agbox/internal/nearest"
)

func TestOf(t *testing.T) {
	known := []string{"image", "memory_limit", "cpu_limit", "pids_limit", "envs", "on_timeout", "timeout"}
	for word, want := range map[string]string{
		"memory_limt": "memory_limit", "memoryLimit": "memory_limit", "memory-limit": "memory_limit", "memory": "memory_limit", "cpu": "cpu_limit",
		"env": "envs", "Image": "image", "imagee": "image", "timeot": "timeout",
		"limit": "", "x": "", "": "", "healthcheck": "", "im": "",
	} {
		if got := nearest.Of(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
