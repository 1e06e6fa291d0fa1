package absence

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
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

// Two sandboxes vanished apart only if one was certainly there long after the other was missed.
func TestVanishedApart(t *testing.T) {
	type step struct {
		at    time.Duration
		shown string // the sandboxes that a list shows, by letters; empty: missed is missed
		miss  string
		what  string
	}
	for name, c := range map[string]struct {
		steps []step
		apart bool
	}{
		"nothing is known":                  {nil, false},
		"missed far apart":                  {[]step{{shown: "ab"}, {at: 1, miss: "a"}, {at: 60, miss: "b"}}, false},
		"one was shown long after":          {[]step{{shown: "ab"}, {at: 1, miss: "a"}, {at: 60, shown: "b"}, {at: 70, miss: "b"}}, true},
		"the other was":                     {[]step{{shown: "ab"}, {at: 1, miss: "b"}, {at: 60, shown: "a"}, {at: 70, miss: "a"}}, true},
		"shown soon after":                  {[]step{{shown: "ab"}, {at: 1, miss: "a"}, {at: 9, shown: "b"}, {at: 70, miss: "b"}}, false},
		"it came back before both vanished": {[]step{{at: 1, miss: "a"}, {at: 60, shown: "ab"}, {at: 70, miss: "b"}}, false},
		"only its network was missed":       {[]step{{at: 1, miss: "a", what: "its network"}, {at: 60, shown: "b"}, {at: 70, miss: "b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, began := newMemory(), time.Now()
				for _, s := range c.steps {
					time.Sleep(time.Until(began.Add(s.at * time.Second)))
					if s.miss != "" {
						a.observe(s.miss, cmp.Or(s.what, plan.ThePrimary), &storev1.EngineRun{}, false)
						continue
					}
					a.Listed(time.Now(), []string{"a", "b"}, func(id string) bool { return strings.Contains(s.shown, id) })
				}
				if got := a.missedApart("a", "b"); got != c.apart || a.missedApart("b", "a") != got {
					t.Errorf("apart: %t, want %t", got, c.apart)
				}
			})
		})
	}
}

// A list between the two observations that shows the part contradicts the first one.
func TestAProofStartsOverWhenAListShowsThePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, run := newMemory(), &storev1.EngineRun{}
		a.observe("a", plan.ThePrimary, run, false)
		time.Sleep(observationsApart / 2)
		a.Listed(time.Now(), []string{"a"}, func(string) bool { return true })
		time.Sleep(observationsApart)
		if left := a.observe("a", plan.ThePrimary, run, false); left != observationsApart {
			t.Errorf("proven in %s", left)
		}
		time.Sleep(observationsApart)
		if left := a.observe("a", plan.ThePrimary, run, false); left != 0 {
			t.Errorf("proven in %s", left)
		}
	})
}

// What was shown of sandboxes that are deleted is not kept.
func TestAListDropsWhatIsNotLive(t *testing.T) {
	a := newMemory()
	a.Listed(time.Now(), []string{"a", "b"}, func(string) bool { return true })
	a.Listed(time.Now(), []string{"b"}, func(string) bool { return true })
	if len(a.of) != 1 {
		t.Errorf("%d sandboxes are remembered", len(a.of))
	}
}
