package scratch_test

import (
	"slices"
	"testing"

	"github.com/agbox/agbox/controller/scratch"
)

type note struct{ lines []string }

func (n note) Clone() note   { return note{slices.Clone(n.lines)} }
func (n note) IsEmpty() bool { return len(n.lines) == 0 }

func TestAPadKeepsOneRecordPerID(t *testing.T) {
	p := scratch.New[note]()
	add := func(line string) func(*note) { return func(n *note) { n.lines = append(n.lines, line) } }
	p.Change("a", add("1"))
	p.Change("a", add("2"))
	p.Change("b", add("3"))
	copied := p.Get("a")
	copied.lines[0] = "changed"
	if got := p.Get("a").lines; !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("a is %q", got)
	}
	p.Change("b", func(n *note) { n.lines = nil })
	if got := p.Get("b"); !got.IsEmpty() {
		t.Errorf("b is %q", got.lines)
	}
	p.Forget("a")
	if got := p.Get("a"); !got.IsEmpty() {
		t.Errorf("a is %q", got.lines)
	}
}
