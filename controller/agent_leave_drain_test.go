package controller_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/execid"
	"github.com/agbox/agbox/store"
)

// drainedAndDeleted is a sandbox that is deleted that long after a drain started to end an agent's turn.
func drainedAndDeleted(t *testing.T, p *player, after time.Duration, remove func(ctx context.Context, id, reason string) (bool, error)) (box string) {
	t.Helper()
	box = p.readyBox(t)
	p.newAgent(t, box, "hangs", &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "3000", "0"}})
	pass(time.Second)
	p.prompt(t, "hangs", "hang")
	pass(100 * time.Millisecond)
	p.drain(t, store.DrainOptions{Wait: time.Second})
	pass(after)
	if _, err := remove(context.Background(), box, "delete_requested"); err != nil {
		t.Fatal(err)
	}
	return box
}

func TestADrainAndADeleteOfTheSandboxSaveOnce(t *testing.T) {
	for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond, 5 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				box := drainedAndDeleted(t, p, after, p.store.RequestDeleteKeepingAgents)
				pass(40 * time.Second)
				p.wantAgent(t, "hangs", agentStopped)
				if a := p.agent(t, "hangs"); a.Status.GetSaved() != store.Saved || p.queue(t, "hangs") != "hang" {
					t.Errorf("%v, queue %q", a.Status, p.queue(t, "hangs"))
				}
				p.wantDrain(t, "DONE parked:1 saved:1 not:0 busy:0")
				p.wantGone(t, box)
			})
		})
	}
}

func TestAnAgentThatIsSavedByADrainIsDeletedAfterwards(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		box := drainedAndDeleted(t, p, 1500*time.Millisecond, p.store.RequestDelete)
		pass(time.Second)
		p.wantAgent(t, "hangs", agentIdle) // its work is being saved
		pass(10 * time.Second)
		if _, err := p.store.Agent(context.Background(), "hangs"); !errdefs.IsNotFound(err) {
			t.Errorf("it is there: %v", err)
		}
		p.wantGone(t, box)
	})
}

// TestADrainThatEndsDuringASave: the save goes on after its daemon or its drain, and the agent starts again only when it has ended.
func TestADrainThatEndsDuringASave(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *player){
		"its daemon is killed": func(t *testing.T, p *player) {
			if err := p.restart(-1); err != nil {
				t.Fatal(err)
			}
		},
		"it is undone": func(t *testing.T, p *player) { p.undrain(t) },
	} {
		t.Run(name, func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "5000", "0"}}, func(t *testing.T, p *player, _, id string) {
				p.prompt(t, id, "hang")
				pass(100 * time.Millisecond)
				p.drain(t, store.DrainOptions{Wait: time.Second})
				pass(3 * time.Second)
				end(t, p)
				pass(2 * time.Second)
				p.wantDrain(t, "none")
				if a := p.agent(t, id); a.Status.GetIncarnation() != 1 || a.Status.GetSaved() != "" {
					t.Errorf("while its work is saved: %v", a.Status)
				}
				pass(5 * time.Second)
				if a := p.agent(t, id); a.Status.GetIncarnation() != 2 || a.Status.GetState() != agentBusy {
					t.Errorf("afterwards: %v", a.Status)
				}
				p.wantGiven(t, "hang", 2)
			})
		})
	}
}

