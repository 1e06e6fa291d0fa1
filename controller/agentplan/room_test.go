package agentplan

import (
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

func TestStepsThatWaitForDiskSpace(t *testing.T) {
	run := Record{Run: storev1.AgentRun_AGENT_RUN_RUN}
	for _, c := range []struct {
		name string
		kind Kind
		r    Record
		w    World
		want bool
	}{
		{"output", Read, run, World{}, true},
		{"a start", Spawn, run, World{}, true},
		{"a prompt", Claim, run, World{}, true},
		{"an end is judged", Transition, run, World{}, false},
		{"what is claimed is delivered", Deliver, run, World{}, false},
		{"an end", End, run, World{}, false},
		{"output of one whose sandbox ends", Read, run, World{Ending: true}, false},
		{"output of one whose sandbox is deleted", Read, run, World{SandboxGone: true}, false},
		{"output of one that is parked", Read, run, World{Parking: true}, false},
		{"output of one that is to stop", Read, Record{Run: storev1.AgentRun_AGENT_RUN_STOP}, World{}, false},
		{"output of one that is to go", Read, Record{Run: storev1.AgentRun_AGENT_RUN_DELETE}, World{}, false},
	} {
		if got := (Plan{Kind: c.kind}).WaitsForRoom(c.r, c.w); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
