package audit

import (
	"slices"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/sandboxstate"
)

// TestTheAuditorAgreesWithTheTableOfStates: the auditor has a table of its own, so that an error in the store's is seen, and both say the
// same of every transition. What rebuilt and withdrew a state is judged by more than a table here.
func TestTheAuditorAgreesWithTheTableOfStates(t *testing.T) {
	for n := range agboxv1.EventType_name {
		typ := agboxv1.EventType(n)
		m, judged := moves[typ]
		for from := range agboxv1.SandboxState_name {
			from := agboxv1.SandboxState(from)
			if !judged {
				if typ != eventRebuilt && typ != eventRecovered && sandboxstate.Accepts(from, typ) {
					t.Errorf("the auditor does not judge %s", typ)
				}
				continue
			}
			for to := range agboxv1.SandboxState_name {
				to := agboxv1.SandboxState(to)
				legal := slices.Contains(m.from, from) && to != 0 && (to == m.to || m.to == 0 && to == from)
				if err := sandboxstate.Check(from, typ, to); (err == nil) != legal {
					t.Errorf("%s from %s to %s: the auditor says %v, the table %v", typ, from, to, legal, err)
				}
			}
		}
	}
}
