package dialect

import (
	"runtime"
	"testing"
)

// TestShortLinesCostWhatTheySay: a decoder that takes in many lines does not write its state for each. What they cost in all is
// in proportion to the text, whose snapshots are some times its size.
func TestShortLinesCostWhatTheySay(t *testing.T) {
	const lines = 100_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d := Open(Native, nil)
	for range lines {
		d.Line(Stdout, []byte("y"))
	}
	if len(d.State()) == 0 {
		t.Fatal("no state")
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / lines; each > 256 {
		t.Errorf("%d bytes were allocated for each line", each)
	}
}
