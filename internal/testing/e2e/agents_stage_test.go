//go:build docker

package e2e

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// stage is a crew whose processes are brought into a condition while the daemon is away.
type stage struct {
	*crew
	before map[string]int    // transitions of each agent when the daemon was killed
	logs   map[string]string // where its first process prints
}

func newStage(c *crew) *stage { return &stage{c, map[string]int{}, map[string]string{}} }

// The first process of an agent leaves its number behind. Some wait for a file before they are ready, or in a turn.
const (
	program = `echo $$ >/workspace/$AGBOX_EXEC_ID.pid; trap 'exit 0' USR1
		if [ $AGBOX_INCARNATION = 1 ] && [ -n "$LATE" ]; then %s; fi
		exec /bin/testagent native`
	waiting = `while [ ! -e /workspace/$AGBOX_AGENT_ID.go ] && [ ! -e /workspace/all.go ]; do sleep 0.1; done`
	errand  = "run echo x >>/workspace/$AGBOX_AGENT_ID.given\necho begun\nrun " + waiting
)

func staged(was agboxv1.AgentState) func(*agboxv1.AgentSpec) {
	return func(spec *agboxv1.AgentSpec) {
		spec.Command = []string{"sh", "-c", fmt.Sprintf(program, waiting)}
		if was == agentStarting {
			spec.Envs = map[string]string{"LATE": "yes"}
		}
	}
}

// setUp hires the agent of a row, unless that is done while the daemon is away.
func (s *stage) setUp(r recovery) {
	s.Helper()
	if r.was == agboxv1.AgentState_AGENT_STATE_UNSPECIFIED {
		return
	}
	s.hire(r.id, "native", "native", staged(r.was))
	if r.was == agentBusy {
		s.tell(r.id, "errand", errand)
	}
}

// begun waits until the agent of a row is what the row wants it to be, its process included.
func (s *stage) begun(r recovery) {
	s.Helper()
	switch r.was {
	case agboxv1.AgentState_AGENT_STATE_UNSPECIFIED:
		return
	case agentBusy:
		s.said(r.id, "begun")
	case agentStarting:
		s.outside("for i in $(seq 300); do [ -s /workspace/" + r.id + ".1.pid ] && exit 0; sleep 0.1; done; exit 1")
	}
	s.awaitAgent(r.id, r.was)
	s.before[r.id] = len(strings.Fields(s.trail(r.id)))
	s.logs[r.id] = must(s.GetExec(s.ctx(), &agboxv1.GetExecRequest{ExecId: r.id + ".1"}))(s).GetExec().GetStdoutLogPath()
}

// outside runs a script in the container without the daemon.
func (s *stage) outside(script string) {
	s.Helper()
	args := []string{"exec", "-u", "0", naming.Primary(s.box), "sh", "-c", script}
	if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
		s.Fatalf("%s: %v: %s", script, err, out)
	}
}

