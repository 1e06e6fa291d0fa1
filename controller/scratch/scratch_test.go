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
	var all []string
	p.ChangeAll(func(id string, n *note) {
		all = append(all, id)
		n.lines = n.lines[1:]
	})
	slices.Sort(all)
	if !slices.Equal(all, []string{"a", "b"}) {
		t.Errorf("the records are of %q", all)
	}
	all = nil
	p.ChangeAll(func(id string, _ *note) { all = append(all, id) }) // the record of b was emptied
	if !slices.Equal(all, []string{"a"}) {
		t.Errorf("the records are of %q", all)
	}
	p.Forget("a")
	if got := p.Get("a"); !got.IsEmpty() {
		t.Errorf("a is %q", got.lines)
	}
}
