package plan

import (
	"strings"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	run    = storev1.RunState_RUN_STATE_RUN
	halt   = storev1.RunState_RUN_STATE_STOP
	del    = storev1.RunState_RUN_STATE_DELETE
	fresh  = storev1.Attempt_ATTEMPT_CREATE
	again  = storev1.Attempt_ATTEMPT_RESUME
	pend   = agboxv1.SandboxState_SANDBOX_STATE_PENDING
	ready  = agboxv1.SandboxState_SANDBOX_STATE_READY
	bad    = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	halted = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
	going  = agboxv1.SandboxState_SANDBOX_STATE_DELETING
)

var now = time.Unix(1_700_000_000, 0)

func life(boot, start string) *storev1.EngineRun {
	return &storev1.EngineRun{BootId: boot, EngineStart: start}
}

// scene is a healthy READY sandbox; each row changes one thing.
type scene struct {
	r Record
	w World
	p Policy
}

func healthy() scene {
	return scene{
		r: Record{
			ID: "box1", Desired: run, Attempt: fresh, State: ready, Preparing: true,
			EngineRun: life("b", "1"), RequestedAt: now.Add(-time.Hour), IdleSince: now.Add(-time.Minute),
		},
		w: World{
			Run: life("b", "1"), Inputs: true, Start: Start{Reported: true},
			Networks:   []Network{{ID: "n1", Created: now.Add(-time.Hour)}},
			Containers: []Container{primary("running")},
		},
		p: Policy{Settings: Settings{IdleTTL: 30 * time.Minute, CancelGrace: 10 * time.Second}, Started: now.Add(-2 * time.Hour)},
	}
}

func primary(status string) Container {
	return Container{
		ID: "c1", Name: naming.Primary("box1"), Component: naming.ComponentPrimary, Status: status,
		NetworkIDs: []string{"n1"},
	}
}

// render writes a plan as one line, in the order of execution.
func render(p Plan) string {
	var parts []string
	event := func(e *agboxv1.SandboxEvent) {
		s := strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_")
		if d := e.GetSandboxPhase(); d.GetErrorCode()+d.GetReason() != "" {
			s += "(" + d.GetErrorCode() + d.GetReason() + ")"
		}
		if d := e.GetService(); d != nil {
			s += "(" + d.GetServiceName() + strings.TrimSuffix(":"+d.GetErrorCode(), ":") + ")"
		}
		parts = append(parts, s)
	}
	report := func(r Report) {
		for _, e := range r.Events {
			event(e)
		}
		if r.EngineRun != nil {
			parts = append(parts, "life:"+r.EngineRun.GetEngineStart())
		}
	}
	steps := func(steps []Step) {
		for _, s := range steps {
			what := string(s.Kind)
			if s.Service != "" {
				what += "(" + s.Service + ")"
			}
			parts = append(parts, strings.TrimSuffix(what+":"+s.ID, ":"))
		}
	}
	report(p.Before)
	if p.Before.Progress != nil && len(p.Before.Events) == 0 && p.Before.Progress.GetRestartRun() == nil {
		parts = append(parts, "recorded")
	}
	steps(p.Steps)
	report(p.After)
	for _, a := range p.Asides {
		parts = append(parts, "|")
		steps(a.Steps)
		for _, e := range a.Events {
			event(e)
		}
		if a.LimitsApplied {
			parts = append(parts, "applied")
		}
	}
	if p.Unknown {
		parts = append(parts, "unknown")
	}
	if p.Next > 0 {
		parts = append(parts, "next:"+p.Next.String())
	}
	return strings.Join(parts, " ")
}

