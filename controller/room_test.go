package controller_test

import (
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
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

// The engine's disk is full before anything has noticed: a restart of agboxd on it, or a disk that fills up within a moment. What the engine
// refuses then fails neither a create nor a resume nor what ran when the engine died, for however long.
func TestAFullDiskOfTheEngineFailsNothingThatWasAccepted(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, p *player){
		"a create": func(*testing.T, *player) {},
		"a resume": func(t *testing.T, p *player) {
			p.stopBox(t, p.readyBox(t))
			pass(time.Minute)
		},
		"what ran when the engine died": func(t *testing.T, p *player) { p.readyBox(t) },
	} {
		t.Run(name, func(t *testing.T) {
			var low, noticed atomic.Bool
			withDaemon(t, func(t *testing.T, p *player) {
				before(t, p)
				low.Store(true)
				full := errors.New("no space left on device")
				p.engine.Fail(dockerx.OpCreateContainer, 100_000, full, false)
				p.engine.Fail(dockerx.OpStartContainer, 100_000, full, false)
				switch name {
				case "a create":
					p.must(t, act{"create", 0})
				case "a resume":
					p.must(t, act{"resume", 0})
				default:
					p.must(t, act{"engine restart", 0})
				}
				pass(time.Hour)
				if sb := p.sandbox(t, p.box(0)); sb.State == failed {
					t.Fatalf("%s %s", sb.ErrorCode, sb.ErrorMessage)
				}
				if !noticed.Load() {
					t.Error("nothing was refused")
				}
				low.Store(false)
				noticed.Store(false)
				p.engine.Heal()
				p.daemon.RoomReturned()
				pass(time.Minute)
				p.wantState(t, p.box(0), ready)
			}, func(c *controller.Config) {
				read := func() string {
					if noticed.Load() {
						return "the disk of the Docker engine has 0B left"
					}
					return ""
				}
				c.NoRoom, c.RoomNow = read, func() string {
					noticed.Store(low.Load())
					return read()
				}
			})
		})
	}
}

// fullFiles cannot remove anything before room is made, as on a full btrfs, where a rename needs space.
type fullFiles struct {
	controller.Execs
	room atomic.Bool
}

func (f *fullFiles) Remove(sandboxID string) error {
	if !f.room.Load() {
		return &fs.PathError{Op: "rename", Path: "mnt", Err: syscall.ENOSPC}
	}
	return f.Execs.Remove(sandboxID)
}

func TestADeleteMakesRoomForItself(t *testing.T) {
	f := &fullFiles{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"delete", 0})
		pass(time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	}, func(c *controller.Config) {
		f.Execs, c.Execs = c.Execs, f
		c.MakeRoom = func() bool { f.room.Store(true); return true }
	})
}

// fullRequests has no room for the request of an exec at first, under a quota that statfs(2) does not show.
type fullRequests struct {
	controller.Execs
	rooms, tries atomic.Int32
}

func (f *fullRequests) Start(sandboxID string, r execjournal.Request) error {
	if f.tries.Add(1) < 5 {
		return &fs.PathError{Op: "create", Path: "request", Err: syscall.EDQUOT}
	}
	return f.Execs.Start(sandboxID, r)
}

// TestAnExecWithoutRoomForItsRequestStopsNewWork: it alone notices the limit. Execs that wait use up no more of the ballast.
func TestAnExecWithoutRoomForItsRequestStopsNewWork(t *testing.T) {
	f := &fullRequests{}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"exec", 0})
		pass(time.Minute)
		if n := f.rooms.Load(); n != 1 {
			t.Errorf("%d pieces of the ballast were released", n)
		}
		p.wantState(t, id, ready)
	}, func(c *controller.Config) {
		f.Execs, c.Execs = c.Execs, f
		c.NoRoom = func() string {
			if f.rooms.Load() > 0 {
				return "the disk of the data directory is full"
			}
			return ""
		}
		c.MakeRoom = func() bool { f.rooms.Add(1); return true }
	})
}
