package absence

import (
	"fmt"
	"testing"

	"github.com/agbox/agbox/dockerx"
)

// The engine also reports removals that agboxd requested: they must not displace those that prove something.
func TestTheNewestRemovalsAreRemembered(t *testing.T) {
	a := newMemory()
	for i := range 2*maxDestroyed + 1 {
		a.Note(dockerx.Event{Action: dockerx.ActionDestroy, ID: fmt.Sprint(i)})
	}
	if !a.isDestroyed(fmt.Sprint(2 * maxDestroyed)) {
		t.Error("the newest removal is forgotten")
	}
	if n := len(a.destroyed); n > maxDestroyed {
		t.Errorf("%d removals are remembered", n)
	}
}
