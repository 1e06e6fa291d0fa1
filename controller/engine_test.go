package controller_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	ready  = agboxv1.SandboxState_SANDBOX_STATE_READY
	failed = agboxv1.SandboxState_SANDBOX_STATE_FAILED
)

// trickEngine lets a test change something just before a list, leave containers out of its lists, or change the engine's info.
type trickEngine struct {
	controller.Engine
	mu         sync.Mutex
	beforeList func()
	omits      func(dockerx.Container) bool
	info       func(*dockerx.Info)
}

func trick(e *trickEngine) func(*controller.Config) {
	return func(c *controller.Config) { e.Engine, c.Engine = c.Engine, e }
}

func (e *trickEngine) set(beforeList func(), info func(*dockerx.Info)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beforeList, e.info = beforeList, info
}

func (e *trickEngine) ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error) {
	e.mu.Lock()
	trick := e.beforeList
	e.beforeList = nil
	e.mu.Unlock()
	if trick != nil {
		trick()
	}
	list, err := e.Engine.ListContainers(ctx, labels)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.omits != nil {
		list = slices.DeleteFunc(list, e.omits)
	}
	return list, err
}

// A delete sees the stopped service of its sandbox, and not the primary. Both are removed before the sandbox is DELETED: no sweep follows.
func TestAListThatLacksAContainerDoesNotHideItFromADelete(t *testing.T) {
	e := &trickEngine{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: image}}})
		pass(time.Minute)
		p.wantState(t, id, ready)
		if _, err := p.store.RequestStop(t.Context(), id, "stop_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		e.mu.Lock()
		e.omits = func(c dockerx.Container) bool { return c.Name == naming.Primary(id) }
		e.mu.Unlock()
		if _, err := p.store.RequestDelete(t.Context(), id, "delete_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantState(t, id, deleted)
		if d, err := p.engine.InspectContainer(t.Context(), naming.Primary(id)); err == nil {
			t.Errorf("the primary is %+v", d.Container)
		}
	}, trick(e), keepOrphans)
}

func (e *trickEngine) Info(ctx context.Context) (dockerx.Info, error) {
	info, err := e.Engine.Info(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.info != nil {
		e.info(&info)
	}
	return info, err
}

// The link to the engine was good when the pass started; another engine answers its list.
func TestAnEngineReplacedDuringAPassBringsNoVerdict(t *testing.T) {
	for _, what := range []string{"stop", "delete", "start box"} {
		t.Run(what, func(t *testing.T) {
			e := &trickEngine{}
			withDaemon(t, func(t *testing.T, p *player) {
				id := p.readyBox(t)
				e.set(p.engine.Replace, nil)
				before := p.sandbox(t, id).State
				p.must(t, act{what, 0})
				if what == "start box" {
					p.engine.PauseOutside(p.container(0), true) // an event that enqueues a pass
				}
				pass(10 * time.Minute)
				if s := p.sandbox(t, id).State; s != before && s != agboxv1.SandboxState_SANDBOX_STATE_DELETING {
					t.Errorf("is %s", s)
				}
				if s := p.daemon.EngineProblem(); !strings.Contains(s, "another Docker engine") {
					t.Errorf("the problem is %q", s)
				}
				if s := p.daemon.Status(id); !strings.Contains(s, "another Docker engine") {
					t.Errorf("the status is %q", s)
				}
			}, trick(e))
		})
	}
}

func TestAnOperatorConfirmsAnotherEngine(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Replace()
		pass(time.Minute)
		p.wantState(t, id, ready)
		if _, err := p.daemon.ConfirmEngine(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantState(t, id, failed)
		if s := p.daemon.EngineProblem() + p.daemon.Status(id); s != "" {
			t.Errorf("%q", s)
		}
	})
}

// docker volume prune removes the marker: the objects prove that the engine is ours.
func TestAPrunedMarkerIsMadeAgain(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		marker := naming.MarkerVolume(p.store.InstanceID())
		p.engine.RemoveVolumeOutside(marker)
		p.must(t, act{"engine restart live", 0})
		pass(time.Minute)
		p.wantState(t, id, ready)
		if there, err := p.engine.VolumeExists(t.Context(), marker); !there || err != nil {
			t.Errorf("marker: %v, %v", there, err)
		}
	})
}

// A daemon that died between creating the marker and recording it left a marker without a record. Another engine must not count as the
// first one then.
func TestAnExistingMarkerIsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, p *player) {
		if err := p.start(1); err != nil { // it dies with its first side effect, which is the marker
			t.Fatal(err)
		}
		pass(time.Second)
		if written, err := p.store.MarkerWritten(t.Context()); written || err != nil {
			t.Fatalf("it did not die in between: %t, %v", written, err)
		}
		if err := p.restart(-1); err != nil {
			t.Fatal(err)
		}
		id := p.readyBox(t)
		if written, err := p.store.MarkerWritten(t.Context()); !written || err != nil {
			t.Errorf("the marker is remembered: %t, %v", written, err)
		}
		p.engine.Replace()
		pass(5 * time.Minute)
		p.wantState(t, id, ready)
	})
}

// An engine that does not report its life may have died: neither a restart nor a failure is right.
func TestNoVerdictWhileTheLifeOfTheEngineIsUnknown(t *testing.T) {
	e := &trickEngine{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		e.set(nil, func(i *dockerx.Info) { i.Run = "" })
		pass(time.Minute)
		p.must(t, act{"kill box", 0})
		pass(time.Minute)
		p.wantState(t, id, ready)
		if s := p.daemon.Status(id); !strings.Contains(s, "does not say") {
			t.Errorf("the status is %q", s)
		}
		e.set(nil, nil)
		pass(time.Minute)
		p.wantState(t, id, failed)
	}, trick(e))
}

