package controller_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
)

// late is the tolerated delay after a deadline.
const late = time.Second

// told returns when an event of a type was first recorded, by the wall clock.
func (p *player) told(t *testing.T, id string, typ agboxv1.EventType) time.Time {
	t.Helper()
	events, err := p.store.Events(t.Context(), id, 0, 256)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.GetEventType() == typ {
			return e.GetOccurredAt().AsTime()
		}
	}
	return time.Time{}
}

// clockStep is one step of the clock, and the time before it.
type clockStep struct{ after, by time.Duration }

// restarted starts the daemon again some time after it ended.
func (p *player) restarted(t *testing.T, after time.Duration) {
	t.Helper()
	p.die()
	time.Sleep(after)
	if err := p.restart(noDeath); err != nil {
		t.Fatal(err)
	}
}

// A deadline is a time of the wall clock, whatever happens to that clock.
func TestClockJumpsDoNotMoveADeadline(t *testing.T) {
	for _, row := range []struct {
		name  string
		steps []clockStep
		early bool // it passes during a step, so it is late by the excess of the step
	}{
		{"a clock that runs", nil, false},
		{"forwards", []clockStep{{10 * time.Minute, 20 * time.Minute}}, false},
		{"backwards", []clockStep{{10 * time.Minute, -20 * time.Minute}}, false},
		{"a little back, just before", []clockStep{{time.Hour - 2*time.Second, -3 * time.Second}}, false},
		{"forth and back", []clockStep{{time.Minute, 50 * time.Minute}, {time.Minute, -80 * time.Minute}}, false},
		{"less than what counts as a jump, often", []clockStep{{time.Minute, 400 * time.Millisecond}, {time.Minute, -300 * time.Millisecond}}, false},
		{"a sleep of the host past it", []clockStep{{10 * time.Minute, 8 * time.Hour}}, true},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(row.name, func(t *testing.T) {
				withDaemon(t, func(t *testing.T, p *player) {
					id := p.create(t, &agboxv1.CreateSpec{Timeout: durationpb.New(time.Hour)})
					pass(time.Second)
					due := time.Unix(0, p.sandbox(t, id).Desired.GetDeadlineAt())
					jumped := due
					for _, s := range row.steps {
						time.Sleep(s.after)
						p.skew.Add(int64(s.by))
						jumped = p.now() // the daemon may see it before it is restarted
						if restarts {
							p.restarted(t, 5*time.Second)
						}
					}
					stepped := p.now()
					pass(max(0, due.Sub(stepped)) + 2*late)
					from, to := due, due
					if row.early {
						from, to = jumped, stepped
					}
					if at := p.told(t, id, agboxv1.EventType_SANDBOX_STOP_REQUESTED); at.Before(from) || at.Sub(to) > late {
						t.Errorf("due at %v, acted on at %v (restarts: %t)", from, at, restarts)
					}
				}, func(c *controller.Config) { c.ResyncInterval = 10 * time.Hour }) // no later pass helps
			})
		}
	}
}

func TestADeadlineThatPassesWhileNoDaemonRunsIsActedOnAtTheStart(t *testing.T) {
	want := map[string]agboxv1.SandboxState{"stop": stopped, "pause": paused, "delete": deleted}
	for onTimeout, state := range want {
		withDaemon(t, func(t *testing.T, p *player) {
			id := p.create(t, &agboxv1.CreateSpec{Timeout: durationpb.New(time.Hour), OnTimeout: onTimeout})
			pass(time.Second)
			p.restarted(t, 2*time.Hour)
			pass(time.Minute)
			p.wantState(t, id, state)
		})
	}
}

// Deadlines of paused sandboxes use the same clock: until they are stopped, and until they are deleted.
func TestThePausedAreStoppedAndDeletedToTheSecond(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"pause", 0})
		pass(time.Second)
		since := p.sandbox(t, id).StateChangedAt
		p.skew.Add(int64(20 * time.Hour)) // a sleeping laptop
		pass(since.Add(24*time.Hour).Sub(p.now()) + late)
		demoted := time.Unix(0, p.sandbox(t, id).Desired.GetDemotedAt())
		if d := demoted.Sub(since); d < 24*time.Hour || d > 24*time.Hour+late {
			t.Errorf("it was stopped after %v", d)
		}
		p.skew.Add(int64(-time.Hour))
		pass(time.Minute)
		p.skew.Add(int64(47 * time.Hour))
		p.restarted(t, time.Minute)
		pass(demoted.Add(48*time.Hour).Sub(p.now()) + late)
		if d := p.told(t, id, agboxv1.EventType_SANDBOX_DELETE_REQUESTED).Sub(demoted); d < 48*time.Hour || d > 48*time.Hour+late {
			t.Errorf("it was deleted after %v", d)
		}
	}, freezesFor(24*time.Hour), func(c *controller.Config) {
		c.Settings.StoppedGCAfter, c.ResyncInterval = 48*time.Hour, 100*time.Hour
	})
}

// The host and its containers sleep at any moment of a create or a resume. The time of the sleep counts for no service and no hook.
func TestASleepOfTheHostFailsNoCreateAndNoResume(t *testing.T) {
	for at := time.Duration(0); at < 16*time.Second; at += time.Second {
		withDaemon(t, func(t *testing.T, p *player) {
			checked(p, "")
			err := errors.Join(os.Mkdir(filepath.Join(p.dir, "src"), 0o755),
				os.WriteFile(filepath.Join(p.dir, "src", "file"), []byte("copied"), 0o600))
			if err != nil {
				t.Fatal(err)
			}
			sleepsAfter := func() {
				time.Sleep(at)
				p.skew.Add(int64(9 * time.Hour))
				pass(time.Minute)
				p.wantState(t, "box-0", ready)
			}
			p.create(t, p.spec(2))
			sleepsAfter()
			for _, what := range []string{"stop", "resume"} {
				p.must(t, act{what, 0})
				pass(time.Second)
			}
			sleepsAfter()
		})
	}
}
