package recordfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

const eventKind = storev1.AgentRecordKind_AGENT_RECORD_KIND_EVENT

// fakeAgents is a database of agents whose records are events, and which tells the files what it writes.
type fakeAgents struct {
	mu        sync.Mutex
	files     *Agents
	agents    map[string]map[string]string
	marks     map[string]uint64
	past      map[string]bool
	dumped    int
	meanwhile func() // in the middle of a dump
}

func newAgents(t testing.TB) (*fakeAgents, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "agents")
	s := &fakeAgents{agents: map[string]map[string]string{}, marks: map[string]uint64{}, past: map[string]bool{}}
	s.files = NewAgents(root, quiet(), func(err error) { t.Errorf("mirror: %v", err) })
	return s, root
}

// write is one transaction; a value of "" removes.
func (s *fakeAgents) write(id string, kv ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents[id] == nil {
		s.agents[id] = map[string]string{}
	}
	c := &storev1.AgentChange{AgentId: id, Before: s.marks[id]}
	for i := 0; i < len(kv); i += 2 {
		c.Ops = append(c.Ops, &storev1.AgentOp{Kind: eventKind, Key: []byte(kv[i]), Value: []byte(kv[i+1]), Delete: kv[i+1] == ""})
		apply(s.agents[id], c.GetOps()[i/2])
	}
	s.marks[id] = rand.Uint64()
	c.After = s.marks[id]
	s.files.Agent(c, 0)
}

func apply(records map[string]string, o *storev1.AgentOp) {
	if o.GetDelete() {
		delete(records, string(o.GetKey()))
		return
	}
	records[string(o.GetKey())] = string(o.GetValue())
}

func (s *fakeAgents) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, id)
	delete(s.marks, id)
	s.past[id] = true
	s.files.AgentGone(&storev1.RemovedAgent{AgentId: id, CreatedAt: 7})
}

func (s *fakeAgents) AgentIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.agents))
}

func (s *fakeAgents) AgentReserved(_ context.Context, id string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.past[id] || s.agents[id] != nil, nil
}

func (s *fakeAgents) AgentMark(_ context.Context, id string) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[id], nil
}

func (s *fakeAgents) DumpAgent(_ context.Context, id string, fn func(*storev1.AgentChange) error) error {
	s.mu.Lock()
	s.dumped++
	c := &storev1.AgentChange{AgentId: id, After: s.marks[id]}
	for _, k := range slices.Sorted(maps.Keys(s.agents[id])) {
		c.Ops = append(c.Ops, &storev1.AgentOp{Kind: eventKind, Key: []byte(k), Value: []byte(s.agents[id][k])})
	}
	meanwhile := s.meanwhile
	s.mu.Unlock()
	if c.GetAfter() == 0 {
		return nil
	}
	if meanwhile != nil {
		meanwhile()
	}
	return fn(c)
}

func (s *fakeAgents) rewritten() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dumped
}

// readAgents is what the files hold, and whose are torn.
func readAgents(t testing.TB, root string) (agents map[string]map[string]string, torn []string, problems []Problem) {
	t.Helper()
	found, _, problems, err := ReadAgents(root)
	must(t, err)
	agents = map[string]map[string]string{}
	for _, f := range found {
		agents[f.ID] = map[string]string{}
		must(t, f.Replay(replayInto(agents[f.ID])))
		if f.Torn {
			torn = append(torn, f.ID)
		}
	}
	return agents, torn, problems
}

func replayInto(records map[string]string) func(*storev1.AgentChange) error {
	return func(c *storev1.AgentChange) error {
		for _, o := range c.GetOps() {
			apply(records, o)
		}
		return nil
	}
}

// same fails unless the files hold what s has.
func (s *fakeAgents) same(t testing.TB, root string) {
	t.Helper()
	got, torn, problems := readAgents(t, root)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(torn)+len(problems) > 0 || len(got) != len(s.agents) {
		t.Fatalf("%d agents, want %d; torn %v, problems %v", len(got), len(s.agents), torn, problems)
	}
	for id, want := range s.agents {
		if !maps.Equal(got[id], want) {
			t.Fatalf("%s has %d records, want %d", id, len(got[id]), len(want))
		}
	}
}

