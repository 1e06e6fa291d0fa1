package recovery

import (
	"slices"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func request(id string) *execjournal.Request {
	return &execjournal.Request{ExecID: id, Nonce: nonce, Command: []string{"make", "all"}, Cwd: "/src", Env: map[string]string{"K": "v"}}
}

func TestExecs(t *testing.T) {
	started := ended("exec-1", 0, now)
	started.Journal.State, started.Journal.EndedAtNanos = execjournal.StateStarted, 0
	running := started
	running.Running, running.Request = true, request("exec-1")
	forged := running
	forged.Request = request("exec-1")
	forged.Request.Nonce = "another-nonce-of-ours"
	finished := ended("exec-1", 0, now)
	unrecorded := finished
	unrecorded.Request = request("exec-1")
	closed := ended("exec-1", 0, now)
	closed.Journal.State, closed.Journal.StartedAtNanos = execjournal.StateClosed, 0
	future := ended("exec-1", 3, now.Add(time.Hour))
	for _, c := range []struct {
		name  string
		trace execjournal.Trace
		check func(*storev1.ExecRecord) bool
	}{
		{"running", running, func(r *storev1.ExecRecord) bool {
			return r.GetEnd() == nil && r.GetDesired().GetNonce() == nonce && slices.Equal(r.GetRequest().GetCommand(), []string{"make", "all"}) &&
				r.GetRequest().GetCwd() == "/src" && r.GetRequest().GetEnvOverrides()["K"] == "v"
		}},
		{"running, its request is gone", execjournal.Trace{ExecID: "exec-1", Journal: started.Journal, Running: true}, func(r *storev1.ExecRecord) bool {
			return r.GetEnd() == nil && r.GetDesired().GetNonce() == nonce && len(r.GetRequest().GetCommand()) == 0
		}},
		{"dead without an end", started, func(r *storev1.ExecRecord) bool { return r.GetEnd() == nil }},
		{"a forged journal is not of this exec", forged, func(r *storev1.ExecRecord) bool {
			return r.GetEnd() == nil && r.GetDesired().GetNonce() == "another-nonce-of-ours"
		}},
		{"the process of an agent", execjournal.Trace{ExecID: "ada.7", Request: request("ada.7")}, func(r *storev1.ExecRecord) bool {
			return r.GetExecId() == "ada.7" && r.GetEnd() == nil && slices.Equal(r.GetRequest().GetCommand(), []string{"make", "all"})
		}},
		{"accepted, not started", execjournal.Trace{ExecID: "exec-1", Request: request("exec-1")}, func(r *storev1.ExecRecord) bool {
			return r.GetEnd() == nil && r.GetDesired().GetCancelRequestedAt() == 0 && r.GetDesired().GetNonce() == nonce
		}},
		{"cancelled, not started", execjournal.Trace{ExecID: "exec-1", Request: request("exec-1"), Cancelled: true}, func(r *storev1.ExecRecord) bool {
			return r.GetEnd() == nil && r.GetDesired().GetCancelRequestedAt() == now.UnixNano()
		}},
		{"finished", finished, func(r *storev1.ExecRecord) bool {
			return r.GetEnd().GetState() == int32(agboxv1.ExecState_EXEC_STATE_FINISHED) && r.GetEnd().GetEndedAt() == now.UnixNano() &&
				r.GetDesired().GetCreatedAt() == now.Add(-time.Second).UnixNano()
		}},
		{"finished, its end was not recorded", unrecorded, func(r *storev1.ExecRecord) bool { return r.GetEnd() == nil }},
		{"never begun", closed, func(r *storev1.ExecRecord) bool {
			return r.GetEnd().GetState() == int32(agboxv1.ExecState_EXEC_STATE_CANCELLED) && r.GetEnd().GetEndedAt() == 0
		}},
		{"failed, in times to come", future, func(r *storev1.ExecRecord) bool {
			return r.GetEnd().GetState() == int32(agboxv1.ExecState_EXEC_STATE_FAILED) && r.GetEnd().GetExitCode() == 3 &&
				r.GetEnd().GetErrorCode() == "EXEC_RUN_FAILED" && r.GetDesired().GetCreatedAt() == now.UnixNano()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := found(t)
			f.Traces = append(f.Traces, c.trace)
			s := one(t, input(f))
			if len(s.Execs) != 1 {
				t.Fatalf("%d execs", len(s.Execs))
			}
			if !c.check(s.Execs[0]) {
				t.Errorf("unexpected %v", s.Execs[0])
			}
			if s.Record.GetIdleSince() > now.UnixNano() {
				t.Error("idle since a future time")
			}
		})
	}
}

func TestInternalExecsAndInvalidNamesAreIgnored(t *testing.T) {
	f := found(t)
	f.Traces = append(f.Traces, ended("_hook.7", 0, now), ended("a.b", 0, now), ended("ada.7", 0, now), ended("x", 0, now))
	if s := one(t, input(f)); len(s.Execs) != 0 {
		t.Errorf("%v", s.Execs)
	}
}

// A container can write any journal into its own log directory, which must not give it another sandbox's exec.
func TestForgedJournalClaimsNoExec(t *testing.T) {
	victim := func(id string) *storev1.SandboxRecord {
		return &storev1.SandboxRecord{SandboxId: id, Instance: ours, Spec: spec(), Desired: &storev1.Desired{Generation: 1, RunState: 1}}
	}
	f := found(t)
	f.Traces = append(f.Traces, ended("recorded", 0, now), ended("asked", 0, now), ended("ended", 0, now), ended("mine", 0, now))
	in := input(f)
	in.Known = []Known{
		{Record: victim("box-2"), Execs: []*storev1.ExecRecord{{ExecId: "recorded"}}},
		{Record: victim("box-3"), Traces: []execjournal.Trace{{ExecID: "asked", Request: request("asked")}, ended("ended", 0, now)}},
	}
	out := Plan(in, now)
	var got [][]string
	for _, s := range out.Sandboxes {
		var ids []string
		for _, e := range s.Execs {
			ids = append(ids, e.GetExecId())
		}
		got = append(got, ids)
	}
	want := [][]string{{"recorded"}, {"asked"}, {"mine"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("execs %v, want %v", got, want)
	}
	for _, s := range out.Sandboxes[1:] {
		if !slices.Contains(s.Defaulted, "execs") {
			t.Errorf("%s: defaulted %v", s.Record.GetSandboxId(), s.Defaulted)
		}
	}
}
