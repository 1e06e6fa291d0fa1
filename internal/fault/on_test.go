//go:build faults

package fault

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAnArmedPointActsOnce(t *testing.T) {
	ran := 0
	around := func() error { return Around(Engine, "op", func() error { ran++; return nil }) }
	points.armed["engine.op.before"] = action([]string{"error"})
	if err := around(); !errors.Is(err, ErrInjected) || ran != 0 {
		t.Errorf("before: %v, ran %d times", err, ran)
	}
	if err := around(); err != nil || ran != 1 {
		t.Errorf("disarmed: %v, ran %d times", err, ran)
	}
	points.armed["engine.op.after"] = action([]string{"error"})
	if err := around(); !errors.Is(err, ErrInjected) || ran != 2 {
		t.Errorf("after: %v, ran %d times", err, ran)
	}
	if !points.hit["engine.op.before"] || !points.hit["engine.op.after"] {
		t.Errorf("hit are %v", points.hit)
	}
}

func TestAPlanHappensOnceAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		PlanFile: "engine.a.before error\nengine.b.before error\nengine.c.before delay 1ms\n", DoneFile: "engine.b.before\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	points.once.Do(func() {})
	points.dir = dir
	defer func() { points.dir = "" }()
	load(dir)
	for op, fails := range map[string]bool{"a": true, "b": false, "c": false} {
		if err := Points(Engine, Before, slices.Values([]string{op})); (err != nil) != fails {
			t.Errorf("%s: %v", op, err)
		}
	}
	done := lines(filepath.Join(dir, DoneFile))
	slices.Sort(done)
	if want := []string{"engine.a.before", "engine.b.before", "engine.c.before"}; !slices.Equal(done, want) {
		t.Errorf("done are %v", done)
	}
}

// A process that is killed at one of several points that it passes together was killed at all of them: later lives may pass none of them.
func TestWhatHappensAtOnePointHappensAtAllOfTheMoment(t *testing.T) {
	points.once.Do(func() {})
	points.dir = t.TempDir()
	defer func() { points.dir = "" }()
	together := []string{"x", "y", "z"}
	var done []string
	for _, op := range together[:2] {
		points.armed["store."+op+".after"] = func() error {
			done = lines(filepath.Join(points.dir, DoneFile))
			return ErrInjected
		}
	}
	if err := Points(Store, After, slices.Values(together)); !errors.Is(err, ErrInjected) {
		t.Error(err)
	}
	if want := []string{"store.x.after", "store.y.after"}; !slices.Equal(done, want) {
		t.Errorf("at the first action, done are %v", done)
	}
	if err := Points(Store, After, slices.Values(together)); err != nil {
		t.Errorf("again: %v", err)
	}
}

type outer struct{}

func (*outer) Exported() string { return (*outer).helper(&outer{}) }
func (*outer) helper() string   { return func() string { return Caller("(*outer)") }() }

func TestTheCallerIsTheExportedMethod(t *testing.T) {
	if got := (&outer{}).Exported(); got != "Exported" {
		t.Errorf("got %q", got)
	}
}
