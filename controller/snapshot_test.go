package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// commits starts a snapshot that takes a minute, and returns a function that waits for its end.
func (p *player) commits(t *testing.T, sandboxID, id string) func() (*agboxv1.Snapshot, error) {
	p.engine.CommitDelay = time.Minute
	var made *agboxv1.Snapshot
	var err error
	done := make(chan struct{})
	go func(c *daemonLife) {
		defer close(done)
		made, err = c.CreateSnapshot(context.WithoutCancel(t.Context()), sandboxID, id)
	}(p.daemon)
	pass(10 * time.Second)
	return func() (*agboxv1.Snapshot, error) { <-done; return made, err }
}

func (p *player) frozen(t *testing.T) bool {
	t.Helper()
	d, err := p.engine.InspectContainer(t.Context(), p.container(0))
	if err != nil {
		t.Fatal(err)
	}
	return d.Paused
}

func (p *player) parts(t *testing.T) int {
	t.Helper()
	parts, err := p.engine.ListImages(t.Context(), map[string]string{naming.SnapshotPart: ""})
	if err != nil {
		t.Fatal(err)
	}
	return len(parts)
}

func TestASnapshotIsMadeOnceAndHasNothingOfTheContainer(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		end := p.commits(t, id, "snap")
		again := p.commits(t, id, "snap") // the answer was lost
		if !p.frozen(t) {
			t.Error("a pass has thawed the container amid its commit")
		}
		if _, err := p.daemon.CreateSnapshot(t.Context(), id, "other"); !errdefs.IsAborted(err) {
			t.Errorf("a second snapshot at the same time: %v", err)
		}
		made, err := end()
		if err != nil {
			t.Fatal(err)
		}
		if second, err := again(); !proto.Equal(second, made) || err != nil {
			t.Errorf("repeated meanwhile: %+v, %v; want %+v", second, err, made)
		}
		if third, err := p.daemon.CreateSnapshot(t.Context(), id, "snap"); !proto.Equal(third, made) || err != nil {
			t.Errorf("repeated: %+v, %v; want %+v", third, err, made)
		}
		if _, err := p.daemon.CreateSnapshot(t.Context(), "another", "snap"); !errdefs.IsAlreadyExists(err) {
			t.Errorf("the ID for another sandbox: %v", err)
		}
		pass(time.Second)
		if p.frozen(t) || p.parts(t) != 0 || p.engine.Calls(dockerx.OpCommitContainer) != 1 {
			t.Errorf("frozen %t, %d parts, %d commits", p.frozen(t), p.parts(t), p.engine.Calls(dockerx.OpCommitContainer))
		}
		img, err := p.engine.InspectImage(t.Context(), made.GetImage())
		if err != nil {
			t.Fatal(err)
		}
		for key := range img.Labels {
			if !strings.HasPrefix(strings.TrimPrefix(key, "io.github.1996fanrui.agents-sandbox"), ".snapshot-") {
				t.Errorf("its label %s is the container's", key)
			}
		}
		if len(img.Env) > 0 {
			t.Errorf("its environment is %q", img.Env)
		}
		if got := p.types(t, id); !strings.HasSuffix(got, "READY") {
			t.Errorf("events are %s", got)
		}
	})
}

func TestACommitThatADeathCutsOffIsNoSnapshot(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		end := p.commits(t, id, "snap")
		p.must(t, act{"kill daemon", 0})
		if _, err := end(); err == nil {
			t.Error("the call succeeded")
		}
		pass(10 * time.Second)
		if p.frozen(t) {
			t.Error("the container is frozen without a commit")
		}
		p.engine.Fail(dockerx.OpRemoveImage, 1000, nil, false)
		pass(2 * time.Minute) // the engine's commit has ended
		if all, err := p.daemon.Snapshots(t.Context(), "", ""); len(all) != 0 || err != nil {
			t.Errorf("snapshots %+v, %v", all, err)
		}
		if p.parts(t) != 1 {
			t.Errorf("%d parts, want that of the engine's commit", p.parts(t))
		}
		items, err := p.daemon.CollectGarbage(t.Context(), &agboxv1.CollectGarbageRequest{DryRun: true})
		if len(items) != 1 || items[0].GetKind() != "image" || err != nil {
			t.Errorf("garbage: %v, %v", items, err)
		}
		p.engine.Heal()
		pass(2 * time.Minute)
		if p.parts(t) != 0 {
			t.Errorf("after a resync: %d parts", p.parts(t))
		}
		p.engine.CommitDelay = 0
		if _, err := p.daemon.CreateSnapshot(t.Context(), id, "snap"); err != nil {
			t.Errorf("repeated: %v", err)
		}
	})
}

