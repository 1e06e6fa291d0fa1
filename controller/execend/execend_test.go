package execend

import (
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func TestAnExecSaysWhatTheKernelKilledForMemory(t *testing.T) {
	const limit = 48 << 20
	for name, c := range map[string]struct {
		j      execjournal.Journal
		state  agboxv1.ExecState
		want   string
		killed bool
	}{
		"itself": {
			execjournal.Journal{ExitCode: 137, Signal: 9, OOM: true, OOMKills: 1, OOMLimitBytes: limit},
			agboxv1.ExecState_EXEC_STATE_FAILED, "killed: out of memory (limit 48MiB)", true,
		},
		"itself, by an older shim": {
			execjournal.Journal{ExitCode: 137, Signal: 9, OOM: true},
			agboxv1.ExecState_EXEC_STATE_FAILED, "killed: out of memory", true,
		},
		"a child": {
			execjournal.Journal{ExitCode: 1, OOMKills: 1, OOMLimitBytes: limit},
			agboxv1.ExecState_EXEC_STATE_FAILED,
			"the command exited with code 1; meanwhile a process of the sandbox was killed: out of memory (limit 48MiB)", false,
		},
		"others, and it was ended by a signal": {
			execjournal.Journal{ExitCode: 143, Signal: 15, OOMKills: 3, OOMLimitBytes: limit},
			agboxv1.ExecState_EXEC_STATE_FAILED,
			"the command was ended by signal 15; meanwhile 3 processes of the sandbox were killed: out of memory (limit 48MiB)", false,
		},
		"a child, and it was ended for its output": {
			execjournal.Journal{ExitCode: 137, Signal: 9, LogLimit: true, OOMKills: 1},
			agboxv1.ExecState_EXEC_STATE_FAILED,
			"the command was ended: its output reached artifacts.exec_log_max_bytes, or its sandbox artifacts.sandbox_max_bytes, and on_log_limit is kill" +
				"; meanwhile a process of the sandbox was killed: out of memory", false,
		},
		"a child, and it was ended at its timeout": {
			execjournal.Journal{ExitCode: 0, TimeoutMillis: 1500, OOMKills: 1},
			agboxv1.ExecState_EXEC_STATE_FAILED,
			"the command was ended: its timeout of 1.5s has passed; meanwhile a process of the sandbox was killed: out of memory", false,
		},
		"a child, and it finished": {
			execjournal.Journal{OOMKills: 2, OOMLimitBytes: limit}, agboxv1.ExecState_EXEC_STATE_FINISHED, "", false,
		},
	} {
		end := Of(c.j, false)
		if end.GetState() != int32(c.state) || end.GetErrorMessage() != c.want || end.GetOomKilled() != c.killed ||
			end.GetOomKills() != c.j.OOMKills {
			t.Errorf("%s: %v", name, end)
		}
	}
}
