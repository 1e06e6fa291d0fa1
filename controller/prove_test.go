package controller_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/execjournal"
)

// provingExecs answers for a PID 1 that proves its runtime.
type provingExecs struct {
	controller.Execs
	proof atomic.Int64
	asked atomic.Int64
}

func (e *provingExecs) Proven(string) (execjournal.Proof, error) {
	e.asked.Add(1)
	return execjournal.Proof(e.proof.Load()), nil
}

// TestARuntimeIsProvenBeforeReady: one whose locks can't be seen is refused with the reason, and one that takes its time is waited for.
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
		create("plain", "")
		pass(settle)
		p.wantState(t, "plain", ready)
		if n := e.asked.Load(); n > 0 {
			t.Errorf("the default runtime was asked for %d proofs", n)
		}
		create("late", "runc")
		pass(2 * time.Second)
		p.wantState(t, "late", agboxv1.SandboxState_SANDBOX_STATE_PENDING)
		if s := p.daemon.Status("late"); !strings.Contains(s, "has not proven yet") {
			t.Errorf("its status is %q", s)
		}
		e.proof.Store(int64(execjournal.ProofHeld))
		pass(time.Minute)
		p.wantState(t, "late", ready)
		e.proof.Store(int64(execjournal.ProofFree))
		create("locks", "runc")
		pass(settle)
		p.wantState(t, "locks", failed)
		if m := p.sandbox(t, "locks").ErrorMessage; !strings.Contains(m, "runtime runc can't be used: it keeps file locks inside the sandbox") {
			t.Errorf("it says %q", m)
		}
	}, func(c *controller.Config) { e.Execs, c.Execs = c.Execs, e; c.Settings.IdleTTL = 0 })
}
