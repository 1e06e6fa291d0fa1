package store

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
)

func init() { children["agents"] = transitUntilKilled }

// killedAgents is the number of agents that write concurrently.
const killedAgents = 8

// transitUntilKilled advances each agent from its recorded state, as fast as it can, and prints what was acknowledged.
func transitUntilKilled() int {
	s, err := Open(context.Background(), newClock().options(Options{
		Path: os.Getenv(pathEnv), InitialMmapSize: 64 << 20, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range killedAgents {
		wg.Go(func() {
			for id := fmt.Sprint("agent-", w); ; {
				a, err := goOn(s, id)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println("agent", id, a.Status.GetVersion())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return 0
}

// goOn takes the next step of an agent's life, which depends only on its record. So every interrupted life is a prefix of the same life.
func goOn(s *Store, id string) (Agent, error) {
	a, err := s.Agent(ctx, id)
	switch n := a.Status.GetPrompts(); {
	case errdefs.IsNotFound(err):
		return s.CreateAgent(ctx, id, "", agentSpec("box"))
	case err != nil:
		return a, err
	case a.Status.GetState() == agentStarting:
		return s.TransitionAgent(ctx, id, Transition{Incarnation: a.Status.GetIncarnation(), Trigger: connected})
	case a.Status.GetState() == agentIdle && a.Queued > 0:
		a, _, err = s.ClaimPrompt(ctx, id, a.Status.GetVersion(), Claim{})
		return a, err
	case a.Status.GetState() == agentIdle, a.Status.GetState() == agentBusy && a.Queued == 0 && n%2 == 1:
		_, err = s.QueuePrompt(ctx, id, fmt.Sprint("p-", n), "text")
	case a.Status.GetState() == agentBusy:
		err = workOn(s, a)
	default:
		return s.TransitionAgent(ctx, id, spawning(a))
	}
	now, _ := s.Agent(ctx, id) // it exists
	return now, err
}

// workOn ingests the first half of an answer, then the other half; or the process ends in between, in each of several ways.
func workOn(s *Store, a Agent) error {
	from, err := s.AgentPosition(ctx, a.ID)
	if err != nil {
		return err
	}
	to := proto.CloneOf(from)
	to.StdoutOffset++
	message := fmt.Sprintf("m-%d-%d", a.Status.GetIncarnation(), from.GetStdoutOffset()/2)
	out := said(messageBegins(message), partEvent(message, 0, "a"), partEvent(message, 0, "ab"))
	if half := from.GetStdoutOffset()%2 == 1; half {
		if n := a.Status.GetPrompts(); n%3 == 0 && a.Status.GetIncarnation() <= n {
			return endIn(s, a, []agboxv1.AgentTrigger{crashed, terminated, parked, exited, reconciled}[n%5])
		}
		out = append(said(partEvent(message, 1, "c"), checkpointEvent("so far"), messageEnds(message)), resultOutput("end_turn"))
	}
	return s.Ingest(ctx, a.ID, a.Status.GetIncarnation(), from, to, out)
}

func endIn(s *Store, a Agent, tr agboxv1.AgentTrigger) error {
	n := a.Status.GetIncarnation()
	if err := s.EndExec(ctx, execid.ForAgent(a.ID, n), finished()); err != nil {
		return err
	}
	_, err := s.TransitionAgent(ctx, a.ID, Transition{Incarnation: n, Trigger: tr, Parked: tr == parked})
	return err
}

// TestTwoHundredKillsAroundTransitions kills a process with real signals, twenty times on each of ten files. After each kill, every
// agent's state, transitions, events, version and queue equal those of an uninterrupted life in the same version, and are not older than
// what was acknowledged. Twenty kills with -short.
func TestTwoHundredKillsAroundTransitions(t *testing.T) {
	calm := &calmLife{s: withBox(t, newClock().options(testOptions(t))), pictures: map[uint64]string{}}
	var acked, kills atomic.Int64
	t.Run("files", func(t *testing.T) { // returns when all files are done
		for i := range inShort(1, 10) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				o := newClock().options(testOptions(t))
				must(t, withBox(t, o).Close())
				for range 20 {
					kills.Add(1)
					acked.Add(int64(killAndLook(t, o, calm)))
				}
			})
		}
	})
	t.Logf("%d kills, %d acknowledged steps, up to version %d", kills.Load(), acked.Load(), calm.newest)
	if acked.Load() < kills.Load() {
		t.Error("that is too little to show anything")
	}
}

func withBox(t *testing.T, o Options) *Store {
	t.Helper()
	s := open(t, o)
	makeReady(t, s, "box")
	return s
}

// killAndLook returns the number of steps acknowledged before the kill.
func killAndLook(t *testing.T, o Options, calm *calmLife) int {
	t.Helper()
	lines := killAmid(t, o.Path)
	checkDatabase(t, o.Path)
	s := open(t, o)
	defer func() { must(t, s.Close()) }()
	newest := map[string]uint64{}
	for _, line := range lines {
		var id string
		var version uint64
		if _, err := fmt.Sscanf(line, "agent %s %d", &id, &version); err != nil {
			t.Fatalf("acknowledgement %q: %v", line, err)
		}
		newest[id] = version
	}
	for id, version := range newest {
		if now := agent1(t, s, id).Status.GetVersion(); now < version {
			t.Fatalf("version %d of %s was acknowledged, and there is %d", version, id, now)
		}
	}
	for _, id := range s.AgentsOf("box") {
		got := picture(t, s, id)
		if want := calm.at(t, agent1(t, s, id).Status.GetVersion()); got != want {
			t.Fatalf("%s is in no state of an undisturbed life: got\n%s\nwant\n%s", id, got, want)
		}
	}
	return len(lines)
}

// killAmid kills a child after a random number of acknowledgements, or while it opens the file, and returns them.
func killAmid(t *testing.T, path string) (acked []string) {
	t.Helper()
	cmd, lines := startWriter(t, "agents", path)
	defer func() { _ = cmd.Process.Kill() }() // already killed, unless the test failed
	for range rand.IntN(120) {
		if !lines.Scan() {
			break
		}
		acked = append(acked, lines.Text())
	}
	time.Sleep(rand.N(2 * time.Millisecond)) // randomizes the moment of death
	must(t, cmd.Process.Kill())
	return append(acked, ackedUntilKilled(t, cmd, lines)...)
}
