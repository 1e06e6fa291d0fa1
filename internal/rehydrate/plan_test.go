package rehydrate

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/execjournal"
	"github.com/agbox/agbox/internal/naming"
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
		{"created anew after hooks had run", func(f *Found, _ *Input) { f.Containers[0].State = dockerx.StateCreated }, failed, wantRun, plan.CodeContainerMissing, nil},
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
		{"crashed, to be restarted", func(f *Found, _ *Input) {
			always(f)
			exited(f, 3)
		}, ready, wantRun, "", func(r *storev1.SandboxRecord) bool { return proto.Equal(r.GetDesired().GetEngineRun(), run) }},
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

func TestTheSpecComesFromTheLabelAndItsSecretsFromTheContainers(t *testing.T) {
	got := one(t, input(found(t)))
	if !proto.Equal(got.Record.GetSpec(), spec()) || got.Source != FromLabels || got.Record.GetDesired().GetName() != "my-box" {
		t.Errorf("from %s: %v", got.Source, got.Record)
	}
	if slices.ContainsFunc(got.Defaulted, func(f string) bool { return strings.Contains(f, "env") || f == "spec" || f == "name" }) {
		t.Errorf("defaulted %v", got.Defaulted)
	}
}

func TestWhatTheLabelCannotKnowIsTold(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Found)
	}{
		{"envs", func(f *Found) { f.Containers[0].Env = nil }},
		{"services[db].envs", func(f *Found) { f.Containers = f.Containers[:1] }},
		{"spec", func(f *Found) { f.Containers[0].Env = []string{"TOKEN=another"} }},
		{"name", func(f *Found) { f.Containers[0].Hostname = "Not A Name" }},
		{"execs", func(f *Found) { f.Traces = append(f.Traces, ended("exec-1", 0, now)) }},
		{"execs", func(f *Found) { f.Unread = 1 }},
		{"state", func(f *Found) { exited(f, 0) }},
		{"hooks_done", func(f *Found) { f.Traces = nil }},
	} {
		f := found(t)
		c.change(&f)
		if got := one(t, input(f)); !slices.Contains(got.Defaulted, c.field) {
			t.Errorf("%s is not in %v", c.field, got.Defaulted)
		}
	}
}

func TestLimitsThatWereUpdatedAreThoseOfTheContainer(t *testing.T) {
	f := found(t)
	f.Containers[0].Limits = dockerx.Limits{NanoCPUs: 1_500_000_000, MemoryBytes: 1 << 30, Pids: 100}
	s := one(t, input(f)).Record.GetSpec()
	if s.GetCpuLimit() != 1.5 || s.GetMemoryLimit() != "1073741824" || s.GetPidsLimit() != 100 {
		t.Errorf("limits %v %s %d", s.GetCpuLimit(), s.GetMemoryLimit(), s.GetPidsLimit())
	}
}

func TestAnEngineGivenHostNameIsNoName(t *testing.T) {
	f := found(t)
	f.Containers[0].Hostname = f.Containers[0].ID[:12]
	got := one(t, input(f))
	if got.Record.GetDesired().GetName() != "" || slices.Contains(got.Defaulted, "name") {
		t.Errorf("name %q, defaulted %v", got.Record.GetDesired().GetName(), got.Defaulted)
	}
}

func TestASandboxFromBeforeTheLabelComesBackFromItsContainers(t *testing.T) {
	f := found(t)
	for i := range f.Containers {
		for _, l := range []string{naming.Spec, naming.SpecHash, naming.Template} {
			delete(f.Containers[i].Labels, l)
		}
	}
	c := &f.Containers[0]
	c.Entrypoint = []string{execjournal.ContainerShim, "init", "--default-user=agbox", "--user=me", "--", "server", "--port=1"}
	c.Mounts = append(c.Mounts, dockerx.Mount{Source: "/home/me/src", Target: "/src", Writable: true})
	c.Ports = []dockerx.Port{{ContainerPort: 80, HostPort: 32768, Protocol: "tcp"}}
	f.Traces, f.Released = nil, false // it had no gate
	in := input(f)
	in.Images = map[string]dockerx.Image{"sha256:base": {Env: []string{"PATH=/bin"}}, "sha256:db": {Env: []string{"PATH=/bin"}}}
	got := one(t, in)
	want := &agboxv1.CreateSpec{
		Image: "base:1", Envs: map[string]string{"TOKEN": "secret"}, Labels: map[string]string{"team": "x"}, MemoryLimit: "536870912",
		User: "me", Command: []string{"server", "--port=1"}, Mounts: []*agboxv1.MountSpec{{Source: "/home/me/src", Target: "/src", Writable: true}},
		Ports:            []*agboxv1.PortSpec{{ContainerPort: 80, Protocol: "tcp"}},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "db:1", Envs: map[string]string{"PASSWORD": "hunter2"}}},
	}
	if !proto.Equal(got.Record.GetSpec(), want) || got.Source != FromInspect {
		t.Errorf("from %s\ngot  %v\nwant %v", got.Source, got.Record.GetSpec(), want)
	}
	if agboxv1.SandboxState(got.Record.GetState()) != agboxv1.SandboxState_SANDBOX_STATE_READY {
		t.Errorf("state %d", got.Record.GetState())
	}
	for _, field := range []string{"spec", "services", "ports"} {
		if !slices.Contains(got.Defaulted, field) {
			t.Errorf("%s is not in %v", field, got.Defaulted)
		}
	}
}

