package sandboxstate

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
)

// TestTheTableHasEveryState: a state that the API has and the table has not is forgotten somewhere.
func TestTheTableHasEveryState(t *testing.T) {
	rows := map[State]int{}
	for _, r := range table {
		rows[r.state]++
		if r.state != none && (r.meaning == "" || len(r.wants) == 0) {
			t.Errorf("%s: meaning %q, desired states %v", r.state, r.meaning, r.wants)
		}
	}
	for n, name := range agboxv1.SandboxState_name {
		if rows[State(n)] != 1 {
			t.Errorf("%s has %d rows", name, rows[State(n)])
		}
	}
	if len(rows) != len(agboxv1.SandboxState_name) {
		t.Errorf("the table has %d states, the API %d", len(rows), len(agboxv1.SandboxState_name))
	}
}

// TestEveryCellOfTheTable compares the table with the one in the package's documentation, cell by cell.
func TestEveryCellOfTheTable(t *testing.T) {
	cells := 0
	var columns []State
	for _, line := range documented(t) {
		words := strings.Fields(strings.ReplaceAll(line, "any live", "live"))
		if columns == nil {
			for _, word := range words {
				columns = append(columns, stateOf(word))
			}
			continue
		}
		cause, ok := agboxv1.EventType_value["SANDBOX_"+words[0]]
		if !ok || len(words) != len(columns)+1 {
			t.Fatalf("%q", line)
		}
		for i, cell := range words[1:] {
			for n := range agboxv1.SandboxState_name {
				checkCell(t, columns[i], Cause(cause), State(n), cell)
				cells++
			}
		}
	}
	if want := 15 * 7 * 8; cells != want {
		t.Errorf("%d cells were compared, not %d", cells, want)
	}
}

// documented returns the lines of the table in doc.go.
func documented(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(src)) {
		if row, ok := strings.CutPrefix(line, "//\t"); ok {
			lines = append(lines, row)
		}
	}
	return lines
}

func stateOf(word string) State {
	if word == "(none)" {
		return none
	}
	return State(agboxv1.SandboxState_value["SANDBOX_STATE_"+word])
}

func checkCell(t *testing.T, from State, cause Cause, to State, cell string) {
	t.Helper()
	var legal bool
	switch cell {
	case "-":
	case "=":
		legal = to == from
	case "live":
		legal = IsLive(to)
	case "before":
		legal = to == pending || to == ready || to == paused || to == stopped
	default:
		legal = to != none && to == stateOf(cell)
	}
	if err := Check(from, cause, to); (err == nil) != legal {
		t.Errorf("%s from %s to %s: %v, and the documentation says %q", cause, from, to, err, cell)
	}
	if Accepts(from, cause) != (cell != "-") {
		t.Errorf("%s in %s: accepts %v", cause, from, Accepts(from, cause))
	}
}

// TestOtherEventsNameNoState: every event type that the table has no row for may follow in a live state, with no state.
func TestOtherEventsNameNoState(t *testing.T) {
	for n, name := range agboxv1.EventType_name {
		cause := Cause(n)
		if isTransition(cause) {
			continue
		}
		for s := range agboxv1.SandboxState_name {
			from := State(s)
			if err := Check(from, cause, none); (err == nil) != IsLive(from) {
				t.Errorf("%s in %s: %v", name, from, err)
			}
			if err := Check(from, cause, ready); err == nil {
				t.Errorf("%s in %s made it READY", name, from)
			}
		}
	}
}

func TestAnIllegalTransitionIsABug(t *testing.T) {
	err := Check(deleting, isReady, ready)
	if !errors.Is(err, ErrIllegal) || !errdefs.IsInternal(err) {
		t.Errorf("%v", err)
	}
	if got, want := err.Error(), "illegal transition of a sandbox: SANDBOX_READY from DELETING to READY: internal"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := Check(State(99), isDeleteRequested, deleting); !errors.Is(err, ErrIllegal) {
		t.Errorf("a state that this version does not know: %v", err)
	}
}

// TestEveryGoalIsAllowed: the state that a desired state leads to may have that desired state.
func TestEveryGoalIsAllowed(t *testing.T) {
	for n, name := range storev1.RunState_name {
		want := storev1.RunState(n)
		if want == storev1.RunState_RUN_STATE_UNSPECIFIED {
			continue
		}
		if !Allows(Goal(want), want) {
			t.Errorf("%s leads to %s, which does not allow it", name, enum.Word(Goal(want)))
		}
	}
}

// TestTraits: the sets of states that others rely on.
func TestTraits(t *testing.T) {
	for name, c := range map[string]struct {
		has  func(State) bool
		want string
	}{
		"live":      {IsLive, "PENDING READY PAUSED STOPPED FAILED DELETING"},
		"up":        {IsUp, "PENDING READY PAUSED"},
		"whole":     {IsWhole, "READY PAUSED STOPPED"},
		"resumable": {IsResumable, "PAUSED STOPPED"},
	} {
		var got []string
		for _, r := range table {
			if c.has(r.state) {
				got = append(got, enum.Word(r.state))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	if len(Live()) != 6 || enum.Word(Live()[0]) != "PENDING" {
		t.Errorf("%v", Live())
	}
}

// TestAfter: an event that leads to several states names none.
func TestAfter(t *testing.T) {
	for cause, want := range map[Cause]State{
		isPreparing: pending, isReady: ready, isRestarted: ready, isPaused: paused, isStopped: stopped, isFailed: failed, isDeleted: deleted,
		isRecovered: none, isRehydrated: none, isServiceReady: none, agboxv1.EventType_EXEC_STARTED: none,
	} {
		if got := After(cause); got != want {
			t.Errorf("%s leads to %s, want %s", cause, got, want)
		}
	}
}
