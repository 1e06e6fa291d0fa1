package dialect

import (
	"runtime"
	"testing"
)

// TestShortLinesDoNotSaveTheState: a decoder of many lines does not save its state for each. The total cost is proportional to
// the text, whose snapshots are some times its size.
func TestShortLinesDoNotSaveTheState(t *testing.T) {
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
