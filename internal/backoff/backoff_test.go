package backoff

import (
	"math"
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	b := Backoff{Base: time.Second, Max: 5 * time.Minute}
	for failures, want := range map[uint32]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, math.MaxUint32: 5 * time.Minute,
	} {
		if got := b.After(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
}
