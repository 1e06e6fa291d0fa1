package store

import (
	"slices"
	"testing"
)

func TestAnAdoptedSandboxIsAsItWas(t *testing.T) {
	c := newClock()
	a := open(t, c.options(testOptions(t)))
	makeReady(t, a, "box")
	startExec(t, a, "box", "running")
	want := get1(t, a, "box")
	b := open(t, c.options(testOptions(t)))
	ids, err := b.Adopt(ctx, []Rebuilt{{Record: recordOf(&want, "")}})
	if err != nil || !slices.Equal(ids, []string{"box"}) {
		t.Fatal(ids, err)
	}
	if got := get1(t, b, "box"); got.LastSequence != want.LastSequence+1 || got.State != want.State {
		t.Fatalf("%+v", got)
	}
}
