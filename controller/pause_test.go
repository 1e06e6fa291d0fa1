package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

// The world of the table: a sandbox with services and an exec, which may run for lifetime from READY, stays frozen for freezeDuration, and
// has no other delays than those of its event and of settling.
const (
	lifetime       = 8 * time.Minute
	freezeDuration = 16 * time.Minute
	settling       = 45 * time.Second
	execTakes      = 3 * time.Minute
)

// deathAfter are the side effects after which the daemon dies, each before its reply; noDeath is none.
var deathAfter = []int{noDeath, 1, 3, 5, 7}

const noDeath = -1

// situation is the state that a READY sandbox is brought into before the event.
type situation struct {
	name string
	// rest are requests that are carried out first; ask is the last request, and op the operation with which that one starts.
	rest []string
	ask  string
	op   string
}

var situations = []situation{
	{name: "pausing", ask: "pause", op: dockerx.OpPauseContainer},
	{name: "frozen", rest: []string{"pause"}},
	{name: "demoted", rest: []string{"pause", "demote"}},
	{name: "resuming", rest: []string{"pause"}, ask: "resume", op: dockerx.OpUnpauseContainer},
	{name: "ready"},
	{name: "resuming after a demotion", rest: []string{"pause", "demote"}, ask: "resume", op: dockerx.OpStartContainer},
}

// play brings about a situation and an event, with or without a running daemon, lets the daemon die once more if death says so, and returns
// the outcome.
func (s situation) play(t *testing.T, e happening, kind int, alive bool, death int) (outcome, history string) {
	dir := memoryDir(t)
	synctest.Test(t, func(t *testing.T) {
		p := newTableWorld(t, dir, kind)
		defer func() {
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}()
		for _, what := range s.rest {
			p.must(t, act{what, 0})
			pass(30 * time.Second)
		}
		if alive {
			p.engine.Delay(s.op, e.takes+10*time.Second)
		} else {
			p.die()
		}
		if s.ask != "" {
			p.must(t, act{s.ask, 0})
			time.Sleep(time.Second)
		}
		e.happens(t, p)
		time.Sleep(e.takes)
		p.engine.Delay(s.op, 0) // later calls are not slow; the one under way is
		p.survive(t, death, alive)
		outcome, history = p.outcome(t), p.history(t)
		p.wantReleased(t)
		p.must(t, act{"resume", 0}) // paused sandboxes resume unchanged
		pass(execTakes + settling)
		if err := p.checkAll(); err != nil {
			t.Error(err)
		}
	})
	return outcome, history
}

// newTableWorld has one READY sandbox with a running exec.
func newTableWorld(t *testing.T, dir string, kind int) *player {
	t.Helper()
	p := newPlayer(dir)
	p.cfg = func(c *controller.Config) { c.Settings.FreezeDuration = freezeDuration }
	checked(p, "")
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "src"), 0o755),
		os.WriteFile(filepath.Join(dir, "src", "file"), []byte("copied"), 0o600), p.start(-1))
	if err != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	spec := p.spec(kind)
	spec.Timeout = durationpb.New(lifetime)
	p.create(t, spec)
	pass(20 * time.Second)
	p.wantState(t, "box-0", ready)
	p.exec(t, "exec-0", execTakes)
	pass(10 * time.Second)
	return p
}

func (p *player) exec(t *testing.T, id string, takes time.Duration) {
	t.Helper()
	req := &agboxv1.CreateExecRequest{SandboxId: "box-0", ExecId: id, Command: []string{"sleep", fmt.Sprint(takes.Milliseconds()), "0"}}
	if _, err := p.store.CreateExec(t.Context(), req, store.Caller{}); err == nil {
		p.execs = append(p.execs, id)
	}
}

// die ends the daemon and leaves the store to its clients.
func (p *player) die() {
	p.daemon.cancel()
	<-p.daemon.done
}

// survive runs daemons until everything has settled: the one that is alive, or one that dies at a side effect and then another.
func (p *player) survive(t *testing.T, death int, alive bool) {
	t.Helper()
	if !alive {
		if err := p.restart(death); err != nil {
			t.Fatal(err)
		}
	}
	pass(settling)
	if death != noDeath {
		if err := p.restart(noDeath); err != nil {
			t.Fatal(err)
		}
		pass(settling)
	}
}

// wantReleased: the primary of a READY sandbox is released.
func (p *player) wantReleased(t *testing.T) {
	t.Helper()
	released, err := p.journals().Released("box-0")
	if p.sandbox(t, "box-0").State == ready && (!released || err != nil) {
		t.Errorf("PID 1 waits for its release: %v", err)
	}
}

func memoryDir(t *testing.T) string {
	t.Helper()
	base := "/dev/shm"
	if _, err := os.Stat(base); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(base, "agbox-pause-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
