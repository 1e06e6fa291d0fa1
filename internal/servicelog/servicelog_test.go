package servicelog

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

func record(n int) Record {
	return Record{Time: start.Add(time.Duration(n)), Stderr: n%2 == 1, Text: fmt.Appendf(nil, "line %d\n", n)}
}

// Whatever part of the output the engine still keeps at each copy, and whichever copy is late or repeated: nothing is lost that was there at a
// copy, and nothing is there twice.
func TestMergeLosesNothingAndRepeatsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var printed []Record
		var data []byte
		stale := []Record(nil)
		kept, copied := 0, map[int]bool{}
		for range rapid.IntRange(1, 10).Draw(t, "copies") {
			for range rapid.IntRange(0, 5).Draw(t, "lines") {
				printed = append(printed, record(len(printed)))
			}
			kept = rapid.IntRange(kept, len(printed)).Draw(t, "dropped by the engine")
			now := printed[kept:]
			for i := kept; i < len(printed); i++ {
				copied[i] = true
			}
			data = Merge(data, now)
			if rapid.Bool().Draw(t, "repeated") {
				data = Merge(data, now)
			}
			if rapid.Bool().Draw(t, "a late one") {
				data = Merge(data, stale)
			}
			stale = now
		}
		var want []byte
		for i, r := range printed {
			if copied[i] {
				want = append(want, r.encode()...)
			}
		}
		if !bytes.Equal(data, want) {
			t.Fatalf("got\n%swant\n%s", data, want)
		}
	})
}

func TestParseReturnsWhatWasMerged(t *testing.T) {
	half := Record{Time: start, Stderr: true, Text: []byte("half a line ")}
	data := Merge(nil, []Record{record(1), half, {Time: start, Text: []byte("\n")}})
	got := Parse(append([]byte("no record\n2026 stdout F x\n"), data...))
	if len(got) != 3 || !got[0].Stderr || string(got[0].Text) != "line 1\n" || !got[0].Time.Equal(record(1).Time) ||
		string(got[1].Text) != "half a line " || string(got[2].Text) != "\n" {
		t.Errorf("%v", got)
	}
}

func TestMergeDropsTheOldestRecordsAtTheLimit(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 1000)
	var data []byte
	for i := range 3 * Limit / 1000 {
		data = Merge(data, []Record{{Time: start.Add(time.Duration(i)), Text: append(fmt.Appendf(nil, "%d ", i), append(long, '\n')...)}})
	}
	records := Parse(data)
	if len(data) > Limit || len(data) < Limit-2000 || !bytes.HasPrefix(records[len(records)-1].Text, fmt.Appendf(nil, "%d ", 3*Limit/1000-1)) {
		t.Errorf("%d bytes, ends with %.20s", len(data), records[len(records)-1].Text)
	}
	if !bytes.HasPrefix(data, []byte("2026-")) {
		t.Errorf("it begins with %.20q", data)
	}
}