// TestAnAgentIsStoppedOrDeletedWhileItsWorkIsSaved: the save goes on, and its end is recorded.
func TestAnAgentIsStoppedOrDeletedWhileItsWorkIsSaved(t *testing.T) {
	for name, request := range map[string]func(p *player, id string) error{
		"stopped": func(p *player, id string) error {
			_, err := p.store.RequestAgentStop(context.Background(), id)
			return err
		},
		"deleted": func(p *player, id string) error {
			_, err := p.store.RequestAgentDelete(context.Background(), id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "5000", "0"}}, func(t *testing.T, p *player, box, id string) {
				p.prompt(t, id, "deaf")
				pass(100 * time.Millisecond)
				p.drain(t, store.DrainOptions{Wait: time.Second})
				pass(7 * time.Second) // its process has ended, and its work is being saved
				if err := request(p, id); err != nil {
					t.Fatal(err)
				}
				pass(2 * time.Second)
				if a := p.agent(t, id); a.Status.GetState() != agentBusy {
					t.Errorf("while its work is saved: %v", a.Status)
				}
				pass(5 * time.Second)
				a, err := p.store.Agent(context.Background(), id)
				switch {
				case name == "deleted" && !errdefs.IsNotFound(err):
					t.Errorf("it is there: %v, %v", a.Status, err)
				case name == "stopped" && (err != nil || a.Status.GetState() != agentStopped || a.Status.GetSaved() != store.Saved):
					t.Errorf("it is %v, %v", a.Status, err)
				}
				requests, err := filepath.Glob(filepath.Join(p.journals().Paths(box).Ctl, "exec", execid.ForHelper(execid.ToSave, execid.ForAgent(id, 1))+"*"))
				if err != nil || len(requests) > 0 {
					t.Errorf("left: %q, %v", requests, err)
				}
			})
		})
	}
}

// TestAFrozenSaveContinuesAfterAResume: the drain does not wait for it, and it goes on after a resume.
func TestAFrozenSaveContinuesAfterAResume(t *testing.T) {
	withAgent(t, &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "3000", "0"}}, func(t *testing.T, p *player, box, id string) {
		p.prompt(t, id, "deaf")
		pass(100 * time.Millisecond)
		p.drain(t, store.DrainOptions{Wait: time.Second, SaveAll: 10 * time.Second})
		pass(6500 * time.Millisecond) // its process has ended, and its work is being saved
		if _, err := p.store.RequestPause(context.Background(), box, "pause_requested"); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		p.wantDrain(t, "DONE parked:0 saved:0 not:0 busy:0")
		if _, err := p.store.RequestResume(context.Background(), box); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		p.wantAgent(t, id, agentStopped)
		if got := p.agent(t, id).Status.GetSaved(); got != store.Saved {
			t.Errorf("its work is %q", got)
		}
	})
}

// A container that is gone ends the save command, and the delete removes the files: the drain waits for neither.
func TestASaveWhoseSandboxVanishesIsGivenUp(t *testing.T) {
	for _, files := range []bool{true, false} {
		t.Run(fmt.Sprintf("its files are there: %t", files), func(t *testing.T) {
			withAgent(t, &agboxv1.AgentSpec{SaveCommand: []string{"sleep", "9000", "0"}}, func(t *testing.T, p *player, box, id string) {
				p.prompt(t, id, "deaf")
				pass(50 * time.Millisecond)
				if _, err := p.store.RequestDeleteKeepingAgents(context.Background(), box, "delete_requested"); err != nil {
					t.Fatal(err)
				}
				pass(21500 * time.Millisecond)
				if err := p.kill(); err != nil {
					t.Fatal(err)
				}
				p.must(t, act{"remove box", 0})
				if paths := p.journals().Paths(box); !files {
					if err := errors.Join(os.RemoveAll(paths.Logs), os.RemoveAll(paths.Ctl)); err != nil {
						t.Fatal(err)
					}
				}
				if err := p.start(-1); err != nil {
					t.Fatal(err)
				}
				pass(45 * time.Second) // ten until the absence is proven, and a pass that failed before is retried within thirty
				p.wantAgent(t, id, agentStopped)
				if got := p.agent(t, id).Status.GetSaved(); got != store.NotSaved {
					t.Errorf("its work is %q", got)
				}
				p.wantGone(t, box)
			})
		})
	}
}

func (p *player) wantGone(t *testing.T, box string) {
	t.Helper()
	if sb, err := p.store.Sandbox(context.Background(), box); err != nil || sb.State != agboxv1.SandboxState_SANDBOX_STATE_DELETED {
		t.Errorf("%v %v", sb.State, err)
	}
	if files, err := os.ReadDir(p.journals().Paths(box).Logs); err == nil {
		t.Errorf("left behind: %v", files)
	}
}