func TestASnapshotOutlivesItsSandboxAndIsKeptWhileInUse(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"stop", 0})
		pass(time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		made, err := p.daemon.CreateSnapshot(t.Context(), id, "snap")
		if err != nil {
			t.Fatal(err)
		}
		p.must(t, act{"delete", 0})
		pass(time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
		if _, err := p.daemon.CreateSnapshot(t.Context(), id, "late"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("of a deleted sandbox: %v", err)
		}
		p.engine.Fail(dockerx.OpCreateContainer, 1000, nil, false)
		if _, err := p.store.CreateSandbox(t.Context(), "heir", "", &agboxv1.CreateSpec{Image: made.GetImage()}, nil); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if err := p.daemon.RemoveSnapshot(t.Context(), "snap"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("removed before its sandbox has a container: %v", err)
		}
		p.engine.Heal()
		pass(time.Minute)
		p.wantState(t, "heir", agboxv1.SandboxState_SANDBOX_STATE_READY)
		if err := p.daemon.RemoveSnapshot(t.Context(), "snap"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "sandbox heir") {
			t.Errorf("removed while in use: %v", err)
		}
		if all, err := p.daemon.Snapshots(t.Context(), "", ""); len(all) != 1 || !proto.Equal(all[0], made) || err != nil {
			t.Errorf("snapshots %+v, %v; want %+v", all, err, made)
		}
		if _, err := p.store.RequestDelete(t.Context(), "heir", "delete_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := p.daemon.RemoveSnapshot(t.Context(), "snap"); err != nil {
			t.Error(err)
		}
		if err := p.daemon.RemoveSnapshot(t.Context(), "snap"); !errdefs.IsNotFound(err) {
			t.Errorf("removed twice: %v", err)
		}
	})
}

// TestNothingIsCopiedWhileItRuns: a snapshot never has files that changed while they were copied, whoever lets the container run meanwhile.
func TestNothingIsCopiedWhileItRuns(t *testing.T) {
	for _, row := range []struct {
		name    string
		before  string // an act before the commit
		amid    func(t *testing.T, p *player)
		commits int
		state   agboxv1.SandboxState
	}{
		{"nothing happens", "", func(*testing.T, *player) {}, 1, ready},
		{"docker unpause", "", func(_ *testing.T, p *player) { p.engine.PauseOutside(p.container(0), false) }, 2, ready},
		{"docker unpause of a paused one", "pause", func(_ *testing.T, p *player) { p.engine.PauseOutside(p.container(0), false) }, 2, paused},
		{"stop", "", func(t *testing.T, p *player) { p.must(t, act{"stop", 0}) }, 2, stopped},
		{"pause", "", func(t *testing.T, p *player) { p.must(t, act{"pause", 0}) }, 1, paused},
		{"resume of a paused one", "pause", func(t *testing.T, p *player) { p.must(t, act{"resume", 0}) }, 2, ready},
		{"resume of a stopped one", "stop", func(t *testing.T, p *player) { p.must(t, act{"resume", 0}) }, 2, ready},
	} {
		t.Run(row.name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				id := p.readyBox(t)
				if row.before != "" {
					p.must(t, act{row.before, 0})
					pass(time.Minute)
				}
				end := p.commits(t, id, "snap")
				row.amid(t, p)
				pass(30 * time.Second)
				if row.before != "" {
					p.wantState(t, id, row.state) // the commit does not hold up a resume
				}
				if made, err := end(); err != nil || made.GetSnapshotId() != "snap" {
					t.Errorf("made %v, %v", made, err)
				}
				pass(time.Minute)
				p.wantState(t, id, row.state)
				if got := p.engine.Calls(dockerx.OpCommitContainer); got != row.commits || p.parts(t) != 0 || p.frozen(t) != (row.state == paused) {
					t.Errorf("%d commits, want %d; %d parts, frozen: %t", got, row.commits, p.parts(t), p.frozen(t))
				}
			})
		})
	}
}

// containerd's store fails a commit that meets a file that grows.
func TestACommitThatFailsWhileTheContainerRunsIsRepeated(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Fail(dockerx.OpCommitContainer, 1, fmt.Errorf("write too long: %w", errdefs.ErrInternal), true)
		end := p.commits(t, id, "snap")
		p.engine.PauseOutside(p.container(0), false)
		if made, err := end(); err != nil || made.GetSnapshotId() != "snap" {
			t.Errorf("made %v, %v", made, err)
		}
		pass(time.Minute)
		if got := p.engine.Calls(dockerx.OpCommitContainer); got != 2 || p.frozen(t) || p.parts(t) != 0 {
			t.Errorf("%d commits, frozen: %t, %d parts", got, p.frozen(t), p.parts(t))
		}
	})
}

