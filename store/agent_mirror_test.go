package store

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/recordfile"
)

// agentFiles is the true mirror of agents, and what the store had of each agent when it was handed each change.
type agentFiles struct {
	*recordfile.Agents
	t    testing.TB
	root string
	s    *Store
	mu   sync.Mutex
	seen map[string][]sight
}

// sight is what the database has of an agent, and how large its file is then.
type sight struct {
	records string
	size    int64
}

func newAgentFiles(t testing.TB, root string) *agentFiles {
	return &agentFiles{
		Agents: recordfile.NewAgents(root, testOptions(t).Logger, func(err error) { t.Errorf("mirror: %v", err) }),
		t:      t, root: root, seen: map[string][]sight{},
	}
}

// withFiles is a new store with the mirror.
func withFiles(t testing.TB, o Options) (*Store, *agentFiles) {
	t.Helper()
	f := newAgentFiles(t, filepath.Join(fastDir(t), "agents"))
	o.AgentMirror = f
	f.s = open(t, o)
	return f.s, f
}

// fastDir is in memory where there is such a place.
func fastDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "agbox-store-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (f *agentFiles) Agent(c *storev1.AgentChange, eventBytes uint64) {
	f.Agents.Agent(c, eventBytes)
	f.mu.Lock()
	defer f.mu.Unlock()
	id := c.GetAgentId()
	f.seen[id] = append(f.seen[id], sight{dumpAgent(f.t, f.s, id), int64(len(f.file(id)))})
}

func (f *agentFiles) AgentGone(r *storev1.RemovedAgent) {
	f.Agents.AgentGone(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.seen, r.GetAgentId())
}

// file reads the file of an agent: the only one there is whose ID it holds.
func (f *agentFiles) file(id string) []byte {
	b, _ := os.ReadFile(f.path(id))
	return b
}

func (f *agentFiles) path(id string) string {
	return filepath.Join(f.root, recordfile.AgentFileName(id))
}

// dumpAgent is every record of an agent, as it is in the file.
func dumpAgent(t testing.TB, s *Store, id string) string {
	t.Helper()
	var b strings.Builder
	must(t, s.db.View(func(tx *bolt.Tx) error {
		for _, kind := range slices.Sorted(maps.Keys(agentSingles)) {
			fmt.Fprintf(&b, "%s %x\n", agentSingles[kind], get(tx, agentSingles[kind], []byte(id)))
		}
		for _, kind := range slices.Sorted(maps.Keys(agentLists)) {
			if bucket := tx.Bucket([]byte(agentLists[kind] + id)); bucket != nil {
				eachKey(bucket, func(k, v []byte) bool {
					fmt.Fprintf(&b, "%s %x %x\n", agentLists[kind], k, v)
					return true
				})
			}
		}
		return nil
	}))
	return b.String()
}

// rebuiltAgents is a new store with what the files below root hold.
func rebuiltAgents(t testing.TB, root string) *Store {
	t.Helper()
	o := testOptions(t)
	o.Path = filepath.Join(fastDir(t), "ids.db")
	s := open(t, o)
	rebuildAgents(t, s, root)
	return s
}

func rebuildAgents(t testing.TB, s *Store, root string) {
	t.Helper()
	found, removed, _, err := recordfile.ReadAgents(root)
	must(t, err)
	for _, a := range found {
		_, err := s.RebuildAgent(ctx, a.ID, a.Replay)
		must(t, err)
	}
	must(t, s.ReserveAgents(ctx, removed))
}

// wantSame fails unless s has exactly what f's store has of an agent, in its file and in its index.
func (f *agentFiles) wantSame(t testing.TB, s *Store, id string) {
	t.Helper()
	if got, want := dumpAgent(t, s, id), dumpAgent(t, f.s, id); got != want {
		t.Fatalf("of %s there is\n%s\nwant\n%s", id, got, want)
	}
	is, was := agent1(t, s, id), agent1(t, f.s, id)
	if got, want := fmt.Sprintf("%+v", is), fmt.Sprintf("%+v", was); got != want {
		t.Fatalf("%s is %s, want %s", id, got, want)
	}
}