func TestOnlyWhatIsInOurDataDirectoryIsOurs(t *testing.T) {
	const former = "22222222-2222-4222-8222-222222222222"
	rename := func(f *Found, instance string) {
		for i := range f.Containers {
			f.Containers[i].Labels[naming.Instance] = instance
		}
		f.Networks[0].Labels[naming.Instance] = instance
	}
	for _, c := range []struct {
		name    string
		change  func(*Found)
		adopted bool
		skipped int
		former  int
	}{
		{"another daemon's", func(f *Found) { f.Ctl = "/elsewhere" }, false, 3, 0},
		{"a former instance of ours", func(f *Found) { rename(f, former) }, true, 0, 1},
		{"no instance label", func(f *Found) { rename(f, "") }, true, 0, 0},
		{"a primary without a ctl mount", func(f *Found) { f.Containers[0].Mounts = nil }, false, 3, 0},
		{"a service of another instance", func(f *Found) { f.Containers[1].Labels[naming.Instance] = former }, true, 1, 0},
		{"a primary of another name", func(f *Found) { f.Containers[0].Name = "agbox-primary-other" }, false, 3, 0},
		{"no primary, another instance", func(f *Found) {
			f.Containers = f.Containers[1:]
			rename(f, former)
		}, false, 2, 0},
		{"no primary and no directory", func(f *Found) { f.Containers, f.RunDir = f.Containers[1:], false }, false, 2, 0},
		{"its primary can't be read", func(f *Found) {
			f.Unreadable, f.Containers = []dockerx.Container{f.Containers[0].Container}, f.Containers[1:]
		}, false, 1, 0},
		{"a service can't be read, the label knows it", func(f *Found) {
			f.Unreadable, f.Containers = []dockerx.Container{f.Containers[1].Container}, f.Containers[:1]
		}, true, 0, 0},
		{"a service can't be read, no label knows it", func(f *Found) {
			f.Unreadable, f.Containers = []dockerx.Container{f.Containers[1].Container}, f.Containers[:1]
			delete(f.Containers[0].Labels, naming.Spec)
		}, false, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := found(t)
			c.change(&f)
			out := Plan(input(f), now)
			if (len(out.Sandboxes) == 1) != c.adopted || len(out.Skipped) != c.skipped || len(out.Former) != c.former {
				t.Errorf("%d adopted, former %v, skipped %+v", len(out.Sandboxes), out.Former, out.Skipped)
			}
		})
	}
}

func TestARecordFileWinsAndNeedsNoContainer(t *testing.T) {
	rec := &storev1.SandboxRecord{
		Version: 1, SandboxId: "box-2", Instance: "former", Spec: spec(), State: 4, LastSequence: 7, Desired: &storev1.Desired{Generation: 3, RunState: 2},
	}
	in := input(found(t))
	in.Known = []Known{{Record: rec, Execs: []*storev1.ExecRecord{{ExecId: "exec-1"}}, Traces: []execjournal.Trace{ended("exec-1", 0, now), ended("exec-2", 5, now)}}}
	out := Plan(in, now)
	if len(out.Sandboxes) != 2 || !slices.Equal(out.Former, []string{"former"}) || len(out.Rebuilt()) != 2 {
		t.Fatalf("%d sandboxes, former %v", len(out.Sandboxes), out.Former)
	}
	got := out.Sandboxes[0]
	if !proto.Equal(got.Record, rec) || got.Source != FromFile || len(got.Execs) != 2 || !slices.Equal(got.Defaulted, []string{"execs"}) {
		t.Errorf("%v, %v, %v", got.Record, got.Execs, got.Defaulted)
	}
	rec.Desired.RunState = storev1.RunState_RUN_STATE_DELETE
	if got := Plan(in, now).Sandboxes[0]; len(got.Execs) != 1 || len(got.Defaulted) != 0 {
		t.Errorf("of one that is being deleted: %v", got.Execs)
	}
}

func TestThePlanIsShownToAPerson(t *testing.T) {
	in := input(found(t))
	in.Skipped = []Skipped{{Kind: "container", ID: "c1", SandboxID: "a\x1b[2J", Reason: badID}}
	var b bytes.Buffer
	if err := Plan(in, now).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"box-1", "my-box", "labels", "READY", "deadline_at", `skipped: container c1 of sandbox "a\x1b[2J"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "secret") || strings.Contains(b.String(), "hunter2") {
		t.Errorf("a secret in\n%s", b.String())
	}
}

// A plan changes nothing of its input, so the same input gives the same plan again.
func TestAPlanIsRepeatable(t *testing.T) {
	in := input(found(t))
	labelsBefore := maps.Clone(in.Found[0].Containers[0].Labels)
	first, second := Plan(in, now), Plan(in, now)
	if !proto.Equal(first.Sandboxes[0].Record, second.Sandboxes[0].Record) || !maps.Equal(labelsBefore, in.Found[0].Containers[0].Labels) {
		t.Error("the second plan differs")
	}
}
