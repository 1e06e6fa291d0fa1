package store

import (
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestACorruptAgentIsQuarantined(t *testing.T) {
	for _, bucket := range []string{bucketAgentConfig, bucketAgentDesired, bucketAgentStatus} {
		t.Run(bucket, func(t *testing.T) {
			s := open(t, testOptions(t))
			withAgent(t, s, "bad")
			withAgent(t, s, "good")
			makeIdle(t, s, "good")
			s = spoil(t, s, bucket, []byte("bad"))
			bad, err := s.Agent(ctx, "bad")
			if !errdefs.IsDataLoss(err) || !bad.Corrupt || bad.SandboxID != "box" {
				t.Fatalf("%+v, %v", bad, err)
			}
			if ids := s.LiveAgentIDs(); len(ids) != 1 || ids[0] != "good" || len(s.Agents(AgentFilter{})) != 2 {
				t.Errorf("live: %v", ids)
			}
			for what, err := range writesToAgent(s, "bad") {
				if !errdefs.IsDataLoss(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			makeBusy(t, s, "good", "p-1")
			_, err = s.RequestDelete(ctx, "box", "delete_requested")
			must(t, err)
			endExec(t, s, "good.1")
			must(t, s.RemoveAgent(ctx, "good"))
			report(t, s, "box", phase(agboxv1.EventType_SANDBOX_DELETED, deleted))
		})
	}
}

func writesToAgent(s *Store, id string) map[string]error {
	_, run := s.RequestAgentRun(ctx, id)
	_, del := s.RequestAgentDelete(ctx, id)
	_, queue := s.QueuePrompt(ctx, id, "p-1", "text")
	_, _, claim := s.ClaimPrompt(ctx, id, 0, Claim{})
	_, transition := s.TransitionAgent(ctx, id, Transition{Trigger: terminated})
	return map[string]error{
		"run": run, "delete": del, "queue": queue, "claim": claim, "transition": transition, "remove": s.RemoveAgent(ctx, id),
	}
}

// TestTheStateOfAnOldRecordIsDerivedFromItsWords: an upgrade must not fail a healthy agent.
func TestTheStateOfAnOldRecordIsDerivedFromItsWords(t *testing.T) {
	s := open(t, testOptions(t))
	want := map[string]agboxv1.AgentState{}
	for state := agentPending; state <= agentStopped; state++ {
		id := fmt.Sprintf("agent-%d", state)
		inState(t, s, id, state)
		want[id] = state
	}
	want["agent-2"] = agentIdle // a starting agent is indistinguishable from a running one
	_ = inState(t, s, "ended", agentIdle)
	endExec(t, s, "ended.1")
	want["ended"] = agentStopped
	want["agent-5"] = agentPending // never started
	withAgent(t, s, "none")
	want["none"] = agentPending
	must(t, s.update(ctx, func(tx *txn) error {
		for _, id := range latestKeys(tx.group.agents, tx.index.agents) {
			d := tx.draft(tx.agentBefore(id))
			d.Status.State = 0
			d.put(bucketAgentStatus, id, d.Status)
		}
		tx.delete(bucketAgentStatus, "none")
		return nil
	}))
	s = reopen(t, s)
	for id, state := range want {
		if got := agent1(t, s, id).Status.GetState(); got != state {
			t.Errorf("%s is %s, want %s", id, got, state)
		}
	}
	if c := s.Corrupt(); len(c) > 0 {
		t.Errorf("corrupt: %v", c)
	}
}

func TestAStateOfALaterVersionIsQuarantined(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	must(t, s.update(ctx, func(tx *txn) error {
		tx.put(bucketAgentStatus, "agent", &agentStatus{State: 77})
		return nil
	}))
	s = reopen(t, s)
	if _, err := s.Agent(ctx, "agent"); !errdefs.IsDataLoss(err) {
		t.Errorf("%v", err)
	}
}

func withAgents(t testing.TB, n int) *Store {
	t.Helper()
	s := open(t, testOptions(t))
	makeReady(t, s, "box")
	fill(t, s, n, func(i int) {
		id := fmt.Sprintf("agent-%04d", i)
		withAgent(t, s, id)
		makeIdle(t, s, id)
	})
	return s
}

// BenchmarkOpenWithAgents opens a file with 1,000 idle agents in one sandbox.
func BenchmarkOpenWithAgents(b *testing.B) {
	s := withAgents(b, 1000)
	must(b, s.Close())
	for b.Loop() {
		s, err := Open(ctx, s.o)
		must(b, err)
		must(b, s.Close())
	}
}

// BenchmarkLoadAgents measures what 1,000 agents add to opening a file.
func BenchmarkLoadAgents(b *testing.B) {
	s := withAgents(b, 1000)
	for b.Loop() {
		must(b, s.db.View(func(tx *bolt.Tx) error {
			fresh := &Store{o: s.o, corrupt: s.corrupt}
			fresh.index.facts = newFacts()
			if of := fresh.loadAgents(tx); len(of["box"]) != 1000 {
				b.Fatal(len(of["box"]))
			}
			return nil
		}))
	}
}

// BenchmarkTurn measures the store's cost of one turn: a prompt, its claim, and the answer with its result.
func BenchmarkTurn(b *testing.B) {
	s := open(b, testOptions(b))
	withAgent(b, s, "agent")
	makeIdle(b, s, "agent")
	for n := 0; b.Loop(); n++ {
		turn(b, s, n, 3, "text")
	}
}
