package exec

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/recovery"
)

// A rebuilt record of an end equals the one that the pass over the exec would have recorded.
func TestARebuiltExecEndsAsItsPassWouldHaveSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := execjournal.Journal{
			State: execjournal.StateEnded, StartedAtNanos: 1, EndedAtNanos: 2, ExitCode: rapid.IntRange(0, 2).Draw(t, "code"),
			Signal: rapid.SampledFrom([]int{0, 9}).Draw(t, "signal"), OOM: rapid.Bool().Draw(t, "oom"), Cancelled: rapid.Bool().Draw(t, "cancelled"),
			Stopped: rapid.Bool().Draw(t, "stopped"), LogLimit: rapid.Bool().Draw(t, "log limit"),
			ErrorCode: rapid.SampledFrom([]string{"", execjournal.ErrorStartFailed}).Draw(t, "error"), StdoutDroppedBytes: 3,
		}
		want := plan.ExecRecord{SandboxEnding: true}
		p := plan.DecideExec(want, execphase.Ended)
		if got, want := recovery.EndOf(j), EndOf(p.Outcome, j, want); !proto.Equal(got, want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	})
	closed := plan.DecideExec(plan.ExecRecord{SandboxEnding: true}, execphase.Closed)
	if got, want := recovery.EndOf(execjournal.Journal{State: execjournal.StateClosed}), EndOf(closed.Outcome, execjournal.Journal{}, plan.ExecRecord{}); !proto.Equal(got, want) {
		t.Errorf("closed: got %v, want %v", got, want)
	}
}
