package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/containerd/errdefs"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

var errKilled = errors.New("killed")

// killer simulates the death of the daemon before or after chosen commits: the commit fails, and its caller does not know its outcome.
type killer struct {
	decide func() (before, after bool)
	kills  int
}

func (k *killer) commit(tx *bolt.Tx) error {
	before, after := k.decide()
	if before {
		k.kills++
		return errors.Join(errKilled, tx.Rollback())
	}
	err := tx.Commit()
	if err == nil && after {
		k.kills++
		return errKilled
	}
	return err
}

// script returns the output of a process; an item's index is its offset.
func script() []AgentOutput {
	var out []AgentOutput
	out = append(out, AgentOutput{Ready: true, SessionID: "session"})
	for turn := range 2 {
		for i := range 3 {
			id := fmt.Sprintf("m.%d.%d", turn, i)
			out = append(out, said(messageBegins(id), partEvent(id, 0, "a"), partEvent(id, 0, "ab"), partEvent(id, 1, "c"), messageEnds(id))...)
		}
		out = append(out, said(checkpointEvent("so far"))...)
		out = append(out, resultOutput("end_turn"))
	}
	return out
}

// drive takes the next step for the agent of a script, as a controller would, using only what the store returns. done: no step is left.
func drive(s *Store, batch int) (done bool, err error) {
	a, err := s.Agent(ctx, "agent")
	if errdefs.IsNotFound(err) {
		_, err = s.CreateAgent(ctx, "agent", "name", agentSpec("box"))
		return false, err
	}
	if err != nil {
		return false, err
	}
	switch a.Status.GetState() {
	case agentPending:
		_, err = s.TransitionAgent(ctx, "agent", spawning(a))
		return false, err
	case agentStopped:
		return true, nil
	case agentIdle:
		if n := a.Status.GetPrompts(); n < 2 {
			_, err = s.QueuePrompt(ctx, "agent", fmt.Sprintf("p-%d", n), "text")
			return false, err
		}
		if a.Queued > 0 {
			_, _, err = s.ClaimPrompt(ctx, "agent", a.Status.GetVersion(), Claim{})
			return false, err
		}
		_, err = s.TransitionAgent(ctx, "agent", Transition{Incarnation: 1, Trigger: exited})
		return false, err
	}
	return false, listen(s, batch)
}

// listen ingests a part of the script from the store's position, at most to the end of a turn.
func listen(s *Store, batch int) error {
	all := script()
	from, err := s.AgentPosition(ctx, "agent")
	if err != nil {
		return err
	}
	var out []AgentOutput
	for _, o := range all[from.GetStdoutOffset():] {
		if out = append(out, o); o.Ready || o.Result || len(out) == batch {
			break
		}
	}
	to := proto.CloneOf(from)
	to.StdoutOffset += int64(len(out))
	return s.Ingest(ctx, "agent", 1, from, to, out)
}

// live drives the script to its end across all kills and returns the stored history.
func live(t *testing.T, k *killer, batch int, look func(*Store)) (history []byte) {
	t.Helper()
	o := newClock().options(testOptions(t))
	o.OnFatal = func(error) {}
	s, err := Open(ctx, o)
	must(t, err)
	makeReady(t, s, "box")
	for done := false; !done; {
		s.o.commit = k.commit
		for err = nil; err == nil && !done; {
			done, err = drive(s, batch)
		}
		if err != nil && !errors.Is(err, errKilled) && !errdefs.IsUnavailable(err) {
			t.Fatal(err)
		}
		must(t, s.Close())
		checkDatabase(t, o.Path)
		s, err = Open(ctx, o)
		must(t, err)
		look(s)
	}
	for _, ev := range agentEvents(t, s, "agent") {
		history = append(history, message(t, ev)...)
	}
	must(t, s.Close())
	return history
}

// TestAKillAtEachCommitLeavesTheSameHistory: nothing is ingested twice, nothing is lost, and no transaction is half written, which the
// check of the database would find.
func TestAKillAtEachCommitLeavesTheSameHistory(t *testing.T) {
	commits := 0
	want := live(t, &killer{decide: func() (bool, bool) { commits++; return false, false }}, 4, func(*Store) {})
	kills := 0
	step := inShort(3, 1)
	for at := rand.IntN(step); at < commits; at += step {
		for _, after := range []bool{false, true} {
			n := 0
			k := &killer{decide: func() (bool, bool) { n++; return n == at+1 && !after, n == at+1 && after }}
			if got := live(t, k, 4, func(*Store) {}); !bytes.Equal(got, want) {
				t.Fatalf("killed at commit %d, after it: %v: another history", at, after)
			}
			kills += k.kills
		}
	}
	t.Logf("%d commits, %d kills", commits, kills)
}

// TestTwoHundredKillsLeaveTheSameHistory kills at random, several times per life; 40 kills with -short.
func TestTwoHundredKillsLeaveTheSameHistory(t *testing.T) {
	want := live(t, &killer{decide: func() (bool, bool) { return false, false }}, 3, func(*Store) {})
	r := rand.New(rand.NewPCG(5, 200))
	for kills := 0; kills < inShort(40, 200); {
		k := &killer{decide: func() (bool, bool) { n := r.IntN(8); return n == 0, n == 1 }}
		var last *storev1.AgentStatus
		got := live(t, k, 3, func(s *Store) {
			st := status(s)
			if st.GetVersion() < last.GetVersion() || st.GetTransitions() < last.GetTransitions() || st.GetLastSequence() < last.GetLastSequence() {
				t.Fatalf("after %v there is %v", last, st)
			}
			last = st
		})
		if !bytes.Equal(got, want) {
			t.Fatalf("after %d kills: another history", k.kills)
		}
		kills += k.kills
	}
}

func status(s *Store) *storev1.AgentStatus {
	a, _ := s.Agent(ctx, "agent") // none yet: no status
	return a.Status
}
