package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// hostileExecs leave trees that take many slices to remove.
type hostileExecs struct {
	controller.Execs
	removing, most atomic.Int32
	left           map[string]*atomic.Int32
}

func (h *hostileExecs) Remove(sandboxID string) error {
	left := h.left[sandboxID]
	if left == nil || left.Add(-1) < 0 {
		return h.Execs.Remove(sandboxID)
	}
	if n := h.removing.Add(1); n > h.most.Load() {
		h.most.Store(n)
	}
	time.Sleep(500 * time.Millisecond) // simulated time, as all sleeps in a bubble: one slice of a removal
	h.removing.Add(-1)
	return &execjournal.UnfinishedError{Removed: 1000}
}

// slowEngine removes a container as slowly as an engine that has to delete millions of files.
type slowEngine struct {
	controller.Engine
	slow atomic.Bool
}

func (e *slowEngine) RemoveContainer(ctx context.Context, id string) error {
	if e.slow.Load() {
		select {
		case <-time.After(40 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return e.Engine.RemoveContainer(ctx, id)
}

// TestRemovalsThatTakeLongHoldNoWorker: the deletes of eight sandboxes with very many files do not delay other sandboxes.
func TestRemovalsThatTakeLongHoldNoWorker(t *testing.T) {
	const hostile, slices = 8, 100
	for name, slow := range map[string]bool{"trees": false, "containers": true} {
		t.Run(name, func(t *testing.T) {
			h := &hostileExecs{left: map[string]*atomic.Int32{}}
			e := &slowEngine{}
			withDaemon(t, func(t *testing.T, p *player) {
				var ids []string
				for range hostile {
					ids = append(ids, p.readyBox(t))
				}
				for _, id := range ids {
					if slow {
						continue
					}
					h.left[id] = &atomic.Int32{}
					h.left[id].Store(slices)
				}
				e.slow.Store(slow)
				for _, id := range ids {
					if _, err := p.store.RequestDelete(t.Context(), id, "delete_requested"); err != nil {
						t.Fatal(err)
					}
				}
				pass(8 * time.Second) // each has had its first slice, which does not wait for others
				h.most.Store(0)
				begun := time.Now()
				other := p.readyBoxWithin(t, 2*time.Second)
				t.Logf("a create beside them took %s", time.Since(begun))
				if status := p.daemon.Status(ids[0]); status == "" {
					t.Error("the status does not say that it is being removed")
				} else {
					t.Log(status)
				}
				for _, id := range ids {
					p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_DELETING)
				}
				pass(20 * time.Minute)
				for _, id := range ids {
					p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
				}
				p.wantState(t, other, ready)
				if n := h.most.Load(); n > 2 {
					t.Errorf("%d trees were removed at the same time", n)
				}
			}, func(c *controller.Config) {
				h.Execs, c.Execs = c.Execs, h
				e.Engine, c.Engine = c.Engine, e
				c.Workers = 2
				c.Settings.IdleTTL = 0
			})
		})
	}
}

// readyBoxWithin creates a sandbox and fails unless it is READY within d.
func (p *player) readyBoxWithin(t *testing.T, d time.Duration) string {
	t.Helper()
	id := fmt.Sprintf("within-%d", len(p.boxes))
	if _, err := p.store.CreateSandbox(t.Context(), id, "", &agboxv1.CreateSpec{Image: image}, nil); err != nil {
		t.Fatal(err)
	}
	p.boxes = append(p.boxes, id)
	pass(d)
	p.wantState(t, id, ready)
	return id
}