// whileAway brings about what the rows want.
func (s *stage) whileAway() {
	s.Helper()
	for _, r := range recoveries {
		if r.away != nil {
			r.away(s, r.id)
		}
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	db := must(store.Open(context.Background(), store.Options{Path: s.data("ids.db"), InitialMmapSize: 64 << 20, Logger: quiet}))(s)
	for _, r := range recoveries {
		if r.record != nil {
			r.record(s, db, r.id)
		}
	}
	if err := db.Close(); err != nil {
		s.Fatal(err)
	}
}

// hit sends a signal to an agent's first process, of which it dies.
func hit(signal string) func(*stage, string) {
	return func(s *stage, id string) {
		s.Helper()
		s.outside(fmt.Sprintf(`p=$(cat /workspace/%s.1.pid); kill -%s $p
			for i in $(seq 300); do kill -0 $p 2>/dev/null || exit 0; sleep 0.1; done; exit 1`, id, signal))
	}
}

// allow lets an agent go on.
func (s *stage) allow(id string) {
	s.Helper()
	s.outside("touch /workspace/" + id + ".go")
	s.prints(id, `"type":"ready"`)
}

// finish has an agent end its turn.
func (s *stage) finish(id string) {
	s.Helper()
	s.outside("touch /workspace/" + id + ".go")
	s.prints(id, "assistant.completed")
}

func finishThen(signal string) func(*stage, string) {
	return func(s *stage, id string) {
		s.Helper()
		s.finish(id)
		hit(signal)(s, id)
	}
}

// prints waits until words are in the log of an agent's first process.
func (s *stage) prints(id, words string) {
	s.Helper()
	s.eventually(id+" prints "+words, func() error {
		if text := s.read(s.logs[id]); !strings.Contains(text, words) {
			return fmt.Errorf("it has printed %q", text)
		}
		return nil
	})
}

// accept records an agent without a start.
func (s *stage) accept(db *store.Store, id string) {
	s.Helper()
	spec := &agboxv1.AgentSpec{SandboxId: s.box}
	staged(agentPending)(spec)
	must(db.CreateAgent(context.Background(), id, "", spec))(s)
}

// spawn records a process that the container has no request for.
func (s *stage) spawn(db *store.Store, id string) {
	s.Helper()
	s.accept(db, id)
	a := must(db.Agent(context.Background(), id))(s)
	env := map[string]string{"AGBOX_AGENT_ID": id, "AGBOX_EXEC_ID": execid.ForAgent(a.ID, 1), "AGBOX_INCARNATION": "1"}
	must(db.TransitionAgent(context.Background(), id, store.Transition{
		Incarnation: 1, Trigger: agboxv1.AgentTrigger_AGENT_TRIGGER_SPAWN, Attempts: 1, Rung: untouched,
		Spawn: &agboxv1.CreateExecRequest{Command: a.Spec.GetCommand(), EnvOverrides: env},
	}))(s)
	s.before[id] = 1
}

// declare records a verdict on a process that lives: the daemon died before it ended it.
func declare(tr agboxv1.AgentTrigger) func(*stage, *store.Store, string) {
	return func(s *stage, db *store.Store, id string) {
		s.Helper()
		must(db.TransitionAgent(context.Background(), id, store.Transition{Incarnation: 1, Trigger: tr, Reason: "test"}))(s)
	}
}

// trail is what happened to an agent: " SPAWN=STARTING CONNECTED=IDLE".
func (s *stage) trail(id string) string {
	s.Helper()
	resp := must(s.agents().ListAgentTransitions(s.ctx(), &agboxv1.ListAgentTransitionsRequest{AgentId: id}))(s)
	var b strings.Builder
	for _, tr := range resp.GetTransitions() {
		fmt.Fprintf(&b, " %s=%s", enum.Word(tr.GetTrigger()),
			enum.Word(tr.GetTo()))
	}
	return b.String()
}

// since is the trail since the daemon was killed.
func (s *stage) since(id string) string {
	s.Helper()
	words := strings.Fields(s.trail(id))
	return strings.Join(append([]string{""}, words[min(len(words), s.before[id]):]...), " ")
}

// wantAsItWas: it was looked at, and nothing has changed.
func (s *stage) wantAsItWas(r recovery) {
	s.Helper()
	a := s.agentIs(r.id, "looked at", func(a *agboxv1.AgentHandle) bool { return !a.GetUnverified() })
	if got := s.since(r.id); got != "" || a.GetState() != r.was || a.GetIncarnation() != 1 {
		s.Errorf("%s: %s; %v", r.id, got, a)
	}
	if r.rung != 0 && a.GetRung() != r.rung {
		s.Errorf("%s: its past is %s, want %s", r.id, a.GetRung(), r.rung)
	}
}

func (s *stage) wantVerdict(r recovery) {
	s.Helper()
	s.eventually(r.id+" is judged", func() error {
		if got := s.since(r.id); got != r.moves {
			return fmt.Errorf("got %s, want %s", got, r.moves)
		}
		return nil
	})
	var outcomes string
	for _, e := range s.agentEvents(r.id) {
		if res := e.GetResult(); res.GetPromptId() == "errand" {
			outcomes += " " + res.GetOutcome()
		}
	}
	if outcomes != r.outcomes {
		s.Errorf("%s: its turns ended with %q, want %q", r.id, outcomes, r.outcomes)
	}
	if r.given > 0 {
		if got := strings.Count(s.sh(s.box, "cat /workspace/"+r.id+".given"), "x"); got != r.given {
			s.Errorf("%s was given its prompt %d times, want %d", r.id, got, r.given)
		}
	}
}

// wantOneProcess: a process began when the one before had ended, and of an agent that does not run there is none.
func (s *stage) wantOneProcess(r recovery) {
	s.Helper()
	a := s.agent(r.id)
	var before *agboxv1.ExecStatus
	for n := range a.GetIncarnation() {
		x := must(s.GetExec(s.ctx(), &agboxv1.GetExecRequest{ExecId: fmt.Sprintf("%s.%d", r.id, n+1)}))(s).GetExec()
		if before != nil && (before.GetEndedAt() == nil || x.GetCreatedAt().AsTime().Before(before.GetEndedAt().AsTime())) {
			s.Errorf("%s began at %v, and its predecessor ended at %v", x.GetExecId(), x.GetCreatedAt().AsTime(), before.GetEndedAt())
		}
		before = x
	}
	running := before.GetState() == agboxv1.ExecState_EXEC_STATE_RUNNING
	if want := a.GetState() == agentIdle; running != want {
		s.Errorf("%s is %s, and a process runs: %t", r.id, a.GetState(), running)
	}
}
