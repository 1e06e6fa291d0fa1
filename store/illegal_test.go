package store

import (
	"errors"
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// TestAReportOfAnIllegalTransitionIsRefused: in every situation, every event of a pass that the state table does not allow is refused as a
// bug, and nothing is recorded.
func TestAReportOfAnIllegalTransitionIsRefused(t *testing.T) {
	s := open(t, testOptions(t))
	refused := 0
	for _, sit := range situations {
		if sit.name == "deleted" {
			continue // every report on it is refused as too late
		}
		id := strings.NewReplacer(" ", "-", ",", "").Replace(sit.name)
		sit.make(t, s, id)
		before := get1(t, s, id)
		for typ := range agboxv1.EventType_name {
			for state := range agboxv1.SandboxState_name {
				events := []*agboxv1.SandboxEvent{phase(agboxv1.EventType(typ), agboxv1.SandboxState(state))}
				_, foreign := reportable(events)
				legal := sandboxstate.Check(before.State, agboxv1.EventType(typ), agboxv1.SandboxState(state)) == nil
				if foreign != nil || legal {
					continue
				}
				refused++
				err := s.Report(ctx, id, Report{Generation: before.Desired.GetGeneration(), Events: events})
				if !errors.Is(err, sandboxstate.ErrIllegal) {
					t.Errorf("%s: %s: %v", sit.name, events[0], err)
				}
			}
		}
		if after := get1(t, s, id); !sameSandbox(before, after) {
			t.Errorf("%s: refused reports changed\n%+v to\n%+v", sit.name, before, after)
		}
	}
	if refused < 500 {
		t.Errorf("only %d reports were refused", refused)
	}
	survives(t, s)
}
