package store

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
)

func init() { children["agents"] = transitUntilKilled }

// transitUntilKilled takes agents through turns as fast as it can and prints what was acknowledged, a line each.
func transitUntilKilled() int {
	ctx := context.Background()
	s, err := Open(ctx, Options{
		Path: os.Getenv(pathEnv), InitialMmapSize: 64 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	ack := func(a Agent) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println("agent", a.ID, a.Status.GetTransitions())
	}
	fmt.Println("open")
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			id := fmt.Sprintf("agent-%d-%d", os.Getpid(), w)
			if err := turnsOf(s, id, ack); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
	}
	wg.Wait()
	return 0
}

func turnsOf(s *Store, id string, ack func(Agent)) error {
	a, err := s.CreateAgent(ctx, id, "", agentSpec("box"))
	for n := 0; err == nil; n++ {
		switch a.Status.GetState() {
		case agentIdle:
			if _, err = s.QueuePrompt(ctx, id, fmt.Sprintf("p-%d", n), "text"); err == nil {
				a, _, err = s.ClaimPrompt(ctx, id, 0, Claim{})
			}
		case agentStarting:
			a, err = s.TransitionAgent(ctx, id, Transition{Incarnation: a.Status.GetIncarnation(), Trigger: connected})
		case agentBusy:
			a, err = endTurnOf(s, a, n)
		default:
			a, err = s.TransitionAgent(ctx, id, spawning(a))
		}
		if err == nil {
			ack(a)
		}
	}
	return err
}

// endTurnOf ends some turns with a result, and others with a crash.
func endTurnOf(s *Store, a Agent, n int) (Agent, error) {
	incarnation := a.Status.GetIncarnation()
	from, err := s.AgentPosition(ctx, a.ID)
	if err != nil {
		return a, err
	}
	to := proto.CloneOf(from)
	to.StdoutOffset++
	out := said(messageBegins(fmt.Sprint(n)), partEvent(fmt.Sprint(n), 0, "a"), partEvent(fmt.Sprint(n), 0, "ab"))
	if n%3 > 0 {
		out = append(out, said(messageEnds(fmt.Sprint(n)))...)
		out = append(out, resultOutput("end_turn"))
	}
	if err := s.Ingest(ctx, a.ID, incarnation, from, to, out); err != nil || n%3 > 0 {
		now, _ := s.Agent(ctx, a.ID) // it is there
		return now, err
	}
	if err := s.EndExec(ctx, a.ExecID(incarnation), finished()); err != nil {
		return a, err
	}
	return s.TransitionAgent(ctx, a.ID, Transition{Incarnation: incarnation, Trigger: crashed})
}

// TestKilledInTheMiddleOfTransitions kills a process with real signals; what it was told to be recorded is, and whole.
func TestKilledInTheMiddleOfTransitions(t *testing.T) {
	o := testOptions(t)
	o.CheckProgram = childProgram(t, "check")
	s := open(t, o)
	makeReady(t, s, "box")
	must(t, s.Close())
	acked := 0
	for round := 0; round < inShort(4, 10) || acked < 100 && round < 100; round++ {
		newest := map[string]uint64{}
		for _, line := range killAWriterAs(t, "agents", o.Path) {
			var id string
			var n uint64
			if _, err := fmt.Sscanf(line, "agent %s %d", &id, &n); err != nil {
				t.Fatalf("acknowledgement %q: %v", line, err)
			}
			newest[id] = max(newest[id], n)
			acked++
		}
		checkDatabase(t, o.Path)
		s := open(t, o)
		for id, n := range newest {
			checkTransitions(t, s, id, n)
		}
		must(t, s.Close())
	}
	if acked < 100 {
		t.Fatalf("only %d acknowledged transitions: the test shows nothing", acked)
	}
	t.Logf("%d acknowledged transitions", acked)
}

// checkTransitions: none that was acknowledged is missing, and the state is that of the newest.
func checkTransitions(t *testing.T, s *Store, id string, acked uint64) {
	t.Helper()
	a := agent1(t, s, id)
	n := a.Status.GetTransitions()
	newest, err := s.Transitions(ctx, id, n-1, 1)
	must(t, err)
	if n < acked || len(newest) != 1 || newest[0].GetTo() != a.Status.GetState() {
		t.Fatalf("%d transitions of %s were acknowledged, and the newest of %v is %v", acked, id, a.Status, newest)
	}
	if p, err := s.ClaimedPrompt(ctx, id); err != nil || (p != nil) != (a.Status.GetState() == agentBusy) {
		t.Fatalf("%v with prompt %v, %v", a.Status, p, err)
	}
}
