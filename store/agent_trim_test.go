package store

import (
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// turn runs a whole turn with a message of the given number of parts.
func turn(t testing.TB, s *Store, n, parts int, text string) {
	t.Helper()
	makeBusy(t, s, "agent", fmt.Sprintf("p-%d", n))
	id := fmt.Sprintf("m.%d", n)
	out := said(messageBegins(id))
	for i := range parts {
		out = append(out, said(partEvent(id, uint32(i), text))...)
	}
	out = append(out, said(messageEnds(id))...)
	ingest(t, s, "agent", append(out, resultOutput("end_turn"))...)
}

// bounded checks that the history is within its limits and starts with a turn.
func bounded(t testing.TB, s *Store, slack uint64) {
	t.Helper()
	st := agent1(t, s, "agent").Status
	if st.GetEvents() > maxAgentEvents+slack || st.GetEventBytes() > maxAgentBytes+slack<<10 {
		t.Fatalf("%d events, %d bytes", st.GetEvents(), st.GetEventBytes())
	}
	first, err := s.AgentEvents(ctx, "agent", 0, 1)
	must(t, err)
	if st.GetTruncatedThrough() > 0 && !beginsTurn(first[0]) {
		t.Fatalf("after the cut at %d it begins with %v", st.GetTruncatedThrough(), first[0])
	}
}

func TestTheOldestTurnsGoWhole(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	ingest(t, s, "agent", said(checkpointEvent("half done"))...)
	for n := range 16 {
		turn(t, s, n, 990, "text")
		bounded(t, s, 10)
		if st := agent1(t, s, "agent").Status; st.GetTruncatedThrough() > 0 && st.GetEvents() < maxAgentEvents-1000 {
			t.Fatalf("more than the oldest turn went: %d events are left", st.GetEvents())
		}
	}
	st := agent1(t, s, "agent").Status
	if st.GetTruncatedThrough() == 0 || st.GetCheckpointSequence() <= st.GetTruncatedThrough() {
		t.Fatalf("nothing went, or the checkpoint did: %v", st)
	}
	var cuts, turns uint64
	var again string
	for _, ev := range agentEvents(t, s, "agent") {
		if cut := ev.GetTruncation(); cut != nil {
			cuts, turns = cuts+1, turns+cut.GetTurns()
		}
		if c := ev.GetCheckpoint(); c != nil && ev.GetSequence() == st.GetCheckpointSequence() {
			again = c.GetText()
		}
	}
	if cuts == 0 || turns == 0 || again != "half done" {
		t.Errorf("%d cuts of %d turns, and the checkpoint says %q", cuts, turns, again)
	}
	inFile := 0
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		inFile = tx.Bucket([]byte(prefixAgentEvents + "agent")).Stats().KeyN
		return nil
	}))
	if inFile > maxAgentEvents+2000 {
		t.Errorf("%d events are in the file", inFile)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	s = open(t, s.o)
	if now := agent1(t, s, "agent").Status; now.GetEvents() != st.GetEvents() {
		t.Errorf("%v became %v", st, now)
	}
	anchors(t, s, st.GetTruncatedThrough(), st.GetLastSequence())
}

func anchors(t *testing.T, s *Store, through, last uint64) {
	t.Helper()
	for after, ok := range map[uint64]bool{0: true, 1: false, through - 1: false, through: true, through + 1: true, last: true, last + 1: false, 1<<64 - 1: false} {
		_, err := s.AgentEvents(ctx, "agent", after, 0)
		if (err == nil) != ok || !ok && reasonOf(err) != "AGENT_EVENT_SEQUENCE_EXPIRED" {
			t.Errorf("after %d: %v", after, err)
		}
	}
}

func TestBytesAreBoundedToo(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	text := strings.Repeat("x", 256<<10)
	for n := range 40 {
		turn(t, s, n, 8, text)
		bounded(t, s, 2100) // one turn was added since the cut
	}
	if agent1(t, s, "agent").Status.GetTruncatedThrough() == 0 {
		t.Fatal("nothing went")
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	_ = open(t, s.o)
}

func TestATurnThatIsTooLargeByItselfLosesItsBeginning(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	for n := range 130 {
		var out []AgentOutput
		for i := range 100 {
			id := fmt.Sprintf("m.%d.%d", n, i)
			out = append(out, said(messageBegins(id))...)
		}
		ingest(t, s, "agent", out...)
		if st := agent1(t, s, "agent").Status; st.GetEvents() > maxAgentEvents+100 {
			t.Fatalf("%v", st)
		}
	}
	ingest(t, s, "agent", resultOutput("end_turn"))
	st := agent1(t, s, "agent").Status
	cuts := 0
	for _, ev := range agentEvents(t, s, "agent") {
		if ev.GetEventType() == agboxv1.AgentEventType_AGENT_TRUNCATED {
			cuts++
		}
	}
	if st.GetTruncatedThrough() == 0 || cuts == 0 || cuts > 4 {
		t.Errorf("%d cuts, %v", cuts, st)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	_ = open(t, s.o)
}
