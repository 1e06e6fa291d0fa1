package agentstate

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"pgregory.net/rapid"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// A copy of the specified table: rows are states, columns triggers in the order of their numbers.
const wanted = `
PENDING   STARTING  -     -     -     -        -       -       STOPPED  =        FAILED
STARTING  =         IDLE  -     -     FAILED*  FAILED  FAILED  STOPPED  STOPPED  FAILED
IDLE      -         =     BUSY  =     STOPPED  FAILED  -       STOPPED  STOPPED  FAILED
BUSY      -         =     -     IDLE  FAILED   FAILED  -       STOPPED  STOPPED  FAILED
STOPPED   STARTING  -     -     -     =        =       -       =        =        =
FAILED    STARTING  -     -     -     =        =       -       STOPPED  =        =`

func state(t testing.TB, name string) agboxv1.AgentState {
	t.Helper()
	n, ok := agboxv1.AgentState_value["AGENT_STATE_"+name]
	if !ok {
		t.Fatalf("no state %q", name)
	}
	return agboxv1.AgentState(n)
}

func TestNextMatchesEveryCellOfTheTable(t *testing.T) {
	cells := 0
	for _, line := range strings.Split(strings.TrimSpace(wanted), "\n") {
		words := strings.Fields(line)
		from := state(t, words[0])
		for i, want := range words[1:] {
			checkCell(t, from, agboxv1.AgentTrigger(i+1), want, Options{})
			checkCell(t, from, agboxv1.AgentTrigger(i+1), strings.Replace(want, "FAILED*", "STOPPED", 1),
				Options{ReadyIsProcess: true})
			cells++
		}
	}
	if cells != 60 {
		t.Errorf("%d cells, want 60", cells)
	}
}

func checkCell(t *testing.T, from agboxv1.AgentState, tr agboxv1.AgentTrigger, want string, o Options) {
	t.Helper()
	to, changed, err := Next(from, tr, o)
	switch want = strings.TrimSuffix(want, "*"); want {
	case "-":
		checkIllegal(t, from, tr, to, changed, err)
	case "=":
		if err != nil || changed || to != from {
			t.Errorf("%s, %s: got %s, %v, %v, want no change", from, tr, to, changed, err)
		}
	default:
		if err != nil || !changed || to != state(t, want) {
			t.Errorf("%s, %s: got %s, %v, %v, want %s", from, tr, to, changed, err, want)
		}
	}
}

func checkIllegal(t *testing.T, from agboxv1.AgentState, tr agboxv1.AgentTrigger, to agboxv1.AgentState, changed bool, err error) {
	t.Helper()
	var typed *IllegalError
	if !errors.As(err, &typed) || typed.From != from || typed.Trigger != tr {
		t.Fatalf("%s, %s: got error %v, want an *IllegalError that names both", from, tr, err)
	}
	if !errors.Is(err, ErrIllegal) || !errdefs.IsFailedPrecondition(err) {
		t.Errorf("%s, %s: %v lacks its classes", from, tr, err)
	}
	if to != illegal || changed {
		t.Errorf("%s, %s: an illegal trigger led to %s, %v", from, tr, to, changed)
	}
}

func TestUnknownStatesAndTriggersAreIllegal(t *testing.T) {
	for _, from := range []agboxv1.AgentState{illegal, 7, -1} {
		for tr := agboxv1.AgentTrigger(0); tr < 12; tr++ {
			to, changed, err := Next(from, tr, Options{})
			checkIllegal(t, from, tr, to, changed, err)
		}
	}
	for _, tr := range []agboxv1.AgentTrigger{0, 11, -1} {
		to, changed, err := Next(idle, tr, Options{})
		checkIllegal(t, idle, tr, to, changed, err)
	}
}

func TestIllegalErrorText(t *testing.T) {
	_, _, err := Next(busy, promptReceived, Options{})
	if want := "PROMPT_RECEIVED is illegal for an agent that is BUSY"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestRandomWalkStaysInTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, o := pending, Options{ReadyIsProcess: rapid.Bool().Draw(t, "ready is process")}
		for _, n := range rapid.SliceOf(rapid.Int32Range(-1, 12)).Draw(t, "triggers") {
			to, changed, err := Next(at, agboxv1.AgentTrigger(n), o)
			if err != nil {
				continue
			}
			if _, known := table[to]; !known || changed != (to != at) {
				t.Fatalf("%s, %d: %s, changed %v", at, n, to, changed)
			}
			if to == pending && at != pending {
				t.Fatalf("%s became PENDING again", at)
			}
			if to == busy && at == idle && agboxv1.AgentTrigger(n) != promptReceived {
				t.Fatalf("BUSY by %d", n)
			}
			at = to
		}
	})
}

func TestCoarse(t *testing.T) {
	for _, c := range []struct {
		state            agboxv1.AgentState
		status, activity string
	}{
		{pending, "PENDING", ""},
		{starting, "PENDING", ""},
		{idle, "RUNNING", "IDLE"},
		{busy, "RUNNING", "BUSY"},
		{stopped, "STOPPED", ""},
		{failed, "FAILED", ""},
		{illegal, "", ""},
		{99, "", ""},
	} {
		if status, activity := Coarse(c.state); status != c.status || activity != c.activity {
			t.Errorf("%s: got %q, %q, want %q, %q", c.state, status, activity, c.status, c.activity)
		}
	}
}
