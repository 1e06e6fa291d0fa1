package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// dumped is all that a store has of an agent, in parts.
func dumped(t testing.TB, s *Store, id string) (parts []*storev1.AgentChange) {
	t.Helper()
	must(t, s.DumpAgent(ctx, id, func(c *storev1.AgentChange) error {
		parts = append(parts, proto.CloneOf(c))
		return nil
	}))
	return parts
}

func replay(parts []*storev1.AgentChange) func(func(*storev1.AgentChange) error) error {
	return func(fn func(*storev1.AgentChange) error) error {
		for _, c := range parts {
			if err := fn(c); err != nil {
				return err
			}
		}
		return nil
	}
}

func newStore(t testing.TB) *Store {
	t.Helper()
	o := testOptions(t)
	o.Path = filepath.Join(fastDir(t), "ids.db")
	o.Rebuild = true
	return open(t, o)
}

// longAgent has more than one part.
func longAgent(t testing.TB, s *Store) {
	t.Helper()
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	for i := range 12 {
		id := fmt.Sprint("m", i)
		ingest(t, s, "agent", said(messageBegins(id), partEvent(id, 0, strings.Repeat("x", 200<<10)), messageEnds(id))...)
	}
}

func TestADumpIsTheAgent(t *testing.T) {
	s := newStore(t)
	longAgent(t, s)
	parts := dumped(t, s, "agent")
	mark, err := s.AgentMark(ctx, "agent")
	must(t, err)
	for i, c := range parts {
		if c.GetBefore() != 0 || c.GetAfter() != mark || c.GetMore() != (i < len(parts)-1) || proto.Size(c) > dumpBytes+256<<10 {
			t.Errorf("part %d of %d: %d to %d, more %t, %d bytes", i, len(parts), c.GetBefore(), c.GetAfter(), c.GetMore(), proto.Size(c))
		}
	}
	if len(parts) < 3 || len(dumped(t, s, "nobody")) != 0 {
		t.Errorf("%d parts; of nobody there is something", len(parts))
	}
	r := newStore(t)
	rebuilt, err := r.RebuildAgent(ctx, "agent", replay(parts))
	if err != nil || !rebuilt || dumpAgent(t, r, "agent") != dumpAgent(t, s, "agent") {
		t.Errorf("rebuilt %t, %v, or something else", rebuilt, err)
	}
}

// TestARebuildThatIsCutOffIsBegunAgain: until its last transaction there is no agent, whatever was written.
func TestARebuildThatIsCutOffIsBegunAgain(t *testing.T) {
	s := newStore(t)
	longAgent(t, s)
	parts, cut := dumped(t, s, "agent"), errors.New("cut off")
	r := newStore(t)
	for n := range parts {
		_, err := r.RebuildAgent(ctx, "agent", func(fn func(*storev1.AgentChange) error) error {
			stray := &storev1.AgentOp{Kind: storev1.AgentRecordKind_AGENT_RECORD_KIND_EVENT, Key: encodeInt(uint64(n) + 1e6), Value: make([]byte, rebuildBytes)}
			return errors.Join(fn(&storev1.AgentChange{Ops: []*storev1.AgentOp{stray}}), replay(parts[:n])(fn), cut)
		})
		if !errors.Is(err, cut) || len(r.AgentIDs()) != 0 {
			t.Fatalf("%v; there are %v", err, r.AgentIDs())
		}
		if r = reopen(t, r); len(r.AgentIDs()) != 0 {
			t.Fatalf("after a restart there are %v", r.AgentIDs())
		}
	}
	rebuilt, err := r.RebuildAgent(ctx, "agent", replay(parts))
	if err != nil || !rebuilt || dumpAgent(t, r, "agent") != dumpAgent(t, s, "agent") {
		t.Fatalf("rebuilt %t, %v, or something else", rebuilt, err)
	}
	before := dumpAgent(t, r, "agent")
	for range 2 { // what is there is never changed
		if rebuilt, err := r.RebuildAgent(ctx, "agent", replay(parts[:1])); err != nil || rebuilt || dumpAgent(t, r, "agent") != before {
			t.Errorf("again: %t, %v", rebuilt, err)
		}
		r = reopen(t, r)
	}
}