// restarted is what the next process has of the files.
func (s *fakeAgents) restarted(t testing.TB, root string) {
	t.Helper()
	s.files = NewAgents(root, quiet(), func(err error) { t.Errorf("mirror: %v", err) })
	must(t, s.files.CatchUp(t.Context(), s))
}

func agentPath(root, id string) string { return filepath.Join(root, AgentFileName(id)) }

func TestAnAgentsFileHoldsEachChange(t *testing.T) {
	s, root := newAgents(t)
	big := strings.Repeat("x", agentPart)
	for _, step := range [][]string{{"a", "1"}, {"b", "2", "c", big, "d", big, "e", "5"}, {"a", ""}, {"c", "3"}} {
		s.write("ada", step...)
		s.write("bob", step[0], "x")
		s.same(t, root)
	}
	s.restarted(t, root)
	if s.dumped > 0 {
		t.Errorf("%d files were rewritten that were right", s.dumped)
	}
	s.write("ada", "f", "6")
	s.remove("bob")
	s.same(t, root)
	_, removed, _, err := ReadAgents(root)
	must(t, err)
	if len(removed) != 1 || removed[0].GetAgentId() != "bob" || removed[0].GetCreatedAt() != 7 {
		t.Errorf("removed are %v", removed)
	}
	if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestATornChangeCountsNothing: of a change of many parts either all counts or nothing, wherever the file ends.
func TestATornChangeCountsNothing(t *testing.T) {
	s, root := newAgents(t)
	s.write("ada", "a", "1")
	first := sizeOf(t, agentPath(root, "ada"))
	big := strings.Repeat("x", agentPart-10)
	s.write("ada", "a", "2", "b", big, "c", big, "d", "4")
	file, err := os.ReadFile(agentPath(root, "ada"))
	must(t, err)
	for range 200 {
		cut := first + rand.Int64N(int64(len(file))-first)
		must(t, os.WriteFile(agentPath(root, "ada"), file[:cut], 0o600))
		got, torn, _ := readAgents(t, root)
		if want := map[string]string{"a": "1"}; !maps.Equal(got["ada"], want) || (len(torn) == 0) != (cut == first) {
			t.Fatalf("cut to %d of %d: %d records, torn %v", cut, len(file), len(got["ada"]), torn)
		}
	}
	must(t, os.WriteFile(agentPath(root, "ada"), file[:first+20], 0o600))
	s.restarted(t, root)
	s.same(t, root)
}

// TestAFileThatIsBehindIsWrittenAnew, at the start or when a change does not follow on it; a change is never put behind a gap.
func TestAFileThatIsBehindIsWrittenAnew(t *testing.T) {
	for name, spoil := range map[string]func(s *fakeAgents, path string) error{
		"it is missing": func(_ *fakeAgents, path string) error { return os.Remove(path) },
		"it is empty":   func(_ *fakeAgents, path string) error { return os.Truncate(path, 0) },
		"it is torn":    func(_ *fakeAgents, path string) error { return os.Truncate(path, 30) },
		"it is garbage": func(_ *fakeAgents, path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), 100), 0o600)
		},
		"it is of another agent": func(s *fakeAgents, path string) error {
			other, err := os.ReadFile(agentPath(filepath.Dir(path), "bob"))
			return errors.Join(err, os.WriteFile(path, other, 0o600))
		},
		"a change did not reach it": func(s *fakeAgents, _ string) error {
			s.agents["ada"]["missed"], s.marks["ada"] = "1", 99
			return nil
		},
		"it is ahead, after a restore": func(s *fakeAgents, _ string) error {
			delete(s.agents["ada"], "b")
			s.marks["ada"] = 98
			return nil
		},
	} {
		for _, start := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", noticed at the start ", start), func(t *testing.T) {
				s, root := newAgents(t)
				s.files = NewAgents(root, quiet(), nil) // some of these are errors
				s.write("ada", "a", "1", "c", "3")
				s.write("ada", "b", "2")
				s.write("bob", "x", "y")
				must(t, spoil(s, agentPath(root, "ada")))
				if start {
					s.files = NewAgents(root, quiet(), nil)
					must(t, s.files.CatchUp(t.Context(), s))
					s.same(t, root)
				}
				s.write("ada", "d", "4")
				for range 2 {
					s.files.flush(t.Context(), s, time.Now().Add(time.Hour))
				}
				s.same(t, root)
				s.write("ada", "e", "5")
				s.same(t, root)
			})
		}
	}
}

