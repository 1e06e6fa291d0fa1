package recovery

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
)

func exited(f *Found, code int) {
	c := &f.Containers[0]
	c.State, c.Running, c.ExitCode, c.FinishedAt = dockerx.StateExited, false, code, now.Add(-time.Minute)
}

func firstRun(f *Found) { f.Released, f.Traces = false, nil }

func TestStates(t *testing.T) {
	const (
		pending = agboxv1.SandboxState_SANDBOX_STATE_PENDING
		ready   = agboxv1.SandboxState_SANDBOX_STATE_READY
		failed  = agboxv1.SandboxState_SANDBOX_STATE_FAILED
		stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
		paused  = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
		wantRun = storev1.RunState_RUN_STATE_RUN
		create  = storev1.Attempt_ATTEMPT_CREATE
		resume  = storev1.Attempt_ATTEMPT_RESUME
	)
	always := func(f *Found) {
		s := spec()
		s.RestartPolicy = "always"
		f.Containers[0] = running(t, s)
	}
	for _, c := range []struct {
		name   string
		change func(*Found, *Input)
		state  agboxv1.SandboxState
		want   storev1.RunState
		code   string
		check  func(*storev1.SandboxRecord) bool
	}{
		{"running", func(*Found, *Input) {}, ready, wantRun, "", func(r *storev1.SandboxRecord) bool {
			p := r.GetProgress()
			return r.GetDesired().GetDeadlineAt() == now.Add(time.Hour).UnixNano() && p.GetHooksDone() == 2 && p.GetReleased() &&
				p.GetServices()["db"].GetMark() == storev1.ServiceMark_SERVICE_MARK_READY && proto.Equal(r.GetDesired().GetEngineRun(), run) &&
				r.GetIdleSince() == now.Add(-50*time.Minute).UnixNano()
		}},
		{"running, no timeout", func(_ *Found, in *Input) { in.Timeout = 0 }, ready, wantRun, "", func(r *storev1.SandboxRecord) bool {
			return r.GetDesired().GetDeadlineAt() == 0
		}},
		{"running with an active exec", func(f *Found, _ *Input) {
			f.Traces = append(f.Traces, execjournal.Trace{ExecID: "exec-1", Request: &execjournal.Request{ExecID: "exec-1", Nonce: nonce, Command: []string{"x"}}})
		}, ready, wantRun, "", func(r *storev1.SandboxRecord) bool { return r.GetIdleSince() == 0 }},
		{"running with a service that is unhealthy", func(f *Found, _ *Input) { f.Containers[1].Health = dockerx.HealthUnhealthy }, ready, wantRun, "",
			func(r *storev1.SandboxRecord) bool {
				s := r.GetProgress().GetServices()["db"]
				return s.GetStarted() && s.GetMark() == storev1.ServiceMark_SERVICE_MARK_UNSPECIFIED
			}},
		{"running, its journals were removed: no hook is run again", func(f *Found, _ *Input) { f.Traces = nil }, ready, wantRun, "",
			func(r *storev1.SandboxRecord) bool { return r.GetProgress().GetHooksDone() == 2 }},
		{"started for the first time, not released", func(f *Found, _ *Input) { firstRun(f) }, pending, wantRun, "",
			func(r *storev1.SandboxRecord) bool {
				p := r.GetProgress()
				return r.GetDesired().GetAttempt() == create && r.GetPreparing() && p.GetPrimaryStarted() && p.GetCopied() && !p.GetReleased() && p.GetHooksDone() == 0
			}},
		{"started again, not released: a resume", func(f *Found, _ *Input) {
			f.Released, f.Containers[0].FinishedAt = false, now.Add(-time.Hour)
		}, pending, wantRun, "", func(r *storev1.SandboxRecord) bool {
			return r.GetDesired().GetAttempt() == resume && !r.GetPreparing() && r.GetProgress().GetHooksDone() == 2
		}},
		{"between two hooks", func(f *Found, _ *Input) { f.Traces = f.Traces[:1] }, pending, wantRun, "",
			func(r *storev1.SandboxRecord) bool {
				return r.GetDesired().GetAttempt() == create && r.GetProgress().GetHooksDone() == 1 && r.GetProgress().GetReleased()
			}},
		{"in a hook", func(f *Found, _ *Input) {
			f.Traces[1].Journal, f.Traces[1].Request = nil, &execjournal.Request{ExecID: "_hook.1", Nonce: nonce}
		}, failed, wantRun, plan.CodeContainerNotRunning, nil},
		{"after a hook that failed", func(f *Found, _ *Input) { f.Traces[0].Journal.ExitCode = 1 }, failed, wantRun, plan.CodeContainerNotRunning, nil},
		{"created and never started", func(f *Found, _ *Input) {
			firstRun(f)
			c := &f.Containers[0]
			c.State, c.Running, c.StartedAt = dockerx.StateCreated, false, time.Time{}
		}, pending, wantRun, "", func(r *storev1.SandboxRecord) bool {
			p := r.GetProgress()
			return r.GetDesired().GetAttempt() == create && r.GetPreparing() && !p.GetPrimaryStarted() && !p.GetCopied() &&
				r.GetDesired().GetRequestedAt() == now.Add(-time.Hour).UnixNano() && p.GetServices()["db"].GetStarted() &&
				p.GetServices()["db"].GetMark() == 0
		}},
		{"recreated after hooks had run", func(f *Found, _ *Input) { f.Containers[0].State = dockerx.StateCreated }, failed, wantRun, plan.CodeContainerMissing, nil},
		{"paused", func(f *Found, _ *Input) { f.Containers[0].State, f.Containers[0].Paused = dockerx.StatePaused, true }, paused,
			storev1.RunState_RUN_STATE_PAUSE, "", func(r *storev1.SandboxRecord) bool {
				p := r.GetProgress()
				return p.GetFrozen() && p.GetReleased() && r.GetStateChangedAt() == now.UnixNano() && r.GetDesired().GetDeadlineAt() == 0 &&
					p.GetServices()["db"].GetMark() == storev1.ServiceMark_SERVICE_MARK_READY
			}},
		{"exited with 0", func(f *Found, _ *Input) { exited(f, 0) }, stopped, storev1.RunState_RUN_STATE_STOP, "",
			func(r *storev1.SandboxRecord) bool {
				return r.GetProgress().GetHooksDone() == 2 && r.GetStateChangedAt() == now.UnixNano() && r.GetDesired().GetDeadlineAt() == 0
			}},
		{"exited by TERM", func(f *Found, _ *Input) { exited(f, 143) }, stopped, storev1.RunState_RUN_STATE_STOP, "", nil},
		{"exited by TERM before this boot", func(f *Found, in *Input) {
			exited(f, 143)
			in.LifeSince = now.Add(-10 * time.Second)
		}, stopped, storev1.RunState_RUN_STATE_STOP, "", nil},
		{"killed", func(f *Found, _ *Input) { exited(f, 137) }, failed, wantRun, plan.CodeContainerDied, nil},
		{"killed before this boot", func(f *Found, in *Input) {
			exited(f, 137)
			in.LifeSince = now.Add(-10 * time.Second)
		}, failed, wantRun, plan.CodeContainerDied, nil},
		{"killed for memory", func(f *Found, _ *Input) {
			exited(f, 137)
			f.Containers[0].OOMKilled = true
		}, failed, wantRun, plan.CodeContainerOOM, nil},
		{"crashed", func(f *Found, _ *Input) { exited(f, 3) }, failed, wantRun, plan.CodeContainerDied, nil},
		{"crashed, to be restarted: it may have been stopped", func(f *Found, _ *Input) {
			always(f)
			exited(f, 3)
		}, stopped, storev1.RunState_RUN_STATE_STOP, "", nil},
		{"killed, to be restarted: it may have been stopped", func(f *Found, _ *Input) {
			always(f)
			exited(f, 137)
		}, failed, wantRun, plan.CodeContainerDied, nil},
		{"found dead by the engine", func(f *Found, _ *Input) { exited(f, 255) }, ready, wantRun, "", func(r *storev1.SandboxRecord) bool {
			life := r.GetDesired().GetEngineRun()
			return life.GetBootId() == "boot" && life.GetEngineStart() != "start" && life.GetEngineStart() != ""
		}},
		{"ended in a life that it can't have seen", func(f *Found, in *Input) {
			exited(f, 137)
			in.LifeSince = now.Add(-30 * time.Minute)
		}, ready, wantRun, "", nil},
		{"found dead by an engine of which nothing is known", func(f *Found, in *Input) {
			exited(f, 255)
			in.EngineRun = &storev1.EngineRun{BootId: "boot"}
		}, ready, wantRun, "", func(r *storev1.SandboxRecord) bool { return r.GetDesired().GetEngineRun().GetBootId() != "boot" }},
		{"dead", func(f *Found, _ *Input) { f.Containers[0].State = dockerx.StateDead }, failed, wantRun, plan.CodeContainerMissing, nil},
		{"being removed", func(f *Found, _ *Input) { f.Containers[0].State = dockerx.StateRemoving }, failed, wantRun, plan.CodeContainerMissing, nil},
		{"without a primary", func(f *Found, _ *Input) { f.Containers = f.Containers[1:] }, failed, wantRun, plan.CodeContainerMissing,
			func(r *storev1.SandboxRecord) bool {
				s := r.GetSpec()
				return s.GetLabels()["team"] == "x" && len(s.GetOptionalServices()) == 1 && s.GetOptionalServices()[0].GetImage() == "db:1"
			}},
		{"only a network", func(f *Found, _ *Input) { f.Containers = nil }, failed, wantRun, plan.CodeContainerMissing, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := found(t)
			in := input()
			c.change(&f, &in)
			in.Found = []Found{f}
			got := one(t, in)
			r := got.Record
			if agboxv1.SandboxState(r.GetState()) != c.state || r.GetDesired().GetRunState() != c.want || r.GetErrorCode() != c.code {
				t.Errorf("got %s, %s, %q", agboxv1.SandboxState(r.GetState()), r.GetDesired().GetRunState(), r.GetErrorCode())
			}
			if c.check != nil && !c.check(r) {
				t.Errorf("unexpected record %v", r)
			}
			if r.GetDesired().GetGeneration() != 1 || r.GetLastSequence() != uint64(now.Unix()) || r.GetInstance() != ours {
				t.Errorf("generation %d, sequence %d, instance %q", r.GetDesired().GetGeneration(), r.GetLastSequence(), r.GetInstance())
			}
			if !slices.IsSorted(got.Defaulted) || !slices.Contains(got.Defaulted, "deadline_at") {
				t.Errorf("defaulted %v", got.Defaulted)
			}
		})
	}
}
