package controller_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
)

// A create that was accepted before the disk was full makes no container on it, and does not fail: it goes on once there is room. A stop and a
// resume of another sandbox need no room.
func TestACreateWaitsForRoomOnTheDisk(t *testing.T) {
	const full = "the disk of the Docker engine has 1 MiB left"
	var low atomic.Bool
	withDaemon(t, func(t *testing.T, p *player) {
		other := p.readyBox(t)
		low.Store(true)
		made := p.engine.Calls(dockerx.OpCreateContainer)
		p.must(t, act{"create", 0})
		id := p.boxes[len(p.boxes)-1]
		pass(10 * time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_PENDING)
		if s := p.daemon.Status(id); !strings.Contains(s, full) {
			t.Errorf("the status says %q", s)
		}
		if n := p.engine.Calls(dockerx.OpCreateContainer) - made; n != 0 {
			t.Errorf("the engine was asked for %d containers", n)
		}
		p.must(t, act{"stop", 0})
		pass(time.Minute)
		p.wantState(t, other, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		p.must(t, act{"resume", 0})
		pass(time.Minute)
		p.wantState(t, other, ready)
		low.Store(false)
		p.daemon.RoomReturned()
		pass(time.Second)
		p.wantState(t, id, ready)
	}, func(c *controller.Config) {
		c.NoRoom = func() string {
			if low.Load() {
				return full
			}
			return ""
		}
	})
}