func TestAnEngineThatCannotFreezeMakesSnapshotsOfStoppedSandboxesOnly(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.SetInfo(func(i *dockerx.Info) { i.Freezes = false })
		p.engine.RestartEngine(true)
		pass(5 * time.Minute)
		if _, err := p.daemon.CreateSnapshot(t.Context(), id, "snap"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "Stop it for the snapshot") {
			t.Errorf("of a running one: %v", err)
		}
		p.must(t, act{"stop", 0})
		pass(time.Minute)
		if _, err := p.commits(t, id, "snap")(); err != nil {
			t.Errorf("of a stopped one: %v", err)
		}
	})
}

func TestAContainerThatIsAlwaysThawedHasNoSnapshot(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		end := p.commits(t, id, "snap")
		for range 6 {
			p.engine.PauseOutside(p.container(0), false)
			pass(30 * time.Second)
		}
		if made, err := end(); !errdefs.IsAborted(err) {
			t.Errorf("made %v, %v", made, err)
		}
		pass(time.Minute)
		if all, err := p.daemon.Snapshots(t.Context(), "", ""); len(all) != 0 || p.parts(t) != 0 || err != nil {
			t.Errorf("snapshots %v, %d parts, %v", all, p.parts(t), err)
		}
		p.wantState(t, id, ready)
	})
}

// TestACommitOfADeadDaemonDisturbsNoOther: the engine goes on with the first commit while the second one is made.
func TestACommitOfADeadDaemonDisturbsNoOther(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		first := p.commits(t, id, "snap")
		p.must(t, act{"kill daemon", 0})
		if _, err := first(); err == nil {
			t.Error("the first call succeeded")
		}
		second := p.commits(t, id, "snap")
		for range 9 { // the first commit ends
			pass(5 * time.Second)
			if !p.frozen(t) {
				t.Fatal("the container runs amid its second commit")
			}
		}
		if _, err := second(); err != nil {
			t.Error(err)
		}
		pass(5 * time.Second)
		if got := p.engine.Calls(dockerx.OpCommitContainer); got != 2 || p.frozen(t) {
			t.Errorf("%d commits, frozen: %t", got, p.frozen(t))
		}
	})
}

func TestACallerSeesWhyTheEngineMadeNoSnapshot(t *testing.T) {
	for _, op := range []string{dockerx.OpCommitContainer, dockerx.OpRewriteImage} {
		withDaemon(t, func(t *testing.T, p *player) {
			id := p.readyBox(t)
			p.engine.Fail(op, 1, fmt.Errorf("no space left on device: %w", errdefs.ErrInternal), false)
			made, err := p.daemon.CreateSnapshot(t.Context(), id, "snap")
			if !errdefs.IsUnavailable(err) || !strings.HasSuffix(err.Error(), "no space left on device") {
				t.Errorf("%s: made %v, %v", op, made, err)
			}
			if p.frozen(t) || p.parts(t) != 0 {
				t.Errorf("%s: frozen %t, %d parts", op, p.frozen(t), p.parts(t))
			}
			if _, err := p.daemon.CreateSnapshot(t.Context(), id, "snap"); err != nil {
				t.Errorf("%s, repeated: %v", op, err)
			}
		})
	}
}

func TestADeleteAmidACommitLeavesNoImage(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		end := p.commits(t, id, "snap")
		p.must(t, act{"delete", 0})
		pass(30 * time.Second)
		p.wantState(t, id, deleted)
		if made, err := end(); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("made %v, %v; want that the sandbox is not ready", made, err)
		}
		if p.parts(t) != 0 {
			t.Errorf("%d parts", p.parts(t))
		}
	})
}

func TestAPartThatCannotBeRemovedHoldsUpNothing(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		end := p.commits(t, id, "snap")
		p.must(t, act{"kill daemon", 0})
		_, _ = end()
		p.engine.Fail(dockerx.OpRemoveImage, 1000, nil, false)
		pass(2 * time.Minute)
		before := p.engine.Calls(dockerx.OpRemoveImage)
		pass(10 * time.Minute)
		if got := p.engine.Calls(dockerx.OpRemoveImage) - before; got == 0 || got > 11 {
			t.Errorf("%d tries in 10 minutes, want one for each resync", got)
		}
	})
}