// TestWhatComesWhileAFileIsWrittenAnewIsInIt, whether the database had it before the dump or after.
func TestWhatComesWhileAFileIsWrittenAnewIsInIt(t *testing.T) {
	s, root := newAgents(t)
	s.files.slack = 0
	stop := make(chan struct{})
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	flushed := make(chan struct{})
	wg.Go(func() {
		for ctx.Err() == nil {
			s.files.flush(ctx, s, time.Now().Add(time.Hour))
			select {
			case flushed <- struct{}{}:
			case <-ctx.Done():
			}
		}
	})
	wg.Go(func() {
		defer close(stop)
		for i := range 100_000 {
			if s.rewritten() >= 30 {
				return
			}
			if i%100 == 99 {
				<-flushed // a writer that is faster than the disk would end before anything is rewritten
			}
			s.write(fmt.Sprint("agent-", i%3), fmt.Sprint("k", rand.IntN(20)), strings.Repeat("v", rand.IntN(200)))
		}
	})
	<-stop
	cancel()
	wg.Wait()
	s.same(t, root)
	if s.dumped < 10 {
		t.Errorf("%d files were rewritten: the test shows nothing", s.dumped)
	}
	for range 3 {
		s.files.flush(t.Context(), s, time.Now().Add(time.Hour))
	}
	for id := range s.agents {
		if size := sizeOf(t, agentPath(root, id)); size > 20*400 {
			t.Errorf("the file of %s has %d bytes", id, size)
		}
	}
	s.restarted(t, root)
	s.same(t, root)
}

// TestAFileIsSmallWhateverIsWritten: it grows to about twice of what counts, and no further.
func TestAFileIsSmallWhateverIsWritten(t *testing.T) {
	s, root := newAgents(t)
	value := strings.Repeat("x", 100<<10)
	for i := range 100 {
		s.write("ada", fmt.Sprint("k", i%4), value)
		s.files.flush(t.Context(), s, time.Now())
		if size := sizeOf(t, agentPath(root, "ada")); size > agentSlack+3*5*int64(len(value)) {
			t.Fatalf("after %d changes it has %d bytes", i, size)
		}
	}
	s.same(t, root)
	if s.dumped == 0 || s.dumped > 15 {
		t.Errorf("it was rewritten %d times", s.dumped)
	}
}

func TestAnAgentThatGoesWhileItsFileIsWrittenAnewLeavesNothing(t *testing.T) {
	s, root := newAgents(t)
	s.files.slack = 0
	for range 5 {
		s.write("ada", "a", "1")
	}
	s.meanwhile = func() { s.meanwhile = nil; s.remove("ada") }
	s.files.flush(t.Context(), s, time.Now())
	s.files.flush(t.Context(), s, time.Now())
	names, err := filepath.Glob(filepath.Join(root, "*"))
	must(t, err)
	if len(names) != 1 || filepath.Base(names[0]) != removedName {
		t.Errorf("left are %v", names)
	}
}

