package controller_test

import (
	"context"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

// seldom sets the interval of resyncs so that none repairs anything.
func seldom(c *controller.Config) { c.ResyncInterval = 24 * time.Hour }

// run starts an exec that takes that many milliseconds and exits with code 2.
func (p *player) run(t *testing.T, id, millis string) {
	t.Helper()
	req := &agboxv1.CreateExecRequest{SandboxId: p.box(0), ExecId: id, Command: []string{"sleep", millis, "2"}}
	if _, err := p.store.CreateExec(context.Background(), req, store.Caller{}); err != nil {
		t.Fatal(err)
	}
}

func (p *player) wantEnded(t *testing.T, id string, want bool) {
	t.Helper()
	ex, err := p.store.Exec(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if ended := ex.End != nil; ended != want {
		t.Errorf("%s has ended: %v, want %v", id, ended, want)
	}
}

func TestAnExecEndContinuesAStop(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.run(t, "exec-long", "3600000")
		pass(time.Second)
		p.must(t, act{"stop", 0})
		pass(7 * time.Second)
		p.wantEnded(t, "exec-long", true)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	}, seldom)
}

func TestAnExecEndContinuesADelete(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.run(t, "exec-long", "3600000")
		pass(time.Second)
		p.must(t, act{"delete", 0})
		pass(7 * time.Second) // the kill may be observed before the lock is free: then it takes a recheck of 5 s
		p.wantState(t, id, deleted)
	}, seldom)
}

func TestAPullEndContinuesACreate(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		pulling(p)
		p.must(t, act{"create", 0})
		pass(62 * time.Second)
		p.wantState(t, "box-0", ready)
	}, seldom)
}

func TestAResyncObservesUnwatchedExecEnds(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBoxWithin(t, time.Minute) // a resync sees the report of PID 1, too
		p.run(t, "exec-short", "100")
		pass(5 * time.Second)
		p.wantEnded(t, "exec-short", false)
		pass(time.Minute)
		p.wantEnded(t, "exec-short", true)
	}, func(c *controller.Config) { c.WatchExecs = nil })
}

// The engine dies during the observation of a pass, and the link does not know of it yet.
func TestADeathOfTheEngineDuringAPassIsNotTheSandboxs(t *testing.T) {
	e := &trickEngine{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		e.set(func() { p.engine.RestartEngine(false) }, nil)
		p.engine.PauseOutside(p.container(0), true) // an event that enqueues a pass
		pass(time.Minute)
		p.wantState(t, id, ready)
	}, trick(e))
}

// The same while a sandbox is being created: a container that the death ended did not end on its own.
func TestADeathOfTheEngineDuringAPassFailsNoCreate(t *testing.T) {
	e := &trickEngine{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db")}})
		pass(time.Second)
		e.set(func() { p.engine.RestartEngine(false) }, nil)
		p.must(t, act{"update", 0})
		pass(time.Minute)
		p.wantState(t, id, ready)
	}, trick(e))
}

// An exec stops the idle clock, and its end starts it, without a pass in between.
func TestAnIdleSandboxIsStopped(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.run(t, "exec-some", "90000")
		pass(100 * time.Second)
		p.wantState(t, id, ready)
		pass(49 * time.Second)
		p.wantState(t, id, ready)
		pass(3 * time.Second)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	}, seldom, func(c *controller.Config) { c.Settings.IdleTTL = time.Minute })
}
