package controller_test

import (
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// The engine shows a container again between the last look at it and the list that says whether others vanished too: that list contradicts
// the absence.
func TestALateListContradictsAnAbsence(t *testing.T) {
	const slow = 3 * time.Second // duration of a list: the two lists of one pass are that far apart
	verdictAfter := func(t *testing.T, shownAfter time.Duration) (took time.Duration) {
		withDaemon(t, func(t *testing.T, p *player) {
			p.readyBox(t)
			id := p.readyBox(t)
			p.engine.Delay(dockerx.OpListContainers, slow)
			hidden := p.container(1)
			p.engine.HideContainer(hidden, true)
			if shownAfter > 0 {
				time.AfterFunc(shownAfter, func() { p.engine.HideContainer(hidden, false) })
			}
			for took = 0; took < 5*time.Minute; took += time.Second {
				if p.sandbox(t, id).State != ready {
					return
				}
				pass(time.Second)
			}
		})
		return took
	}
	verdict := verdictAfter(t, 0)
	if verdict >= 5*time.Minute {
		t.Fatal("no verdict on a sandbox that is missing alone")
	}
	for _, before := range []time.Duration{slow - time.Second, slow - 2*time.Second} {
		if took := verdictAfter(t, verdict-before); took < 5*time.Minute {
			t.Errorf("shown again %s before the verdict, the sandbox failed after %s", before, took)
		}
	}
}

// A create that has no primary yet waits for no operator, whatever vanished beside its service: a confirmation would not concern it.
func TestACreateWithoutAPrimaryWaitsForNoOperator(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBox(t)
		p.exec(t, "job", time.Hour) // runs in it, so it stays unjudged
		pass(time.Second)
		db := checked(p, "db")
		p.engine.HealthBehavior = func(dockerx.ContainerSpec) (dockerx.Health, time.Duration) { return dockerx.HealthHealthy, time.Hour }
		p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}})
		pass(time.Second)
		p.vanish(true)
		pass(3 * time.Minute)
		if n := p.daemon.Held(); n > 0 || p.daemon.Vanished() != "" {
			t.Errorf("%d wait for an operator: %q", n, p.daemon.Vanished())
		}
		p.vanish(false)
	})
}

// A STOPPED sandbox whose container went without an event stays STOPPED. It has not vanished together with what vanishes much later.
func TestAStoppedSandboxThatIsGoneHoldsNoLaterVerdict(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		stopped, other := p.readyBox(t), p.readyBox(t)
		p.stopBox(t, stopped)
		pass(time.Minute)
		p.engine.HideContainer(p.container(0), true)
		pass(5 * time.Minute)
		p.wantState(t, stopped, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		p.engine.HideContainer(p.container(1), true)
		pass(5 * time.Minute)
		p.wantState(t, other, failed)
		p.wantState(t, stopped, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		if n := p.daemon.Held(); n > 0 {
			t.Errorf("%d wait for an operator: %q", n, p.daemon.Vanished())
		}
	})
}

// A STOPPED sandbox that vanishes together with a running one is missed only by a later resync. They vanished together nevertheless.
func TestASandboxThatVanishesWithAStoppedOneIsHeld(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		stopped, running := p.readyBox(t), p.readyBox(t)
		p.stopBox(t, stopped)
		pass(5*time.Minute + 10*time.Second) // the next resync is far away
		p.vanish(true)
		if _, _, err := p.store.SetTimeout(t.Context(), running, store.Timeout{After: time.Hour}); err != nil { // enqueues this one alone
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		p.wantState(t, running, ready)
		if n := p.daemon.Held(); n != 2 {
			t.Errorf("%d wait for an operator: %q", n, p.daemon.Vanished())
		}
		p.vanish(false)
		pass(5 * time.Minute)
		p.wantState(t, running, ready)
		p.wantState(t, stopped, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
	})
}

// A create whose started primary vanishes together with another sandbox is held, and an operator's confirmation frees both.
func TestACreateThatVanishesBesideAnotherIsConfirmed(t *testing.T) {
	forget := &forgetful{lost: true}
	withDaemon(t, func(t *testing.T, p *player) {
		other := p.readyBox(t)
		forget.lost, forget.then = false, func() { p.vanish(true) }
		id := p.create(t, &agboxv1.CreateSpec{})
		pass(5 * time.Minute)
		if n := p.daemon.Held(); n != 2 {
			t.Fatalf("%d are held: %s", n, p.daemon.Vanished())
		}
		if _, err := p.daemon.ConfirmEngine(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		if n := p.daemon.Held(); n != 0 {
			t.Errorf("%d are held: %s", n, p.daemon.Vanished())
		}
		p.wantState(t, other, failed)
		p.vanish(false)
		pass(5 * time.Minute)
		p.wantState(t, other, ready) // no verdict outlasts what contradicts it
		p.wantState(t, id, ready)
	}, func(c *controller.Config) {
		forget.Store, c.Store = c.Store, forget
	})
}
