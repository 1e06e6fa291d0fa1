package recordfile

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
)

// What Gone removes stays away: a compaction that is under way makes no file between the removal of the files and that of the
// directory.
func TestGoneAtAnyMomentOfACompactionLeavesNothing(t *testing.T) {
	d, root := newDir(t)
	for round := range 300 {
		b := d.box("box")
		b.record.slack = 0
		for i := range 4 {
			d.Sandbox(record("box", uint64(i+1)))
		}
		var wg sync.WaitGroup
		wg.Go(func() { must(t, ignoreGone(b.compact(&b.record))) })
		for range round % 60 {
			runtime.Gosched()
		}
		d.Gone("box")
		wg.Wait()
		if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
			t.Fatalf("round %d: left are %v, %v", round, entries, err)
		}
	}
}

func TestGoneBetweenTheStepsOfACompactionLeavesNothing(t *testing.T) {
	for name, goneAt := range map[string]int{"before the new file": 0, "before the copy": 1, "before the swap": 2, "after the swap": 3} {
		t.Run(name, func(t *testing.T) {
			d, root := newDir(t)
			b := d.box("box")
			b.record.slack = 0
			for i := range 4 {
				d.Sandbox(record("box", uint64(i+1)))
			}
			at := func(n int) {
				if n == goneAt {
					d.Gone("box")
				}
			}
			at(0)
			if c, err := b.beginCompaction(&b.record); c != nil {
				defer c.close()
				at(1)
				base, err := b.record.copyCounting(c.old, c.temp, c.upTo)
				must(t, err)
				at(2)
				must(t, b.swap(&b.record, c, base))
				at(3)
			} else if err != nil || goneAt != 0 {
				t.Fatal(errors.Join(err, errors.New("it did not begin")))
			}
			if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
				t.Errorf("left are %v, %v", entries, err)
			}
		})
	}
}