// TestWhatMakesNoAgentIsRefused, and nothing is kept of it.
func TestWhatMakesNoAgentIsRefused(t *testing.T) {
	s := newStore(t)
	longAgent(t, s)
	whole := dumped(t, s, "agent")
	set := func(kind storev1.AgentRecordKind, key, value []byte) *storev1.AgentChange {
		return &storev1.AgentChange{AgentId: "agent", Ops: []*storev1.AgentOp{{Kind: kind, Key: key, Value: value}}}
	}
	encoded := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		must(t, err)
		return b
	}
	for name, c := range map[string]*storev1.AgentChange{
		"a kind that nobody knows": set(77, nil, nil),
		"no kind":                  set(0, []byte("k"), nil),
		"an event without a key":   set(storev1.AgentRecordKind_AGENT_RECORD_KIND_EVENT, nil, []byte("x")),
		"a key that is too long":   set(storev1.AgentRecordKind_AGENT_RECORD_KIND_EVENT, make([]byte, bolt.MaxKeySize+1), []byte("x")),
		"no number of an ID":       set(storev1.AgentRecordKind_AGENT_RECORD_KIND_ID, nil, []byte("x")),
		"no config":                {Ops: []*storev1.AgentOp{{Kind: storev1.AgentRecordKind_AGENT_RECORD_KIND_CONFIG, Delete: true}}},
		"garbage for a status":     set(storev1.AgentRecordKind_AGENT_RECORD_KIND_STATUS, nil, []byte{0xff}),
		"a state of its own":       set(storev1.AgentRecordKind_AGENT_RECORD_KIND_STATUS, nil, encoded(&agentStatus{State: 99})),
		"no intent":                set(storev1.AgentRecordKind_AGENT_RECORD_KIND_DESIRED, nil, nil),
	} {
		r := newStore(t)
		_, err := r.RebuildAgent(ctx, "agent", replay(append(slices.Clone(whole), c)))
		if !errdefs.IsDataLoss(err) || len(r.AgentIDs()) != 0 {
			t.Errorf("%s: %v; there are %v", name, err, r.AgentIDs())
		}
		must(t, r.db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
				if k, _ := b.Cursor().First(); k != nil && strings.HasPrefix(string(bucket), "agent") {
					t.Errorf("%s: left is %s of %s", name, k, bucket)
				}
				return nil
			})
		}))
	}
}

// TestHostileOpsOnlyMakeOneAgent: whatever a file says, nothing else changes and the store opens again.
func TestHostileOpsOnlyMakeOneAgent(t *testing.T) {
	s := newStore(t)
	longAgent(t, s)
	whole := dumped(t, s, "agent")
	r := newStore(t)
	makeReady(t, r, "other")
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		id := fmt.Sprint("agent-", n)
		parts := slices.Clone(whole[:1])
		for range rapid.IntRange(1, 20).Draw(rt, "ops") {
			parts = append(parts, &storev1.AgentChange{Ops: []*storev1.AgentOp{{
				Kind: storev1.AgentRecordKind(rapid.Int32Range(1, 9).Draw(rt, "kind")), Key: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(rt, "key"),
				Value: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "value"), Delete: rapid.Bool().Draw(rt, "delete"),
			}}})
		}
		_, err := r.RebuildAgent(ctx, id, replay(parts))
		if err != nil && !errdefs.IsDataLoss(err) {
			rt.Fatal(err)
		}
	})
	r = reopen(t, r)
	if get1(t, r, "other").State != ready {
		t.Error("another sandbox has changed")
	}
}

// TestAnAgentAndItsSandboxMeetWhicheverComesFirst, and the agent is what it was beside its exec.
func TestAnAgentAndItsSandboxMeetWhicheverComesFirst(t *testing.T) {
	for _, agentFirst := range []bool{false, true} {
		o, m := mirrored(t, testOptions(t))
		s := open(t, o)
		withAgent(t, s, "agent")
		makeIdle(t, s, "agent")
		makeBusy(t, s, "agent", "p")
		parts := dumped(t, s, "agent")
		r := newStore(t)
		steps := []func(){
			func() { adopt(t, r, m.rebuilt()...) },
			func() { _, err := r.RebuildAgent(ctx, "agent", replay(parts)); must(t, err) },
		}
		if agentFirst {
			slices.Reverse(steps)
		}
		for _, step := range steps {
			step()
		}
		must(t, r.RebuildDone(ctx))
		sb, is, was := get1(t, r, "box"), agent1(t, r, "agent"), agent1(t, s, "agent")
		if !slices.Equal(sb.Agents, []string{"agent"}) || !sb.IdleSince.IsZero() || !slices.Equal(sb.ActiveExecs, []string{"agent.1"}) {
			t.Errorf("the sandbox is %+v", sb)
		}
		if !proto.Equal(is.Status, was.Status) || is.Status.GetState() != agentBusy {
			t.Errorf("the agent is %v, and was %v", is.Status, was.Status)
		}
		must(t, r.Close())
		if all := findings(t, r.o.Path); len(all) > 0 {
			t.Errorf("findings: %v", all)
		}
	}
}

