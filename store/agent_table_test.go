package store

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/agent/agentstate"
)

// inState creates an agent in a state.
func inState(t testing.TB, s *Store, id string, state agboxv1.AgentState) Agent {
	t.Helper()
	withAgent(t, s, id)
	switch state {
	case agentStarting:
		spawn(t, s, id)
	case agentIdle:
		makeIdle(t, s, id)
	case agentBusy:
		makeIdle(t, s, id)
		makeBusy(t, s, id, "p-1")
	case agentStopped:
		trigger(t, s, id, terminated)
	case agentFailed:
		spawn(t, s, id)
		trigger(t, s, id, crashed)
	}
	return agent1(t, s, id)
}

// TestTheWholeTableIsWhatTheStoreDoes checks 6 states with 10 triggers each.
func TestTheWholeTableIsWhatTheStoreDoes(t *testing.T) {
	s := open(t, testOptions(t))
	cells := 0
	for state := agentPending; state <= agentFailed; state++ {
		for tr := spawned; tr <= reconciled; tr++ {
			cells++
			a := inState(t, s, fmt.Sprintf("agent-%d-%d", state, tr), state)
			got, err := fire(t, s, a, tr)
			to, changed, illegal := agentstate.Next(state, tr, agentstate.Options{})
			now := agent1(t, s, a.ID)
			switch {
			case illegal != nil:
				var typed *agentstate.IllegalError
				if !errors.As(err, &typed) || typed.From != state || !proto.Equal(now.Status, a.Status) {
					t.Errorf("%s, %s: %v, and then %v", state, tr, err, now.Status)
				}
			case !changed:
				if err != nil || !proto.Equal(now.Status, a.Status) || !proto.Equal(got.Status, a.Status) {
					t.Errorf("%s, %s: %v, and then %v", state, tr, err, now.Status)
				}
			default:
				if err != nil || now.Status.GetState() != to || now.Status.GetVersion() != a.Status.GetVersion()+1 ||
					now.Status.GetTransitions() != a.Status.GetTransitions()+1 || !proto.Equal(got.Status, now.Status) {
					t.Errorf("%s, %s: %v, and then %v", state, tr, err, now.Status)
				}
			}
		}
	}
	if cells != 60 {
		t.Errorf("%d cells", cells)
	}
	must(t, s.Close())
	checkDatabase(t, s.o.Path)
	_ = open(t, s.o)
}

func fire(t *testing.T, s *Store, a Agent, tr agboxv1.AgentTrigger) (Agent, error) {
	t.Helper()
	switch tr {
	case spawned:
		return s.TransitionAgent(ctx, a.ID, spawning(a))
	case agboxv1.AgentTrigger_AGENT_TRIGGER_PROMPT_RECEIVED: // a prompt must wait; otherwise the refusal has another reason
		if _, err := s.QueuePrompt(ctx, a.ID, "p-2", "text"); err != nil {
			t.Fatal(err)
		}
		a.Status.Version, a.Status.Prompts = a.Status.GetVersion()+1, a.Status.GetPrompts()+1
		got, _, err := s.ClaimPrompt(ctx, a.ID, 0, Claim{})
		return got, err
	}
	return s.TransitionAgent(ctx, a.ID, Transition{Incarnation: a.Status.GetIncarnation(), Trigger: tr})
}

func TestALateReportOfAnOldIncarnationChangesNothing(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	trigger(t, s, "agent", crashed)
	before := makeIdle(t, s, "agent")
	for _, tr := range []Transition{
		{Incarnation: 1, Trigger: crashed}, {Incarnation: 3, Trigger: exited}, {Incarnation: 2, Trigger: crashed, Version: before.Status.GetVersion() - 1},
		{Incarnation: 2, Trigger: spawned, Spawn: execRequest("", "")}, {Incarnation: 4, Trigger: spawned, Spawn: execRequest("", "")},
	} {
		if _, err := s.TransitionAgent(ctx, "agent", tr); !errdefs.IsAborted(err) {
			t.Errorf("%+v: %v", tr, err)
		}
	}
	if _, _, err := s.ClaimPrompt(ctx, "agent", before.Status.GetVersion()-1, Claim{}); !errdefs.IsAborted(err) {
		t.Errorf("claim on an old version: %v", err)
	}
	if now := agent1(t, s, "agent"); !proto.Equal(now.Status, before.Status) {
		t.Errorf("%v became %v", before.Status, now.Status)
	}
}

func TestOfSixtyFourClaimsOneWins(t *testing.T) {
	s := open(t, testOptions(t))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	for i := range 5 {
		prompt(t, s, "agent", fmt.Sprintf("p-%d", i))
	}
	for round := range 5 {
		version := agent1(t, s, "agent").Status.GetVersion()
		if round%2 == 1 {
			version = 0 // any
		}
		var won atomic.Int32
		atOnce(64, func() {
			switch _, p, err := s.ClaimPrompt(ctx, "agent", version, Claim{}); {
			case err == nil && p.GetPromptId() == fmt.Sprintf("p-%d", round):
				won.Add(1)
			case err == nil, !errdefs.IsAborted(err) && !errors.Is(err, agentstate.ErrIllegal):
				t.Errorf("round %d: %v, %v", round, p, err)
			}
		})
		if won.Load() != 1 {
			t.Fatalf("round %d: %d won", round, won.Load())
		}
		trigger(t, s, "agent", resulted)
	}
}

// TestOneFunctionWritesTheState parses the source: the state of an agent is assigned only after a look-up in the state table, at its
// creation, and when an old record is read.
func TestOneFunctionWritesTheState(t *testing.T) {
	files, err := fs.Glob(os.DirFS("."), "*.go")
	must(t, err)
	writers := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(name, "agent") && name != "drain.go" {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && writesState(fn) {
				writers[fn.Name.Name] = true
			}
		}
	}
	for _, want := range []string{"enter", "begin", "fillState"} {
		if !writers[want] {
			t.Errorf("%s writes no state", want)
		}
		delete(writers, want)
	}
	if len(writers) > 0 {
		t.Errorf("these write a state too: %v", writers)
	}
}

func writesState(fn *ast.FuncDecl) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				sel, ok := left.(*ast.SelectorExpr)
				found = found || ok && sel.Sel.Name == "State"
			}
		case *ast.KeyValueExpr:
			key, ok := n.Key.(*ast.Ident)
			found = found || ok && key.Name == "State"
		}
		return true
	})
	return found
}
