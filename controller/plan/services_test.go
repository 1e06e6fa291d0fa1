package plan

import (
	"strings"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/execphase"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	toldReady  = storev1.ServiceMark_SERVICE_MARK_READY
	toldFailed = storev1.ServiceMark_SERVICE_MARK_FAILED
)

func service(name, status, health string) Container {
	return Container{
		ID: name, Name: naming.Service("box1", name), Component: naming.ComponentService, Service: name, Status: status,
		Health: health, NetworkIDs: []string{"n1"}, Inspected: true, StartedAt: now.Add(-10 * time.Second), FinishedAt: now,
	}
}

// served is a healthy READY sandbox with two required services, the second with a hook, and an optional one.
func served() scene {
	s := healthy()
	s.p.HookTimeout = 5 * time.Minute
	s.r.Wanted.Services = []Service{
		{Name: "db", Required: true, Healthcheck: true, HealthWait: 2 * time.Minute},
		{Name: "mq", Required: true, Healthcheck: true, HealthWait: time.Minute, Hooks: 1},
		{Name: "opt", HealthWait: time.Minute, Healthcheck: true},
	}
	s.w.Containers = append(s.w.Containers,
		service("db", "running", "healthy"), service("mq", "running", "healthy"), service("opt", "running", "healthy"))
	s.r.Progress = &storev1.Progress{PrimaryStarted: true, Released: true, HooksDone: 1, Services: map[string]*storev1.ServiceProgress{
		"db": {Mark: toldReady, Started: true}, "mq": {Mark: toldReady, Started: true}, "opt": {Mark: toldReady, Started: true},
	}}
	return s
}

func (s *scene) container(id string) *Container {
	for i := range s.w.Containers {
		if s.w.Containers[i].ID == id {
			return &s.w.Containers[i]
		}
	}
	return nil
}

func (s *scene) without(ids ...string) {
	var left []Container
	for _, c := range s.w.Containers {
		if !strings.Contains(" "+strings.Join(ids, " ")+" ", " "+c.ID+" ") {
			left = append(left, c)
		}
	}
	s.w.Containers = left
}

// begun is a create without any objects yet.
func begun(s *scene) {
	creating(s)
	s.w.Containers, s.w.Networks, s.r.Progress, s.w.Hook = nil, nil, nil, &Hook{Service: "mq", Number: 1}
}

// half is a create of which only the first service was started.
func half(s *scene, status, health string) {
	begun(s)
	s.r.EngineRun = life("b", "1")
	s.w.Networks = []Network{{ID: "n1"}}
	s.w.Containers = []Container{service("db", status, health)}
	s.r.Progress = &storev1.Progress{Services: map[string]*storev1.ServiceProgress{"db": {Started: true}}}
}

// hooked is a create that only waits for its hook.
func hooked(s *scene, h Hook) {
	creating(s)
	s.r.Progress.HooksDone = 0
	h.Service, h.Number = "mq", 1
	s.w.Hook = &h
}

func stopped(s *scene) {
	for i := range s.w.Containers {
		s.w.Containers[i].Status, s.w.Containers[i].Health = "exited", ""
	}
}

// risen is a resume that has done nothing yet.
func risen(s *scene) {
	resuming(s)
	stopped(s)
	s.r.Progress = &storev1.Progress{HooksDone: 1}
}