// TestAnAgentGoesOnBehindAProcessThatItsRecordsDoNotKnow: the host has died before they were on disk.
func TestAnAgentGoesOnBehindAProcessThatItsRecordsDoNotKnow(t *testing.T) {
	for _, lives := range []bool{false, true} {
		o, m := mirrored(t, testOptions(t))
		s := open(t, o)
		withAgent(t, s, "agent")
		withAgent(t, s, "agent-2") // whose execs sort beside
		if lives {
			makeIdle(t, s, "agent")
			makeBusy(t, s, "agent", "p")
		}
		parts := dumped(t, s, "agent")
		if lives {
			trigger(t, s, "agent", crashed)
			endExec(t, s, "agent.1")
		}
		spawn(t, s, "agent")
		r := newStore(t)
		adopt(t, r, m.rebuilt()...)
		_, err := r.RebuildAgent(ctx, "agent", replay(parts))
		must(t, err)
		must(t, r.RebuildDone(ctx))
		a, want := agent1(t, r, "agent"), agent1(t, s, "agent").Status.GetIncarnation()
		if a.Status.GetState() != agentFailed || a.Status.GetIncarnation() != want || lives != (a.Queued == 1) {
			t.Errorf("lives %t: it is %v with %d prompts", lives, a.Status, a.Queued)
		}
		must(t, r.EndExec(ctx, agentExecID("agent", want), finished()))
		if a := spawn(t, r, "agent"); a.Status.GetIncarnation() != want+1 {
			t.Errorf("the next one is %d", a.Status.GetIncarnation())
		}
		must(t, r.Close())
		if all := findings(t, r.o.Path); len(all) > 0 {
			t.Errorf("findings: %v", all)
		}
	}
}

// TestANameIsOnlyTakenOnce: of two that had it by what the files say.
func TestANameIsOnlyTakenOnce(t *testing.T) {
	s := newStore(t)
	makeReady(t, s, "box")
	_, err := s.CreateAgent(ctx, "first", "web", agentSpec("box"))
	must(t, err)
	first := dumped(t, s, "first")
	_, err = s.RequestAgentDelete(ctx, "first")
	must(t, err)
	_, err = s.CreateAgent(ctx, "second", "web", agentSpec("box"))
	must(t, err)
	r := newStore(t)
	for id, parts := range map[string][]*storev1.AgentChange{"first": first, "second": dumped(t, s, "second")} {
		_, err := r.RebuildAgent(ctx, id, replay(parts))
		must(t, err)
	}
	names := ""
	for _, a := range r.Agents(AgentFilter{}) {
		names += a.Name
	}
	if a, err := r.AgentByName(ctx, "web"); err != nil || names != "web" || a.Name != "web" {
		t.Errorf("the names are %q; %v", names, err)
	}
}

// TestOneFileOfAFloodIsAsLargeAsWhatCounts: many snapshots of parts, each far larger than what is new in it.
func TestTheFileOfAFloodIsAboutAsLargeAsWhatCounts(t *testing.T) {
	o := testOptions(t)
	o.Path = filepath.Join(fastDir(t), "ids.db")
	s, f := withFiles(t, o)
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	run, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.Run(run, s); close(ended) }()
	text := strings.Repeat("x", 100<<10)
	for i := range inShort(8, 30) {
		id := fmt.Sprint("m", i)
		ingest(t, s, "agent", said(messageBegins(id))...)
		for range 4 {
			ingest(t, s, "agent", said(partEvent(id, 0, text))...)
		}
		ingest(t, s, "agent", said(messageEnds(id))...)
	}
	stop()
	<-ended
	must(t, f.CatchUp(ctx, s))
	kept := agent1(t, s, "agent").Status.GetEventBytes()
	if size := len(f.file("agent")); uint64(size) > 2*kept+2<<20 {
		t.Errorf("%d bytes for %d that count", size, kept)
	}
	f.wantSame(t, rebuiltAgents(t, f.root), "agent")
}
