package execjournal

import (
	"testing"

	"github.com/containerd/errdefs"
)

func TestReleaseHoldsUntilWithhold(t *testing.T) {
	d, _ := newDir(t)
	want := func(id string, want bool) {
		t.Helper()
		if got, err := d.Released(id); got != want || err != nil {
			t.Errorf("%s: %t, %v", id, got, err)
		}
	}
	want("box1", false)
	want("box2", false) // nothing was prepared for it
	for range 2 {
		for _, step := range []struct {
			do   func(string) error
			then bool
		}{{d.Release, true}, {d.Release, true}, {d.Withhold, false}, {d.Withhold, false}} {
			if err := step.do("box1"); err != nil {
				t.Fatal(err)
			}
			want("box1", step.then)
		}
	}
	if _, err := d.Released(".."); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
}
