package inspect

import (
	"testing"

	"github.com/agbox/agbox/controller/agentplan"
)

func TestEachStepOfAnAgentIsExplained(t *testing.T) {
	for _, kind := range agentplan.Kinds() {
		e := &agentExplanation{plan: agentplan.Plan{Kind: kind, Reason: "why"}}
		own := kind == agentplan.Wait || kind == agentplan.Spawn || kind == agentplan.Transition
		if reason := stepReasons[kind]; (reason == "") != own {
			t.Errorf("%s is for %q", kind, reason)
		}
		if got := len(e.nextSteps()); (got == 0) != (kind == agentplan.Wait) {
			t.Errorf("%s is described in %d lines", kind, got)
		}
	}
}
