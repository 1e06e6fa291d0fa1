package connlimit_test

import (
	"testing"

	"github.com/agbox/agbox/internal/server/connlimit"
)

func TestDescriptorsAreShared(t *testing.T) {
	for limit, want := range map[uint64]connlimit.Shares{
		0: {0, 2, 4, 2, 2}, 256: {256, 16, 64, 16, 8}, 1024: {1024, 64, 256, 64, 32}, 65536: {65536, 64, 4096, 1024, 128},
		1 << 63: {1<<31 - 1, 64, 4096, 1024, 128},
	} {
		if got := connlimit.Share(limit); got != want {
			t.Errorf("%d: %v, want %v", limit, got, want)
		}
	}
}
