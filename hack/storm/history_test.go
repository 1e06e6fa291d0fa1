package main

import (
	"strings"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

func TestHistoriesAreJudged(t *testing.T) {
	phase := func(kind agboxv1.EventType, reason, code string) *agboxv1.SandboxEvent {
		details := &agboxv1.SandboxPhaseDetails{Reason: reason, ErrorCode: code}
		return &agboxv1.SandboxEvent{EventType: kind, Details: &agboxv1.SandboxEvent_SandboxPhase{SandboxPhase: details}}
	}
	lost := &agboxv1.SandboxEvent{
		EventType: agboxv1.EventType_EXEC_FAILED,
		Details:   &agboxv1.SandboxEvent_Exec{Exec: &agboxv1.ExecEventDetails{ExecId: "e", ErrorCode: "EXEC_LOST"}},
	}
	stop := phase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, "stop_requested", "")
	stopped := phase(agboxv1.EventType_SANDBOX_STOPPED, "stop_requested", "")
	for name, row := range map[string]struct {
		events  []*agboxv1.SandboxEvent
		tries   map[string]int
		outside bool
		want    string // part of the only problem; "": none
	}{
		"a stop that was asked for":     {[]*agboxv1.SandboxEvent{stop, stopped}, map[string]int{"stop": 1}, false, ""},
		"a second stop":                 {[]*agboxv1.SandboxEvent{stop, stopped, phase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, "", "")}, map[string]int{"stop": 1}, false, "the stop number 2, and clients asked for 1"},
		"a pause":                       {[]*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_PAUSE_REQUESTED, "", "")}, map[string]int{"stop": 9}, true, "the pause number 1"},
		"a delete":                      {[]*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETE_REQUESTED, "", "")}, nil, true, "the delete number 1"},
		"an end without a request":      {[]*agboxv1.SandboxEvent{stopped}, map[string]int{"stop": 1}, false, "SANDBOX_STOPPED, was not asked for"},
		"an end by hand":                {[]*agboxv1.SandboxEvent{stopped}, nil, true, ""},
		"a removal without a request":   {[]*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_DELETED, "", "")}, nil, false, "SANDBOX_DELETED, was not asked for"},
		"a demotion by the clock":       {[]*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_PAUSED, "demoted", "")}, nil, true, "is by demoted"},
		"a failure":                     {[]*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_FAILED, "", "CONTAINER_OOM")}, nil, false, "CONTAINER_OOM"},
		"a failure by hand":             {[]*agboxv1.SandboxEvent{phase(agboxv1.EventType_SANDBOX_FAILED, "", "CONTAINER_DIED")}, nil, true, ""},
		"an exec that was lost":         {[]*agboxv1.SandboxEvent{lost}, nil, false, "exec e is lost"},
		"an exec that was lost by hand": {[]*agboxv1.SandboxEvent{lost}, nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for i, ev := range row.events {
				ev.Sequence = uint64(i + 1)
			}
			got := judgeHistory("s", row.events, row.tries, row.outside)
			if len(got) > 1 || (len(got) == 1) != (row.want != "") || !strings.Contains(strings.Join(got, ""), row.want) {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	stop.Sequence = 2
	if got := judgeHistory("s", []*agboxv1.SandboxEvent{stop}, map[string]int{"stop": 1}, false); len(got) != 1 {
		t.Errorf("a gap: %q", got)
	}
}
