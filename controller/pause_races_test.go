package controller_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/store"
)

const (
	paused  = agboxv1.SandboxState_SANDBOX_STATE_PAUSED
	stopped = agboxv1.SandboxState_SANDBOX_STATE_STOPPED
)

// raceRounds is the number of rounds; either side may win each.
const raceRounds = 20

// expiring creates a READY sandbox and sleeps until its deadline.
func (p *player) expiring(t *testing.T, onTimeout string) string {
	t.Helper()
	id := p.create(t, &agboxv1.CreateSpec{Timeout: durationpb.New(10 * time.Second), OnTimeout: onTimeout})
	pass(time.Second)
	p.wantState(t, id, ready)
	time.Sleep(time.Until(time.Unix(0, p.sandbox(t, id).Desired.GetDeadlineAt())))
	return id
}

// The store orders the two requests, and its answer says which one was first.
func TestAPauseAtTheMomentOfTheDeadline(t *testing.T) {
	late := map[string]agboxv1.SandboxState{"stop": stopped, "pause": paused, "delete": deleted}
	withDaemon(t, func(t *testing.T, p *player) {
		for i := range raceRounds {
			what := []string{"stop", "pause", "delete"}[i%3]
			id := p.expiring(t, what)
			_, err := p.store.RequestPause(t.Context(), id, "pause_requested")
			pass(time.Minute)
			want := paused // and never expired
			if err != nil {
				want = late[what]
			}
			if sb := p.sandbox(t, id); sb.State != want {
				t.Errorf("%s: the pause was told %v, and it is %s", what, err, sb.State)
			}
		}
	})
}

func TestATimeoutSetAtTheMomentOfTheDeadline(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for range raceRounds {
			id := p.expiring(t, "stop")
			at, _, err := p.store.SetTimeout(t.Context(), id, store.Timeout{After: time.Hour})
			pass(time.Minute)
			switch sb := p.sandbox(t, id); {
			case err == nil && sb.State == ready && sb.Desired.GetDeadlineAt() == at.UnixNano():
			case err != nil && sb.State == stopped && sb.Desired.GetDeadlineAt() == 0:
			default:
				t.Errorf("the new timeout was told %v, and it is %s", err, sb.State)
			}
		}
	})
}

// frozenUntil creates a frozen sandbox with a running exec, and sleeps until its demotion.
func (p *player) frozenUntil(t *testing.T, demotion time.Duration) (id, execID string) {
	t.Helper()
	id = p.readyBox(t)
	execID = "in-" + id
	req := &agboxv1.CreateExecRequest{SandboxId: id, ExecId: execID, Command: []string{"sleep", "5000", "0"}}
	if _, err := p.store.CreateExec(t.Context(), req, store.Caller{}); err != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	if _, err := p.store.RequestPause(t.Context(), id, "pause_requested"); err != nil {
		t.Fatal(err)
	}
	pass(time.Second)
	p.wantState(t, id, paused)
	time.Sleep(time.Until(p.sandbox(t, id).StateChangedAt.Add(demotion)))
	return id, execID
}

func freezesFor(d time.Duration) func(*controller.Config) {
	return func(c *controller.Config) { c.Settings.FreezeDuration = d }
}

func TestADeleteAtTheMomentOfTheDemotion(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for range raceRounds {
			id, _ := p.frozenUntil(t, 10*time.Second)
			if _, err := p.store.RequestDelete(t.Context(), id, "delete_requested"); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			p.wantState(t, id, deleted)
		}
		if n := len(p.engine.Containers()) + len(p.engine.Networks()); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	}, freezesFor(10*time.Second))
}

func TestAResumeAtTheMomentOfTheDemotion(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		ends := map[agboxv1.ExecState]int{}
		for range raceRounds {
			id, execID := p.frozenUntil(t, 10*time.Second)
			if _, err := p.store.RequestResume(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			p.wantState(t, id, ready)
			ex, err := p.store.Exec(t.Context(), execID)
			if err != nil || ex.End == nil {
				t.Fatalf("the exec has not ended: %v", err)
			}
			ends[agboxv1.ExecState(ex.End.GetState())]++
		}
		cancelled, finished := ends[agboxv1.ExecState_EXEC_STATE_CANCELLED], ends[agboxv1.ExecState_EXEC_STATE_FINISHED]
		if cancelled+finished != raceRounds { // depending on whether the demotion was first
			t.Errorf("the execs ended as %v", ends)
		}
	}, freezesFor(10*time.Second))
}

func TestOfManyResumesAtOnceAllSucceed(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for history, ask := range map[string][]string{"PAUSED": {"pause"}, "PAUSED PAUSED": {"pause", "demote"}} {
			id := p.readyBox(t)
			n := len(p.boxes) - 1
			for _, what := range ask {
				p.must(t, act{what, n})
				pass(time.Minute)
			}
			woken := func(after time.Duration) {
				p.engine.Delay(dockerx.OpUnpauseContainer, after)
				p.engine.Delay(dockerx.OpStartContainer, after)
			}
			woken(time.Second) // a request after it is READY again is refused: all four must come before that
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					if _, err := p.store.RequestResume(t.Context(), id); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			woken(0)
			pass(time.Minute)
			p.wantTypes(t, id, "ACCEPTED PREPARING READY PAUSE_REQUESTED "+history+" ACCEPTED READY")
		}
	})
}

// The longest frozen are stopped first, and only as many as exceed the bound.
func TestOfTooManyThatAreFrozenTheLongestPausedAreStopped(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for range 5 {
			p.readyBox(t)
		}
		for n := range 5 {
			p.must(t, act{"pause", n})
			pass(time.Second)
		}
		pass(time.Minute)
		var demoted []string
		for _, id := range p.boxes {
			p.wantState(t, id, paused)
			if p.sandbox(t, id).Desired.GetDemotedAt() != 0 {
				demoted = append(demoted, id)
			}
		}
		if got := strings.Join(demoted, " "); got != "box-0 box-1 box-2" {
			t.Errorf("stopped are %s", got)
		}
		p.must(t, act{"resume", 4})
		pass(time.Minute)
		if got := fmt.Sprint(p.store.FrozenIDs()); got != "[box-3]" {
			t.Errorf("frozen are %s", got)
		}
	}, func(c *controller.Config) { c.Settings.MaxFrozen = 2 })
}