func TestDecideWithServices(t *testing.T) {
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
	}{
		{"all is well: nothing", func(*scene) {}, "next:29m0s"},
		{"create: the first service, and all images at once", begun,
			"make-inputs ensure-image(db) ensure-image(mq) ensure-image create-network create-service(db) " +
				"start-container(db) life:1 next:2m0s"},
		{"create cut off before the service's start", func(s *scene) { half(s, "created", "") },
			"make-inputs ensure-image(mq) ensure-image start-container(db):db life:1 next:2m0s"},
		{"create: the service is not healthy yet", func(s *scene) { half(s, "running", "starting") },
			"make-inputs ensure-image(mq) ensure-image next:1m50s"},
		{"create: a running service without any verdict is not healthy", func(s *scene) { half(s, "running", "") },
			"make-inputs ensure-image(mq) ensure-image next:1m50s"},
		{"create: healthy, so the second one", func(s *scene) { half(s, "running", "healthy") },
			"SERVICE_READY(db) make-inputs ensure-image(mq) ensure-image create-service(mq):n1 start-container(mq) life:1 next:1m0s"},
		{"create: a service that never gets healthy", func(s *scene) {
			half(s, "running", "starting")
			s.w.Containers[0].StartedAt = now.Add(-2 * time.Minute)
		}, "SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) FAILED(SANDBOX_CREATE_FAILED)"},
		{"create: an unhealthy service", func(s *scene) { half(s, "running", "unhealthy") },
			"SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) FAILED(SANDBOX_CREATE_FAILED)"},
		{"create: a service that dies", func(s *scene) { half(s, "exited", "") },
			"SERVICE_FAILED(db:CONTAINER_DIED) FAILED(SANDBOX_CREATE_FAILED)"},
		{"create: a service that the engine's death took along is started again", func(s *scene) {
			half(s, "exited", "")
			s.w.Run = life("b", "2")
		}, "recorded make-inputs ensure-image(mq) ensure-image start-container(db):db life:2 next:2m0s"},
		{"create: the engine's death took several parts along, one after another is started again", func(s *scene) {
			half(s, "running", "healthy")
			s.w.Containers = append(s.w.Containers, service("mq", "exited", ""))
			s.r.Progress.Services["db"].Mark, s.w.Run = toldReady, life("b", "2")
			s.r.Progress.Services["mq"] = &storev1.ServiceProgress{Started: true}
		}, "recorded make-inputs ensure-image start-container(mq):mq life:2 next:1m0s"},
		{"create: the primary that the engine's death took along", func(s *scene) {
			hooked(s, Hook{})
			s.r.EngineRun, s.w.Run, s.container("c1").Status = life("b", "1"), life("b", "2"), "exited"
			s.container("opt").Status = "exited"
		}, "recorded make-inputs start-container:c1 release:c1 life:2 next:1m0s"},
		{"create: what outlived the engine's process was started all the same", func(s *scene) {
			hooked(s, Hook{})
			s.r.EngineRun, s.w.Run = life("b", "1"), life("b", "2")
		}, "make-inputs run-hook(mq) next:5s"},
		{"create: a list alone does not say since when a service runs", func(s *scene) {
			half(s, "running", "starting")
			s.w.Containers[0].Inspected, s.w.Containers[0].StartedAt = false, time.Time{}
		}, "make-inputs ensure-image(mq) ensure-image next:1ms"},
		{"create: an optional service on a network that is gone is connected", func(s *scene) {
			hooked(s, Hook{})
			s.container("opt").NetworkIDs = []string{"n0"}
		}, "make-inputs connect-network(opt):opt run-hook(mq) next:5s"},
		{"create cut off between a start and its record: started again", func(s *scene) {
			half(s, "exited", "")
			s.r.Progress = nil
		}, "make-inputs ensure-image(mq) ensure-image start-container(db):db life:1 next:2m0s"},
		{"create whose network went: its services are connected to the next one", func(s *scene) {
			half(s, "running", "healthy")
			s.w.Networks = nil
		}, "SERVICE_READY(db) make-inputs ensure-image(mq) ensure-image create-network connect-network(db):db " +
			"create-service(mq) start-container(mq) life:1 next:1m0s"},
		{"create: the primary follows", func(s *scene) {
			hooked(s, Hook{})
			s.without("c1", "opt")
			s.r.Progress.PrimaryStarted, s.r.Progress.Released = false, false
			delete(s.r.Progress.Services, "opt")
		}, "make-inputs ensure-image create-primary:n1 start-container release life:1 next:1m0s"},
		{"create: when it has started, the optional service and the hook", func(s *scene) {
			hooked(s, Hook{})
			s.without("opt")
			delete(s.r.Progress.Services, "opt")
		}, "make-inputs run-hook(mq) | ensure-image(opt) create-service(opt):n1 start-container(opt) next:5s"},
		{"create: files are copied before the first start", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Copies, s.container("c1").Status, s.r.Progress.PrimaryStarted = true, "created", false
		}, "make-inputs copy-files:c1"},
		{"create: also into one that was started from outside", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Copies, s.r.Progress.PrimaryStarted = true, false
		}, "make-inputs copy-files:c1"},
		{"create: files are copied once", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Copies, s.r.Progress.Copied = true, true
			s.container("c1").Status, s.r.Progress.PrimaryStarted, s.r.Progress.Released = "created", false, false
		}, "make-inputs start-container:c1 release:c1 life:1 next:1m0s"},
		{"create: an outdated answer hides the start of a released primary: it is released again", func(s *scene) {
			hooked(s, Hook{})
			s.container("c1").Status = "created"
		}, "make-inputs start-container:c1 release:c1 life:1 next:1m0s"},
		{"create: a primary that died before its hooks ended", func(s *scene) {
			hooked(s, Hook{})
			s.container("c1").Status = "exited"
		}, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"main process: its start is on record before it may run", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Main, s.container("c1").Status = true, "created"
			s.r.Progress.PrimaryStarted, s.r.Progress.Released = false, false
		}, "make-inputs start-container:c1 life:1"},
		{"main process: also when that was cut off", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Main, s.r.Progress.PrimaryStarted, s.r.Progress.Released = true, false, false
		}, "make-inputs life:1"},
		{"main process: then it is released", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Main, s.r.Progress.Released = true, false
		}, "make-inputs release:c1 life:1 next:1m0s"},
		{"main process: one that ended before its start was recorded is not run again", func(s *scene) {
			creating(s)
			s.r.Wanted.Main, s.r.Progress.Released, s.container("c1").Status, s.w.Start = true, false, "exited", Start{}
		}, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"hook: too long", func(s *scene) {
			hooked(s, Hook{Phase: execphase.Running, StartedAt: now.Add(-6 * time.Minute)})
		},
			"make-inputs cancel-hook(mq) next:5s"},
		{"hook: asked for and not started", func(s *scene) { hooked(s, Hook{Since: now.Add(-time.Minute)}) },
			"make-inputs run-hook(mq) next:5s"},
		{"hook: asked for and never started", func(s *scene) { hooked(s, Hook{Since: now.Add(-5 * time.Minute)}) },
			"FAILED(SANDBOX_CREATE_FAILED)"},
		{"hook: a start in the future gains no time", func(s *scene) {
			hooked(s, Hook{Phase: execphase.Running, StartedAt: now.Add(time.Hour), Since: now.Add(-5 * time.Minute)})
		}, "make-inputs cancel-hook(mq) next:5s"},
		{"hook: it does not end when it is cancelled", func(s *scene) {
			hooked(s, Hook{Phase: execphase.Running, StartedAt: now.Add(time.Hour), Since: now.Add(-6 * time.Minute)})
		}, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"hooks: another primary would lack what they did", func(s *scene) {
			hooked(s, Hook{Index: 1})
			s.r.Progress.HooksDone = 1
			s.without("c1")
		}, "FAILED(CONTAINER_MISSING)"},
		{"hooks: nor is the one that ended repeated in it", func(s *scene) {
			hooked(s, Hook{Phase: execphase.Ended})
			s.without("c1")
		}, "FAILED(CONTAINER_MISSING)"},
		{"create: the next primary gets its files too", func(s *scene) {
			hooked(s, Hook{})
			s.r.Wanted.Copies, s.r.Progress.Copied = true, true
			s.without("c1")
		}, "recorded make-inputs ensure-image create-primary:n1 copy-files"},
		{"hook: ended well", func(s *scene) { hooked(s, Hook{Phase: execphase.Ended}) }, "make-inputs end-hook(mq)"},
		{"hook: failed", func(s *scene) { hooked(s, Hook{Phase: execphase.Ended, ExitCode: 3}) }, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"hook: no end on record", func(s *scene) { hooked(s, Hook{Phase: execphase.Lost}) }, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"hook: its journal was replaced", func(s *scene) { hooked(s, Hook{Phase: execphase.Foreign}) }, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"hooks done: ready", func(s *scene) { creating(s) }, "make-inputs READY life:1"},

		{"optional service: made without delaying READY, also after it", func(s *scene) {
			s.without("opt")
			delete(s.r.Progress.Services, "opt")
		}, "| ensure-image(opt) create-service(opt):n1 start-container(opt) next:29m0s"},
		{"optional service: one that can't be started is not tried again", func(s *scene) {
			*s.container("opt") = service("opt", "created", "")
			s.r.Progress.Services["opt"] = &storev1.ServiceProgress{Mark: toldFailed, Started: true}
		}, "next:29m0s"},
		{"optional service: but its policy tries, from the last try on", func(s *scene) {
			s.r.Wanted.Services[2].Restart = RestartAlways
			*s.container("opt") = service("opt", "created", "")
			s.container("opt").StartedAt, s.container("opt").FinishedAt = time.Time{}, time.Time{}
			s.r.Progress.Services["opt"] = &storev1.ServiceProgress{
				Mark: toldFailed, Started: true, Restarts: &storev1.Restarts{Row: 3, LastAt: now.Add(-time.Second).UnixNano()},
			}
		}, "next:7s"},
		{"optional service: well when the sandbox is, told of one that is READY", func(s *scene) {
			creating(s)
			s.r.Progress.Services["opt"].Mark = 0
		}, "make-inputs READY life:1 | SERVICE_READY(opt)"},
		{"optional service: late health is recorded", func(s *scene) { s.r.Progress.Services["opt"].Mark = 0 },
			"| SERVICE_READY(opt) next:29m0s"},
		{"optional service: not healthy yet", func(s *scene) {
			s.r.Progress.Services["opt"].Mark = 0
			s.container("opt").Health = "starting"
		}, "next:50s"},
		{"optional service: never healthy", func(s *scene) {
			s.r.Progress.Services["opt"].Mark = 0
			s.container("opt").Health, s.container("opt").StartedAt = "starting", now.Add(-time.Hour)
		}, "| SERVICE_FAILED(opt:SANDBOX_SERVICE_FAILED) next:29m0s"},
		{"optional service: gone, told once, never made again", func(s *scene) { s.without("opt") },
			"| SERVICE_FAILED(opt:SANDBOX_SERVICE_FAILED) next:29m0s"},
		{"optional service: failed once and never more", func(s *scene) {
			s.without("opt")
			s.r.Progress.Services["opt"].Mark = toldFailed
		}, "next:29m0s"},

		{"ready: a service ends", func(s *scene) { s.container("db").Status, s.container("db").ExitCode = "exited", 1 },
			"| SERVICE_FAILED(db:CONTAINER_DIED) next:29m0s"},
		{"ready: a service is killed for memory", func(s *scene) {
			s.container("db").Status, s.container("db").ExitCode, s.container("db").OOMKilled = "exited", 137, true
		}, "| SERVICE_FAILED(db:CONTAINER_OOM) next:29m0s"},
		{"ready: a service falls ill", func(s *scene) { s.container("db").Health = "unhealthy" },
			"| SERVICE_FAILED(db:SANDBOX_SERVICE_FAILED) next:29m0s"},
		{"ready: a failure is recorded once", func(s *scene) {
			s.container("db").Status = "exited"
			s.r.Progress.Services["db"].Mark = toldFailed
		}, "next:29m0s"},
		{"ready: a recovery is recorded", func(s *scene) { s.r.Progress.Services["db"].Mark = toldFailed },
			"| SERVICE_READY(db) next:29m0s"},
		{"ready: a service that ended is brought back by its policy", func(s *scene) {
			s.r.Wanted.Services[0].Restart = RestartOnFailure
			s.container("db").Status, s.container("db").ExitCode, s.container("db").FinishedAt = "exited", 1, now.Add(-time.Second)
			s.r.Progress.Services["db"].Mark = toldFailed
		}, "| start-container(db):db next:29m0s"},
		{"ready: but not at once", func(s *scene) {
			s.r.Wanted.Services[0].Restart = RestartAlways
			s.container("db").Status = "exited"
			s.r.Progress.Services["db"].Mark, s.r.Progress.Services["db"].Restarts = toldFailed, &storev1.Restarts{Row: 3}
		}, "next:8s"},

		{"resume: services first", risen, "start-container(db):db life:1 next:2m0s"},
		{"resume: then the primary, the optional one beside it, no hooks", func(s *scene) {
			risen(s)
			s.container("db").Status, s.container("db").Health = "running", "healthy"
			s.container("mq").Status, s.container("mq").Health = "running", "healthy"
		}, "SERVICE_READY(db) SERVICE_READY(mq) start-container:c1 release:c1 life:1 next:1m0s"},
		{"resume: a required service is missing", func(s *scene) { risen(s); s.without("mq") }, "FAILED(SANDBOX_RESUME_FAILED)"},
		{"resume: an optional one is missing: not made again", func(s *scene) {
			risen(s)
			s.without("opt")
			s.container("db").Status, s.container("db").Health = "running", "healthy"
			s.container("mq").Status, s.container("mq").Health = "running", "healthy"
		}, "SERVICE_READY(db) SERVICE_READY(mq) start-container:c1 release:c1 life:1 next:1m0s"},
		{"resume: a service that dies again", func(s *scene) {
			risen(s)
			s.r.Progress.Services = map[string]*storev1.ServiceProgress{"db": {Started: true}}
		}, "SERVICE_FAILED(db:CONTAINER_DIED) FAILED(SANDBOX_RESUME_FAILED)"},

		{"the engine's death: services first, again", func(s *scene) { stopped(s); s.w.Run = life("b", "2") },
			"start-container(db):db next:2m0s"},
		{"the engine's death: then the rest", func(s *scene) {
			stopped(s)
			s.w.Run, s.r.Progress.RestartRun = life("b", "2"), life("b", "2")
			s.r.Progress.PrimaryStarted, s.r.Progress.Released = false, false
			for _, id := range []string{"db", "mq"} {
				s.container(id).Status, s.container(id).Health = "running", "healthy"
			}
			s.r.Progress.Services["opt"].Started = false
		}, "start-container:c1 release:c1 next:1m0s"},
		{"the engine's death: a service that dies by itself in the restart", func(s *scene) {
			stopped(s)
			s.w.Run, s.r.Progress.RestartRun = life("b", "2"), life("b", "2")
		}, "SERVICE_FAILED(db:CONTAINER_DIED) FAILED(CONTAINER_NOT_RUNNING)"},
		{"the engine's death: and another one during the restart", func(s *scene) {
			stopped(s)
			s.w.Run, s.r.Progress.RestartRun = life("b", "3"), life("b", "2")
		}, "start-container(db):db next:2m0s"},
		{"the engine's death: the primary was started from outside", func(s *scene) {
			stopped(s)
			s.w.Run, s.container("c1").Status = life("b", "2"), "running"
		}, "start-container(db):db next:2m0s"},
		{"a restart that was interrupted after the start is recorded", func(s *scene) {
			s.w.Run, s.r.Progress.RestartRun = life("b", "2"), life("b", "2")
		}, "RESTARTED(engine_death) life:2"},

		{"stop: the primary first", stopping, "stop-container:c1"},
		{"stop: then all services at once", func(s *scene) { stopping(s); s.container("c1").Status = "exited" },
			"stop-container(db):db stop-container(mq):mq stop-container(opt):opt"},
		{"stop: not stopped while a service runs", func(s *scene) {
			stopping(s)
			stopped(s)
			s.container("mq").Status, s.w.Stopping = "running", []string{"mq"}
		}, ""},
		{"stop: all down", func(s *scene) { stopping(s); stopped(s) }, "STOPPED(stop_requested)"},
		{"stopped, and a service was started from outside: stop again", func(s *scene) {
			stopping(s)
			stopped(s)
			s.r.State, s.container("db").Status = halted, "running"
		}, "stop-container(db):db"},
		{"failed: services stop too", func(s *scene) {
			s.r.State, s.r.ErrorCode, s.container("c1").Status = bad, CodeContainerDied, "exited"
		}, "stop-container(db):db stop-container(mq):mq stop-container(opt):opt"},
		{"a service outside the spec goes", func(s *scene) {
			s.w.Containers = append(s.w.Containers, service("other", "running", ""))
		}, "remove-container:other next:29m0s"},
		{"a second container of a service goes", func(s *scene) {
			double := service("db", "running", "")
			double.ID, double.Name = "db2", "agbox-svc-box1-db2"
			s.w.Containers = append(s.w.Containers, double)
		}, "remove-container:db2 next:29m0s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := served()
			row.mutate(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// The events of an aside follow READY: an older state in them would revert it.
func TestAnAsideOfAReadySandboxSaysReady(t *testing.T) {
	for _, mark := range []storev1.ServiceMark{0, toldFailed} {
		s := served()
		creating(&s)
		s.r.Progress.Services["opt"].Mark = mark
		a := Decide(s.r, s.w, s.p, now).Asides
		if len(a) != 1 || a[0].Events[0].GetSandboxState() != ready {
			t.Errorf("got %v", a)
		}
	}
	s := served()
	creating(&s)
	s.without("opt")
	delete(s.r.Progress.Services, "opt")
	a := Decide(s.r, s.w, s.p, now).Asides
	if up := a[0].GivenUp(s.r.Progress, "refused"); up.Events[0].GetSandboxState() != ready {
		t.Errorf("got %v", up.Events)
	}
}

// The mounts of a primary that outlived the engine are not checked again: a source that was replaced since would end it.
func TestAPrimaryThatOutlivedTheEngineIsNotReleasedAgain(t *testing.T) {
	s := served()
	s.w.Run, s.container("db").Status, s.container("db").Health = life("b", "2"), "exited", ""
	p := Decide(s.r, s.w, s.p, now)
	if got := render(p); got != "start-container(db):db next:2m0s" {
		t.Fatal(got)
	}
	s.r.Progress = p.After.Progress
	s.container("db").Status, s.container("db").Health = "running", "healthy"
	if got := render(Decide(s.r, s.w, s.p, now)); got != "RESTARTED(engine_death) life:2" {
		t.Error(got)
	}
}

// The intent of a restart by policy is recorded first, so if the pass is cut off, the next one records the event.
func TestARestartByPolicyIsOnRecordBeforeTheStart(t *testing.T) {
	s := healthy()
	s.r.Wanted.Restart, s.r.Wanted.Main = RestartAlways, true
	s.w.Containers[0].Status, s.w.Containers[0].Inspected = "exited", true
	s.w.Containers[0].ExitCode, s.w.Containers[0].OOMKilled, s.w.Containers[0].Output = 137, true, "allocating"
	p := Decide(s.r, s.w, s.p, now)
	if p.Before.Progress.GetRestartRun() == nil || p.After.Progress.GetRestartRun() != nil || p.After.Progress.GetRestartEnd() != nil {
		t.Errorf("before %v, after %v", p.Before.Progress, p.After.Progress)
	}
	const want = "the primary container was killed: out of memory; its output ends: allocating"
	for _, cutOff := range []bool{false, true} {
		if cutOff { // after the start, of which the engine's answer shows no end any more
			s.r.Progress, s.w.Containers[0] = p.Before.Progress, healthy().w.Containers[0]
		}
		d := Decide(s.r, s.w, s.p, now).After.Events[0].GetSandboxPhase()
		if d.GetExitCode() != 137 || !d.GetOomKilled() || d.GetEndMessage() != want {
			t.Errorf("cut off %v: %v", cutOff, d)
		}
	}
}

func TestTheStatusDuringABackoffSaysHowThePrimaryEnded(t *testing.T) {
	s := healthy()
	s.r.Wanted.Restart, s.r.Wanted.Main = RestartAlways, true
	c := &s.w.Containers[0]
	c.Status, c.Inspected, c.ExitCode, c.OOMKilled, c.FinishedAt = "exited", true, 137, true, now.Add(-100*time.Millisecond)
	if got := Decide(s.r, s.w, s.p, now).Waiting; got != "it is restarted in 1s: the primary container was killed: out of memory" {
		t.Error(got)
	}
}

func TestTheFailureOfAServiceHasTheEndOfItsOutput(t *testing.T) {
	for health, want := range map[string]string{
		"":          "required service db: its container exited with code 1; its output ends: no space for tables",
		"unhealthy": "required service db: it is unhealthy; its output ends: no space for tables",
	} {
		s := served()
		if half(&s, "exited", health); health != "" {
			s.w.Containers[0].Status = "running"
		}
		s.w.Containers[0].ExitCode, s.w.Containers[0].Output = 1, "no space for tables\n"
		events := Decide(s.r, s.w, s.p, now).After.Events
		if got := events[len(events)-1].GetSandboxPhase().GetErrorMessage(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDecideRestartPolicyLimitsAndCleanup(t *testing.T) {
	ended := func(s *scene, policy RestartPolicy, code int) {
		s.r.Wanted.Restart, s.r.Wanted.Main = policy, true
		c := &s.w.Containers[0]
		c.Status, c.ExitCode, c.EndedWell, c.Inspected = "exited", code, code == 0, true
		c.StartedAt, c.FinishedAt = now.Add(-time.Minute), now.Add(-2*time.Second)
	}
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
	}{
		{"on-failure: an error brings it back", func(s *scene) { ended(s, RestartOnFailure, 1) },
			"start-container:c1 release:c1 RESTARTED(restart_policy) life:1"},
		{"on-failure: a good end does not", func(s *scene) { ended(s, RestartOnFailure, 0) }, "FAILED(CONTAINER_DIED)"},
		{"always: a good end too", func(s *scene) { ended(s, RestartAlways, 0) },
			"start-container:c1 release:c1 RESTARTED(restart_policy) life:1"},
		{"never is the default", func(s *scene) { ended(s, "", 1) }, "FAILED(CONTAINER_DIED)"},
		{"the fourth in a row waits 8 s from the end", func(s *scene) {
			ended(s, RestartAlways, 1)
			s.r.Progress = &storev1.Progress{Restarts: &storev1.Restarts{Row: 3}}
		}, "next:6s"},
		{"a long run resets the back-off", func(s *scene) {
			ended(s, RestartAlways, 1)
			s.w.Containers[0].StartedAt = now.Add(-time.Hour)
			s.r.Progress = &storev1.Progress{Restarts: &storev1.Restarts{Row: 30}}
		}, "start-container:c1 release:c1 RESTARTED(restart_policy) life:1"},
		{"a clock that was set back delays nothing for long", func(s *scene) {
			ended(s, RestartAlways, 1)
			s.w.Containers[0].FinishedAt = now.Add(24 * time.Hour)
		}, "start-container:c1 release:c1 RESTARTED(restart_policy) life:1"},
		{"an end that was later than the look: the back-off from there", func(s *scene) {
			ended(s, RestartAlways, 1)
			s.w.Containers[0].FinishedAt = now.Add(time.Millisecond)
		}, "next:1.001s"},
		{"an interrupted restart by policy is recorded", func(s *scene) {
			s.r.Wanted.Restart, s.r.Progress = RestartAlways, &storev1.Progress{RestartRun: life("b", "1")}
		}, "release:c1 RESTARTED(restart_policy) life:1"},
		{"a missing primary is not brought back", func(s *scene) { s.r.Wanted.Restart, s.w.Containers = RestartAlways, nil },
			"FAILED(CONTAINER_MISSING)"},

		{"changed limits are applied", func(s *scene) {
			s.r.LimitsPending, s.r.Wanted.Limits, s.w.Containers[0].Inspected = true, Limits{Pids: 100}, true
		}, "| update-limits:c1 applied next:29m0s"},
		{"limits that are as wanted need no step", func(s *scene) { s.r.LimitsPending, s.w.Containers[0].Inspected = true, true },
			"| applied next:29m0s"},
		{"changed limits of a stopped one", func(s *scene) {
			stopping(s)
			s.r.State, s.r.LimitsPending, s.r.Wanted.Limits = halted, true, Limits{NanoCPUs: 1}
			s.w.Containers[0].Status, s.w.Containers[0].Inspected = "exited", true
		}, "| update-limits:c1 applied"},
		{"limits that may be refused hold up neither the idle clock nor the cleanup", func(s *scene) {
			stopping(s)
			s.r.State, s.r.LimitsPending, s.r.Wanted.Limits = halted, true, Limits{NanoCPUs: 1}
			s.w.Containers[0].Status, s.w.Containers[0].Inspected = "exited", true
			s.p.CleanupTTL, s.r.StateChangedAt = time.Hour, now.Add(-2*time.Hour)
		}, "cleanup | update-limits:c1 applied"},

		{"stopped for too long: cleaned up", func(s *scene) {
			stopping(s)
			s.r.State, s.w.Containers[0].Status = halted, "exited"
			s.p.CleanupTTL, s.r.StateChangedAt = time.Hour, now.Add(-2*time.Hour)
		}, "cleanup"},
		{"stopped, to be cleaned up later", func(s *scene) {
			stopping(s)
			s.r.State, s.w.Containers[0].Status = halted, "exited"
			s.p.CleanupTTL, s.r.StateChangedAt = time.Hour, now.Add(-time.Minute)
		}, "next:59m0s"},
		{"stopped for too long, and kept", func(s *scene) {
			stopping(s)
			s.r.State, s.w.Containers[0].Status, s.r.KeepStopped = halted, "exited", true
			s.p.CleanupTTL, s.r.StateChangedAt = time.Hour, now.Add(-2*time.Hour)
		}, ""},
		{"failed for too long: cleaned up, though kept while stopped", func(s *scene) {
			s.r.State, s.r.ErrorCode, s.w.Containers[0].Status, s.r.KeepStopped = bad, CodeContainerDied, "exited", true
			s.p.CleanupTTL, s.r.StateChangedAt = time.Hour, now.Add(-2*time.Hour)
		}, "cleanup"},
		{"failed for too long: cleaned up", func(s *scene) {
			s.r.State, s.r.ErrorCode, s.w.Containers[0].Status = bad, CodeContainerDied, "exited"
			s.p.CleanupTTL, s.r.StateChangedAt = time.Hour, now.Add(-2*time.Hour)
		}, "cleanup"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := healthy()
			row.mutate(&s)
			if got := render(Decide(s.r, s.w, s.p, now)); got != row.want {
				t.Errorf("got  %s\nwant %s", got, row.want)
			}
		})
	}
}

// The report of a start may be too late, for instance after an update. The next pass finds the service running; a later death of the host
// must not count as the service's own failure.
func TestTheFirstHealthyServiceRecordsTheLifeOfTheEngine(t *testing.T) {
	s := served()
	half(&s, "running", "healthy")
	s.r.EngineRun, s.r.Progress = nil, nil
	if p := Decide(s.r, s.w, s.p, now); p.Before.EngineRun == nil || p.Before.Progress.GetServices()["db"].GetMark() != toldReady {
		t.Errorf("recorded first: %v", p.Before)
	}
}
