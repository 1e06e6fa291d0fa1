package shim

import (
	"slices"
	"testing"
	"time"
)

// TestExecsThatWaitForMemoryStartInOrder: an admission restarts the patience of the others, but keeps their order.
func TestExecsThatWaitForMemoryStartInOrder(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	s := starting{since: map[string]time.Time{}}
	for i, id := range []string{"d", "a", "c", "b", "a"} {
		if s.wait(id, begin.Add(time.Duration(i))) {
			t.Errorf("%s is late at once", id)
		}
	}
	soon := begin.Add(startPatience / 2)
	if ok, _ := s.admit("d", 0, soon); !ok {
		t.Fatal("an exec waits although no other one runs")
	}
	if got := s.waiting(); !slices.Equal(got, []string{"a", "c", "b"}) {
		t.Errorf("execs wait in the order %v", got)
	}
	if s.wait("a", soon.Add(startPatience)) {
		t.Error("an admission did not restart the patience of another exec")
	}
	if !s.wait("a", soon.Add(startPatience+1)) {
		t.Error("an exec waits without bound")
	}
	if got := s.waiting(); !slices.Equal(got, []string{"c", "b"}) {
		t.Errorf("execs wait in the order %v after one was late", got)
	}
}