func TestRebuiltAgentsAreWhatTheyWere(t *testing.T) {
	s, f := withFiles(t, newClock().options(testOptions(t)))
	makeReady(t, s, "box")
	spec := agentSpec("box")
	spec.InitialPrompt = "begin"
	_, err := s.CreateAgent(ctx, "agent", "web", spec)
	must(t, err)
	withAgent(t, s, "other")
	withAgent(t, s, "removed")
	makeIdle(t, s, "agent")
	claim(t, s, "agent")
	prompt(t, s, "agent", "next")
	ingest(t, s, "agent", said(messageBegins("m"), partEvent("m", 0, "a"), partEvent("m", 0, "ab"), messageEnds("m"), checkpointEvent("c"))...)
	_, err = s.RequestAgentDelete(ctx, "removed")
	must(t, err)
	must(t, s.RemoveAgent(ctx, "removed"))
	r := rebuiltAgents(t, f.root)
	for _, id := range []string{"agent", "other"} {
		f.wantSame(t, r, id)
	}
	if a, err := r.AgentByName(ctx, "web"); err != nil || a.ID != "agent" || a.Status.GetState() != agentBusy || a.Queued != 1 {
		t.Errorf("the name leads to %+v, %v", a, err)
	}
	makeReady(t, r, "box")
	for _, id := range []string{"agent", "removed"} {
		if _, err := r.CreateAgent(ctx, id, "", agentSpec("box")); reasonOf(err) != "AGENT_ID_ALREADY_EXISTS" {
			t.Errorf("%s: %v", id, err)
		}
	}
	if sb := get1(t, r, "box"); !slices.Equal(sb.Agents, []string{"agent", "other"}) {
		t.Errorf("a new sandbox of that ID has %v", sb.Agents)
	}
}

// TestAReservedIDIsNotHandedOver: the mirror is where it came from, and what is handed over there becomes the file of an agent.
func TestAReservedIDIsNotHandedOver(t *testing.T) {
	s, f := withFiles(t, testOptions(t))
	must(t, s.ReserveAgents(ctx, []*storev1.RemovedAgent{{AgentId: "removed", CreatedAt: 1}}))
	if _, err := os.Stat(filepath.Join(f.root, recordfile.AgentFileName("removed"))); !os.IsNotExist(err) {
		t.Errorf("its file: %v", err)
	}
}

// TestAgentsComeBackAsOfAnyChange: after a kill at each end of a change, or within the next one.
func TestAgentsComeBackAsOfAnyChange(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m, f := newMirroredMachine(t, rt)
		defer func() { must(t, m.s.Close()) }()
		rt.Repeat(m.actions())
		for _, id := range slices.Sorted(maps.Keys(f.seen)) {
			f.checkCuts(rt, id)
		}
		all := rebuiltAgents(t, f.root)
		for _, id := range m.s.AgentIDs() {
			f.wantSame(t, all, id)
		}
	})
}

func newMirroredMachine(t testing.TB, rt *rapid.T) (*agentMachine, *agentFiles) {
	o, c := testOptions(t), newClock()
	o.Path = filepath.Join(fastDir(t), "ids.db")
	f := newAgentFiles(t, filepath.Join(fastDir(t), "agents"))
	o.AgentMirror = f
	s, err := Open(ctx, c.options(o))
	must(t, err)
	f.s = s
	makeReady(t, s, "box")
	return &agentMachine{t: rt, tb: t, s: s, clock: c, opened: func(s *Store) { f.s = s }, m: agentModel{
		up: true, idleFrom: c.at, plain: map[string]bool{}, agents: map[string]*modelAgent{}, reserved: map[string]bool{},
	}}, f
}

// checkCuts rebuilds from the file as it was after some of the changes, with a part of the next one behind it.
func (f *agentFiles) checkCuts(rt *rapid.T, id string) {
	file, seen := f.file(id), f.seen[id]
	if len(seen) == 0 || int64(len(file)) != seen[len(seen)-1].size {
		rt.Fatalf("the file of %s has %d bytes after %d changes", id, len(file), len(seen))
	}
	for range 3 {
		i := rapid.IntRange(0, len(seen)-1).Draw(rt, "changes")
		next := int64(len(file))
		if i+1 < len(seen) {
			next = max(seen[i+1].size-1, seen[i].size)
		}
		cut := rapid.Int64Range(seen[i].size, next).Draw(rt, "cut")
		root := filepath.Join(fastDir(f.t), "agents")
		must(f.t, os.Mkdir(root, 0o700))
		must(f.t, os.WriteFile(filepath.Join(root, recordfile.AgentFileName(id)), bytes.Clone(file[:cut]), 0o600))
		s := rebuiltAgents(f.t, root)
		if got := dumpAgent(f.t, s, id); got != seen[i].records {
			rt.Fatalf("after %d changes and %d bytes there is of %s\n%s\nwant\n%s", i+1, cut-seen[i].size, id, got, seen[i].records)
		}
		must(f.t, s.Close())
	}
}
