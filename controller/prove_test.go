package controller_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// provingExecs answers in place of a PID 1 that proves its runtime.
type provingExecs struct {
	controller.Execs
	mu    sync.Mutex
	proof execjournal.Proof
	asked []string // by sandbox
}

func (e *provingExecs) Prove(sandboxID string, c execjournal.Container) (execjournal.Proof, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, sandboxID)
	return e.proof, nil
}

func (e *provingExecs) answer(p execjournal.Proof) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.proof = p
}

func (e *provingExecs) wasAsked(sandboxID string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.asked, sandboxID)
}

// TestARuntimeIsProvenBeforeReady: a named runtime is proven, within a bounded time; runc by default is not proven, and another default is.
func TestARuntimeIsProvenBeforeReady(t *testing.T) {
	e := &provingExecs{}
	withDaemon(t, func(t *testing.T, p *player) {
		create := func(id, runtime string) {
			t.Helper()
			if _, err := p.store.CreateSandbox(t.Context(), id, "", &agboxv1.CreateSpec{Image: image, Runtime: runtime}, nil); err != nil {
				t.Fatal(err)
			}
			p.boxes = append(p.boxes, id)
		}
		refused := func(id, why string) {
			t.Helper()
			p.wantState(t, id, failed)
			if m := p.sandbox(t, id).ErrorMessage; !strings.Contains(m, why) {
				t.Errorf("%s says %q", id, m)
			}
		}
		create("plain", "")
		pass(settle)
		p.wantState(t, "plain", ready)
		if e.wasAsked("plain") {
			t.Error("the engine's own runtime was asked for a proof")
		}
		e.answer(execjournal.Proof{Awaited: "the host does not see a sign"})
		create("late", "runc")
		pass(2 * time.Second)
		p.wantState(t, "late", agboxv1.SandboxState_SANDBOX_STATE_PENDING)
		if s := p.daemon.Status("late"); !strings.Contains(s, "is not proven yet: the host does not see a sign") {
			t.Errorf("its status is %q", s)
		}
		e.answer(execjournal.Proof{Proven: true})
		pass(40 * time.Second)
		p.wantState(t, "late", ready)
		e.answer(execjournal.Proof{Refused: "it is a toy"})
		create("toy", "runc")
		pass(settle)
		refused("toy", "runtime runc can't be used: it is a toy; choose another runtime")
		e.answer(execjournal.Proof{Awaited: "the host does not see a sign"})
		create("mute", "runc")
		pass(2 * time.Minute)
		refused("mute", "after 1m0s the host does not see a sign")

		p.engine.SetInfo(func(i *dockerx.Info) { i.DefaultRuntime = "toy" })
		p.engine.RestartEngine(true)
		pass(settle)
		e.answer(execjournal.Proof{Proven: true})
		create("default", "")
		pass(settle)
		p.wantState(t, "default", ready)
		if !e.wasAsked("default") {
			t.Error("a default runtime that is not runc was not asked for a proof")
		}
	}, func(c *controller.Config) { e.Execs, c.Execs = c.Execs, e; c.Settings.IdleTTL = 0 })
}

// Where the runtime may be gVisor, /tmp is not empty before a container starts, unless something is mounted there: gVisor would mount a tmpfs.
func TestTmpIsHeldBeforeAStart(t *testing.T) {
	e := &provingExecs{proof: execjournal.Proof{Proven: true}}
	withDaemon(t, func(t *testing.T, p *player) {
		const held = "/tmp/.agbox"
		db := &agboxv1.ServiceSpec{Name: "db", Image: image}
		want := func(spec *agboxv1.CreateSpec, primary, service bool) {
			t.Helper()
			spec.OptionalServices = []*agboxv1.ServiceSpec{db}
			id := p.create(t, spec)
			pass(settle)
			p.wantState(t, id, ready)
			for container, want := range map[string]bool{naming.Primary(id): primary, naming.Service(id, "db"): service} {
				if _, is := p.engine.File(p.named(container), held); is != want {
					t.Errorf("%s has %s: %t", container, held, is)
				}
			}
		}
		want(&agboxv1.CreateSpec{}, false, false)
		want(&agboxv1.CreateSpec{Runtime: "runc"}, true, false)
		want(&agboxv1.CreateSpec{Runtime: "runc", Mounts: []*agboxv1.MountSpec{{Source: p.dir, Target: "/tmp"}}}, false, false)
		want(&agboxv1.CreateSpec{Runtime: "runc", Security: &agboxv1.SecuritySpec{ReadOnlyRoot: true}}, false, false)
		p.engine.SetInfo(func(i *dockerx.Info) { i.DefaultRuntime = "toy" })
		p.engine.RestartEngine(true)
		pass(settle)
		want(&agboxv1.CreateSpec{}, true, true)
	}, func(c *controller.Config) { e.Execs, c.Execs = c.Execs, e; c.Settings.IdleTTL = 0 })
}
