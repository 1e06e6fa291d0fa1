package enum_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/enum"
)

func TestWord(t *testing.T) {
	for want, v := range map[string]protoreflect.Enum{
		"READY":          agboxv1.SandboxState_SANDBOX_STATE_READY,
		"UNSPECIFIED":    agboxv1.ExecState_EXEC_STATE_UNSPECIFIED,
		"EXEC_STARTED":   agboxv1.EventType_EXEC_STARTED, // events have no prefix of their own
		"PROCESS_EXITED": agboxv1.AgentTrigger_AGENT_TRIGGER_PROCESS_EXITED,
		"STOP":           storev1.RunState_RUN_STATE_STOP,
		"99":             agboxv1.SandboxState(99),
	} {
		if got := enum.Word(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	want := []agboxv1.DrainPhase{
		agboxv1.DrainPhase_DRAIN_PHASE_WAITING, agboxv1.DrainPhase_DRAIN_PHASE_SAVING, agboxv1.DrainPhase_DRAIN_PHASE_DONE,
	}
	if got := enum.Values[agboxv1.DrainPhase](); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