// staleEngine answers lists of containers as before, while stale is set.
type staleEngine struct {
	controller.Engine
	mu    sync.Mutex
	stale bool
	old   []dockerx.Container
}

func (e *staleEngine) set(stale bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stale = stale
}

func (e *staleEngine) ListContainers(ctx context.Context, labels map[string]string) ([]dockerx.Container, error) {
	list, err := e.Engine.ListContainers(ctx, labels)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stale {
		return e.old, nil
	}
	if err == nil {
		e.old = list
	}
	return list, err
}

// An engine with another storage driver, and an outdated list: it does not show all sandboxes.
func TestAStaleListDoesNotProveThatTheEngineMovedItsContainers(t *testing.T) {
	e := &staleEngine{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		pass(2 * time.Minute)
		e.set(true)
		p.engine.SwapStorage("vfs")
		pass(time.Minute)
		if was, err := p.store.EngineIdentity(t.Context()); err != nil || was.GetStorageDriver() != "overlay2" {
			t.Errorf("the engine on record is %v (%v)", was, err)
		}
		e.set(false)
		p.engine.SwapStorage("overlay2")
		pass(10 * time.Minute)
		p.wantState(t, id, ready)
	}, func(c *controller.Config) { e.Engine, c.Engine = c.Engine, e })
}

// staleInspector answers some inspections with earlier answers.
type staleInspector struct {
	controller.Engine
	mu   sync.Mutex
	old  map[string]dockerx.ContainerDetail
	lies int
}

func (e *staleInspector) InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error) {
	d, err := e.Engine.InspectContainer(ctx, id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if old, ok := e.old[id]; ok && e.lies > 0 {
		e.lies--
		return old, err
	}
	return d, err
}

// One inspection from before the present run says that the container has ended.
func TestAStaleInspectionDoesNotEndASandbox(t *testing.T) {
	e := &staleInspector{old: map[string]dockerx.ContainerDetail{}}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"stop", 0})
		pass(time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		before, err := p.engine.InspectContainer(t.Context(), p.container(0))
		if err != nil {
			t.Fatal(err)
		}
		p.must(t, act{"resume", 0})
		pass(time.Minute)
		p.wantState(t, id, ready)
		e.mu.Lock()
		e.old[before.ID], e.lies = before, 1
		e.mu.Unlock()
		p.engine.PauseOutside(before.ID, true) // its event enqueues a pass
		pass(10 * time.Minute)
		p.wantState(t, id, ready)
		if got := p.types(t, id); !strings.HasSuffix(got, "READY") {
			t.Errorf("events are %s", got)
		}
	}, func(c *controller.Config) { e.Engine, c.Engine = c.Engine, e })
}

// An engine that hangs keeps its stream open; probes detect that. The status of that time does not outlive it.
func TestAStatusOfTheTimeWithoutEngineDoesNotStay(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Fail(dockerx.OpInfo, 3, nil, false)
		pass(8 * time.Second)
		p.engine.PauseOutside(p.container(0), true) // an event that enqueues a pass
		pass(time.Second)
		if s := p.daemon.Status(id); !strings.Contains(s, "does not answer") {
			t.Fatalf("the status is %q", s)
		}
		pass(30 * time.Second)
		if s := p.daemon.EngineProblem() + p.daemon.Status(id); s != "" {
			t.Errorf("the status is still %q", s)
		}
	})
}

// An interrupted resync is the only one that the engine's return causes, so it is retried.
func TestAResyncThatIsCutOffIsRepeatedSoon(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBox(t)
		pass(time.Minute) // so that no event is replayed
		p.must(t, act{"engine down", 0}, act{"stop", 0})
		pass(10 * time.Second)
		p.must(t, act{"engine up", 0})
		p.engine.Fail(dockerx.OpListContainers, 1, nil, false)
		pass(20 * time.Second)
		p.wantState(t, "box-0", agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	}, func(c *controller.Config) { c.ResyncInterval = time.Hour })
}

func TestAnEngineThatFlapsIsFollowed(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		for i := range 50 {
			p.must(t, act{"engine down", 0})
			pass(time.Duration(i) * 37 * time.Millisecond)
			p.must(t, act{"engine up", 0})
			pass(time.Duration(i) * 53 * time.Millisecond)
		}
		pass(10 * time.Second)
		p.wantState(t, id, ready)
		if s := p.daemon.EngineProblem() + p.daemon.Status(id); s != "" {
			t.Errorf("%q", s)
		}
	})
}

// The engine is asked for one list of each kind, for any number of sandboxes. That of images ends an hour after the start.
func TestAResyncOfConvergedSandboxesListsEachKindOnce(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for range 200 {
			p.must(t, act{"create", 0})
		}
		pass(70 * time.Second)
		for _, id := range p.boxes {
			p.wantState(t, id, ready)
		}
		before := p.calls()
		pass(59 * time.Second)
		after := p.calls()
		for op, n := range after {
			want := 0
			if op == dockerx.OpListContainers || op == dockerx.OpListNetworks || op == dockerx.OpListImages {
				want = 1
			}
			if op != dockerx.OpInfo && n-before[op] != want {
				t.Errorf("%d calls of %s, want %d", n-before[op], op, want)
			}
		}
	})
}

func (w *world) calls() map[string]int {
	calls := map[string]int{}
	for _, op := range dockerx.Ops() {
		calls[op] = w.engine.Calls(op)
	}
	return calls
}

func TestEngineWarningWithoutLiveRestore(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		if s := p.daemon.EngineWarning(); s != "" {
			t.Error(s)
		}
		p.must(t, act{"engine restart", 0})
		pass(10 * time.Second)
		if s := p.daemon.EngineWarning(); !strings.Contains(s, "live-restore") {
			t.Errorf("%q", s)
		}
	})
}
