package cli

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/agbox/agbox/internal/termsafe"
)

// Both ends of a copy out of a sandbox skip files, at the same time.
func TestBothEndsOfACopySkipFiles(t *testing.T) {
	var text bytes.Buffer
	out := termsafe.NewDisplay(&text)
	c := &copying{a: &app{Streams: Streams{Err: out}, notes: &notes{}}}
	var ends sync.WaitGroup
	for range 2 {
		ends.Go(func() {
			for range 100 {
				c.skip("a device")
			}
		})
	}
	ends.Wait()
	exit, ok := errors.AsType[*exitError](c.outcome(nil))
	if n := strings.Count(text.String(), "error: a device\n"); n != 200 || c.skipped.Load() != 200 || !ok || exit.code != exitFailed {
		t.Errorf("%d lines, %d counted, %v", n, c.skipped.Load(), exit)
	}
}