// TestFilesOfNobodyOnRecordAreSortedOut: what was removed goes, and what may be the only copy is kept and not read again.
func TestFilesOfNobodyOnRecordAreSortedOut(t *testing.T) {
	s, root := newAgents(t)
	s.write("ada", "a", "1")
	s.write("gone", "a", "1")
	s.write("never", "a", "1")
	for _, name := range []string{strings.Repeat("0", 32), AgentFileName("ada") + tempSuffix} {
		must(t, os.WriteFile(filepath.Join(root, name), []byte("junk"), 0o600))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(root, strings.Repeat("1", 32))))
	for _, id := range []string{"gone", "never"} {
		delete(s.agents, id)
		delete(s.marks, id)
	}
	s.past["gone"] = true
	s.restarted(t, root)
	s.same(t, root)
	var kept []string
	entries, err := os.ReadDir(root)
	must(t, err)
	for _, e := range entries {
		name, _, aside := strings.Cut(e.Name(), ".unknown-")
		if aside {
			kept = append(kept, name)
		}
	}
	if want := []string{strings.Repeat("0", 32), strings.Repeat("1", 32), AgentFileName("never")}; len(kept) != 3 || !slices.Contains(kept, want[2]) {
		t.Errorf("kept are %v, want %v", kept, want)
	}
	if len(entries) != 5 {
		t.Errorf("there are %v", entries)
	}
	_, removed, _, err := ReadAgents(root)
	must(t, err)
	if len(removed) != 1 || removed[0].GetAgentId() != "gone" {
		t.Errorf("removed are %v", removed)
	}
}

// TestAnyByteThatIsWrongHidesWhatIsBehindItAndNothingElse.
func TestAnyByteThatIsWrongHidesWhatIsBehindItAndNothingElse(t *testing.T) {
	s, root := newAgents(t)
	var ends []int64
	for i := range 5 {
		s.write("ada", fmt.Sprint(i), "value")
		ends = append(ends, sizeOf(t, agentPath(root, "ada")))
	}
	file, err := os.ReadFile(agentPath(root, "ada"))
	must(t, err)
	for at := range file {
		bad := bytes.Clone(file)
		bad[at] ^= 1 << (at % 8)
		must(t, os.WriteFile(agentPath(root, "ada"), bad, 0o600))
		whole, _ := whole(append([]int64{0}, ends...), int64(at))
		got, _, problems := readAgents(t, root)
		if len(got["ada"]) != whole || len(problems) != 1 || !errdefs.IsDataLoss(problems[0].Err) && !errdefs.IsFailedPrecondition(problems[0].Err) {
			t.Fatalf("byte %d: %v, problems %v", at, got, problems)
		}
	}
}

// FuzzAgentFile: whatever is in a file, what counts of it is a chain of whole changes of one agent.
func FuzzAgentFile(f *testing.F) {
	change := func(before, after uint64, more bool) []byte {
		b, err := agentFrame(&storev1.AgentChange{AgentId: "ada", Before: before, After: after, More: more,
			Ops: []*storev1.AgentOp{{Kind: eventKind, Key: []byte("k"), Value: []byte("v")}}}, nil)
		must(f, err)
		return bytes.Clone(b)
	}
	f.Add(change(0, 1, false))
	f.Add(slices.Concat(change(0, 1, true), change(0, 1, false), change(1, 2, false)))
	f.Add(slices.Concat(change(0, 1, false), change(3, 4, false)))
	f.Add(slices.Concat(change(0, 1, false), change(1, 2, true)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var parts []*storev1.AgentChange
		h, good, err := scanAgent(bytes.NewReader(data), int64(len(data)), func(c *storev1.AgentChange) error {
			parts = append(parts, c)
			return nil
		})
		if (err == nil) != (good == int64(len(data))) || err != nil && !errdefs.IsDataLoss(err) && !errdefs.IsFailedPrecondition(err) {
			t.Fatalf("%d of %d bytes are good: %v", good, len(data), err)
		}
		mark := uint64(0)
		for i, c := range parts {
			if c.GetAgentId() != h.id || c.GetBefore() != mark {
				t.Fatalf("part %d is %v, behind %d", i, c, mark)
			}
			if !c.GetMore() {
				mark = c.GetAfter()
			}
		}
		if mark != h.mark {
			t.Fatalf("it ends with %d, and says %d", mark, h.mark)
		}
		path := filepath.Join(t.TempDir(), "f")
		must(t, os.WriteFile(path, data, 0o600))
		must(t, withFile(path, func(f *os.File, size int64) error {
			if last, err := lastChange(f, size, "ada"); err == nil && last.GetMore() {
				t.Fatalf("the last change is %v", last)
			}
			return nil
		}))
	})
}