func TestDecide(t *testing.T) {
	const rm = "remove-container:c1 remove-network:n1"
	for _, row := range []struct {
		name   string
		mutate func(*scene)
		want   string
	}{
		{"ready and running: nothing but the idle clock", func(*scene) {}, "next:29m0s"},
		{"idle for too long: stop", func(s *scene) { s.r.IdleSince = now.Add(-31 * time.Minute) }, "stop-idle"},
		{"idle but never to be stopped: nothing", func(s *scene) { s.p.IdleTTL = 0 }, ""},
		{"an active exec holds the idle clock", func(s *scene) { s.r.ActiveExecs, s.r.IdleSince = 1, time.Time{} }, ""},
		{"primary exited: failed", func(s *scene) { s.w.Containers[0].Status = "exited" }, "FAILED(CONTAINER_DIED)"},
		{"primary killed for memory: failed with OOM", func(s *scene) {
			s.w.Containers[0] = primary("exited")
			s.w.Containers[0].ExitCode, s.w.Containers[0].OOMKilled = 137, true
		}, "FAILED(CONTAINER_OOM)"},
		{"killed from outside after an exec had met the OOM killer: died", func(s *scene) {
			s.w.Containers[0] = primary("exited")
			s.w.Containers[0].ExitCode, s.w.Containers[0].OOMKilled, s.w.ExecOOM = 137, true, true
			s.w.Containers[0].KilledOutside = true
		}, "FAILED(CONTAINER_DIED)"},
		{"killed by an unknown process after an exec had met the OOM killer: failed with OOM", func(s *scene) {
			s.w.Containers[0] = primary("exited")
			s.w.Containers[0].ExitCode, s.w.Containers[0].OOMKilled, s.w.ExecOOM = 137, true, true
		}, "FAILED(CONTAINER_OOM)"},
		{"killed from outside, and the OOM flag is no exec's: failed with OOM", func(s *scene) {
			s.w.Containers[0] = primary("exited")
			s.w.Containers[0].ExitCode, s.w.Containers[0].OOMKilled, s.w.Containers[0].KilledOutside = 137, true, true
		}, "FAILED(CONTAINER_OOM)"},
		{"the OOM flag with another exit code: died", func(s *scene) {
			s.w.Containers[0] = primary("exited")
			s.w.Containers[0].ExitCode, s.w.Containers[0].OOMKilled = 1, true
		}, "FAILED(CONTAINER_DIED)"},
		{"primary missing: failed", func(s *scene) { s.w.Containers = nil }, "FAILED(CONTAINER_MISSING)"},
		{"network missing: failed", func(s *scene) { s.w.Networks = nil }, "FAILED(NETWORK_MISSING)"},
		{"an engine that restarted under a live primary: its life is noted", func(s *scene) { s.w.Run = life("b", "2") },
			"life:2 next:29m0s"},
		{"primary ended by the engine's death: start again", func(s *scene) {
			s.w.Run, s.w.Containers[0].Status = life("b", "2"), "exited"
		}, "start-container:c1 release:c1 next:1m0s"},
		{"primary ended by the host's death: start again", func(s *scene) {
			s.w.Run, s.w.Containers[0].Status = life("b2", "1"), "exited"
		}, "start-container:c1 release:c1 next:1m0s"},
		{"an engine that does not tell of its life: no verdict on an end", func(s *scene) {
			s.w.Run, s.w.Containers[0].Status = life("b", ""), "exited"
		}, "next:10s"},
		{"a sandbox made under an engine that did not tell of its life: no verdict on its end", func(s *scene) {
			s.r.EngineRun, s.w.Containers[0].Status = life("b", ""), "exited"
		}, "next:10s"},
		{"the host's death needs no word of the engine", func(s *scene) {
			s.w.Run, s.w.Containers[0].Status = life("b2", ""), "exited"
		}, "start-container:c1 release:c1 next:1m0s"},
		{"when deaths fail what ran, their cause is not read", func(s *scene) {
			s.w.Run, s.w.Containers[0].Status, s.p.FailOnEngineDeath = life("b", ""), "exited", true
		}, "FAILED(CONTAINER_DIED)"},
		{"a known life is not forgotten for an unknown one", func(s *scene) { s.w.Run = life("b", "") }, "next:29m0s"},
		{"alive after the host's death: noted although the engine does not tell of its life", func(s *scene) {
			s.w.Run = life("b2", "")
		}, "life: next:29m0s"},
		{"an unknown life is replaced by a known one", func(s *scene) { s.r.EngineRun = life("b", "") }, "life:1 next:29m0s"},
		{"engine's death by policy fails", func(s *scene) {
			s.w.Run, s.w.Containers[0].Status, s.p.FailOnEngineDeath = life("b", "2"), "exited", true
		}, "FAILED(CONTAINER_DIED)"},
		{"primary missing after the engine's death: failed, never recreated", func(s *scene) {
			s.w.Run, s.w.Containers = life("b", "2"), nil
		}, "FAILED(CONTAINER_MISSING)"},
		{"a container that is being removed: no verdict", func(s *scene) { s.w.Containers[0].Status = "removing" }, "next:1s"},
		{"killed just now, with a memory limit: the engine may yet tell why", func(s *scene) {
			c := &s.w.Containers[0]
			c.Status, c.ExitCode, c.Limits.MemoryBytes, c.FinishedAt = "exited", 137, 32<<20, now.Add(-oomLag/2)
		}, "next:1s"},
		{"killed a second ago, with a memory limit: the engine has not told of any cause", func(s *scene) {
			c := &s.w.Containers[0]
			c.Status, c.ExitCode, c.Limits.MemoryBytes, c.FinishedAt = "exited", 137, 32<<20, now.Add(-oomLag)
		}, "FAILED(CONTAINER_DIED)"},
		{"killed by the clock in the future, with a memory limit", func(s *scene) {
			c := &s.w.Containers[0]
			c.Status, c.ExitCode, c.Limits.MemoryBytes, c.FinishedAt = "exited", 137, 32<<20, now.Add(time.Hour)
		}, "FAILED(CONTAINER_DIED)"},
		{"killed just now from outside, with a memory limit", func(s *scene) {
			c := &s.w.Containers[0]
			c.Status, c.ExitCode, c.Limits.MemoryBytes, c.FinishedAt, c.KilledOutside = "exited", 137, 32<<20, now, true
		}, "FAILED(CONTAINER_DIED)"},
		{"a container that restarts: no verdict", func(s *scene) { s.w.Containers[0].Status = "restarting" }, "next:1s"},
		{"a container that restarts forever can be stopped", func(s *scene) {
			stopping(s)
			s.w.Containers[0].Status = "restarting"
		}, "stop-container:c1"},
		{"a container that restarts forever can be deleted", func(s *scene) {
			deleting(s)
			s.w.Containers[0].Status = "restarting"
		}, rm + " remove-files DELETED(delete_requested)"},
		{"a dead container is as good as missing, and goes", func(s *scene) { s.w.Containers[0].Status = "dead" },
			"remove-container:c1 FAILED(CONTAINER_MISSING)"},
		{"a second primary goes", func(s *scene) {
			s.w.Containers = append(s.w.Containers, Container{ID: "c2", Name: "x", Component: naming.ComponentPrimary, Status: "running"})
		}, "remove-container:c2 next:29m0s"},
		{"of two networks the primary's stays", func(s *scene) {
			s.w.Networks = append([]Network{{ID: "n0", Created: now.Add(-2 * time.Hour)}}, s.w.Networks...)
		}, "remove-network:n0 next:29m0s"},

		{"create: nothing there yet", func(s *scene) { creating(s); s.w.Containers, s.w.Networks = nil, nil },
			"make-inputs ensure-image create-network create-primary start-container release life:1 next:1m0s"},
		{"create: another sandbox of the name may still have the volumes", func(s *scene) {
			creating(s)
			s.w.Containers, s.w.Networks, s.r.Namesake = nil, nil, "box0"
		}, "next:1s"},
		{"create: the first pass says so", func(s *scene) {
			creating(s)
			s.w.Containers, s.w.Networks, s.r.Preparing = nil, nil, false
		}, "PREPARING make-inputs ensure-image create-network create-primary start-container release life:1 next:1m0s"},
		{"create cut off after the network", func(s *scene) { creating(s); s.w.Containers = nil },
			"make-inputs ensure-image create-primary:n1 start-container release life:1 next:1m0s"},
		{"create with doubled networks keeps the oldest", func(s *scene) {
			creating(s)
			s.w.Containers = nil
			s.w.Networks = append(s.w.Networks, Network{ID: "n2", Created: now})
		}, "remove-network:n2 make-inputs ensure-image create-primary:n1 start-container release life:1 next:1m0s"},
		{"create cut off before the start", func(s *scene) { creating(s); s.w.Containers[0].Status = "created" },
			"make-inputs start-container:c1 release:c1 life:1 next:1m0s"},
		{"create cut off before the report", creating, "make-inputs release:c1 life:1 next:1m0s"},
		{"create whose network went", func(s *scene) {
			creating(s)
			s.w.Containers[0].Status, s.w.Networks = "created", nil
		}, "make-inputs create-network connect-network:c1 start-container:c1 release:c1 life:1 next:1m0s"},
		{"an interrupted create fails by policy", func(s *scene) {
			creating(s)
			s.p.FailInterruptedCreate, s.p.Started = true, now
		}, "FAILED(SANDBOX_CREATE_FAILED)"},
		{"a create of this daemon's is not interrupted", func(s *scene) {
			creating(s)
			s.p.FailInterruptedCreate = true
		}, "make-inputs release:c1 life:1 next:1m0s"},
		{"create failed: remove what it made", func(s *scene) { s.r.State, s.r.ErrorCode = bad, CodeCreateFailed },
			rm + " remove-inputs"},
		{"create failed and clean: nothing", func(s *scene) {
			s.r.State, s.r.ErrorCode, s.w = bad, CodeCreateFailed, World{}
		}, ""},

		{"resume: start what is stopped", func(s *scene) { resuming(s) }, "start-container:c1 release:c1 life:1 next:1m0s"},
		{"resume: running already", func(s *scene) { resuming(s); s.w.Containers[0].Status = "running" }, "release:c1 life:1 next:1m0s"},
		{"resume without primary: failed", func(s *scene) { resuming(s); s.w.Containers = nil }, "FAILED(SANDBOX_RESUME_FAILED)"},
		{"resume without network: failed", func(s *scene) { resuming(s); s.w.Networks = nil }, "FAILED(SANDBOX_RESUME_FAILED)"},

		{"stop: stop the primary", stopping, "stop-container:c1"},
		{"stop under way: wait", func(s *scene) { stopping(s); s.w.Stopping = []string{"c1"} }, ""},
		{"stop: exited while the engine is still at it", func(s *scene) {
			stopping(s)
			s.w.Containers[0].Status, s.w.Stopping = "exited", []string{"c1"}
		}, ""},
		{"stop with execs: they end first", func(s *scene) { stopping(s); s.r.ActiveExecs = 2 }, "cancel-execs next:40s"},
		{"stop with execs that never end: stop all the same", func(s *scene) {
			stopping(s)
			s.r.ActiveExecs, s.r.RequestedAt = 2, now.Add(-time.Minute)
		}, "cancel-execs stop-container:c1"},
		{"stop with an agent in a turn: it has longer", func(s *scene) {
			stopping(s)
			s.r.Agents, s.r.Turns, s.r.ActiveExecs = true, 1, 1
		}, "cancel-execs next:1m10s"},
		{"stop with an agent whose work is being saved", func(s *scene) {
			stopping(s)
			s.r.Agents, s.r.Turns = true, 1
		}, "cancel-execs next:1m10s"},
		{"stop with an agent that never finishes: stop all the same", func(s *scene) {
			stopping(s)
			s.r.Agents, s.r.Turns, s.r.RequestedAt = true, 1, now.Add(-time.Hour)
		}, "cancel-execs stop-container:c1"},
		{"stop: exited but an end is not recorded yet", func(s *scene) {
			stopping(s)
			s.r.ActiveExecs, s.w.Containers[0].Status = 1, "exited"
		}, "cancel-execs"},
		{"stop: exited", func(s *scene) { stopping(s); s.w.Containers[0].Status = "exited" }, "STOPPED(stop_requested)"},
		{"stop: missing", func(s *scene) { stopping(s); s.w.Containers = nil }, "FAILED(CONTAINER_MISSING)"},
		{"stopped and exited: nothing", func(s *scene) { stopping(s); s.r.State, s.w.Containers[0].Status = halted, "exited" }, ""},
		{"stopped, and started from outside: stop again", func(s *scene) { stopping(s); s.r.State = halted }, "stop-container:c1"},
		{"the network of a stopped sandbox stays", func(s *scene) {
			stopping(s)
			s.r.State, s.w.Containers[0].Status = halted, "exited"
		}, ""},

		{"delete: everything goes", deleting, rm + " remove-files DELETED(delete_requested)"},
		{"delete with volumes: they go last", func(s *scene) { deleting(s); s.r.RemoveVolumes = true },
			rm + " remove-files remove-volumes DELETED(delete_requested)"},
		{"delete with volumes and an agent that stays: they wait", func(s *scene) { deleting(s); s.r.RemoveVolumes, s.r.Leaving = true, 1 }, rm},
		{"delete during a create: everything goes", func(s *scene) { deleting(s); s.w.Containers[0].Status = "created" },
			rm + " remove-files DELETED(delete_requested)"},
		{"delete with execs: files go last", func(s *scene) { deleting(s); s.r.ActiveExecs = 1 }, "cancel-execs " + rm},
		{"delete with an agent that finishes: it has a while", func(s *scene) {
			deleting(s)
			s.r.Agents, s.r.Turns, s.r.ActiveExecs, s.r.RequestedAt = true, 1, 1, now.Add(-10*time.Second)
		}, "cancel-execs next:1m0s"},
		{"delete with an agent that does not finish: everything goes", func(s *scene) {
			deleting(s)
			s.r.Agents, s.r.Turns, s.r.ActiveExecs, s.r.RequestedAt = true, 1, 1, now.Add(-time.Hour)
		}, "cancel-execs " + rm},
		{"delete with an agent that is frozen: it is thawed to finish", func(s *scene) {
			deleting(s)
			s.r.Agents, s.r.Turns, s.r.ActiveExecs, s.r.RequestedAt = true, 1, 1, now
			s.w.Containers[0].Status = "paused"
		}, "cancel-execs unpause-container:c1 next:1m10s"},
		{"delete with an agent that stays: files wait until all is read", func(s *scene) { deleting(s); s.r.Leaving = 1 }, rm},
		{"delete of what never came to be", func(s *scene) { deleting(s); s.w = World{} }, "remove-files DELETED(delete_requested)"},

		{"failed otherwise: stop what runs, keep it", func(s *scene) { s.r.State, s.r.ErrorCode = bad, CodeNetworkMissing },
			"stop-container:c1"},
		{"failed otherwise and ended: nothing", func(s *scene) {
			s.r.State, s.r.ErrorCode, s.w.Containers[0].Status = bad, CodeContainerDied, "exited"
		}, ""},
		{"failed with execs: they end", func(s *scene) {
			s.r.State, s.r.ErrorCode, s.r.ActiveExecs, s.w.Containers[0].Status = bad, CodeContainerDied, 1, "exited"
		}, "cancel-execs"},

		{"deleted: what is left is an orphan", func(s *scene) { s.r = Record{ID: "box1", Standing: Gone} }, rm},
		{"orphans in a dry run stay", func(s *scene) { s.r, s.p.KeepOrphans = Record{ID: "box1", Standing: Gone}, true }, ""},
		{"never reserved: reported, never removed", func(s *scene) { s.r = Record{ID: "box1", Standing: NeverReserved} }, "unknown"},
		{"damaged record: no verdict", func(s *scene) { s.r = Record{ID: "box1", Standing: Unreadable} }, ""},
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

func creating(s *scene) {
	s.r.State, s.r.EngineRun, s.r.IdleSince = pend, nil, time.Time{}
}

func resuming(s *scene) {
	s.r.State, s.r.Attempt, s.r.IdleSince = pend, again, time.Time{}
	s.w.Containers[0].Status = "exited"
}

func stopping(s *scene) {
	s.r.Desired, s.r.Reason, s.r.RequestedAt, s.r.IdleSince = halt, "stop_requested", now, time.Time{}
}

func deleting(s *scene) {
	s.r.Desired, s.r.Reason, s.r.State = del, "delete_requested", going
}

func TestAPlanWithoutStepsOrReportIsIdle(t *testing.T) {
	s := healthy()
	if p := Decide(s.r, s.w, s.p, now); !p.Idle() {
		t.Errorf("a healthy sandbox has work: %s", render(p))
	}
	s.w.Containers = nil
	if Decide(s.r, s.w, s.p, now).Idle() {
		t.Error("a missing primary is no work")
	}
}
