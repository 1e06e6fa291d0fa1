package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/hostfiles"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

// mounted is a sandbox with a mount, and with a main process if command is set.
func (p *player) mounted(t *testing.T, command ...string) string {
	t.Helper()
	return p.create(t, &agboxv1.CreateSpec{Command: command, Mounts: []*agboxv1.MountSpec{{Source: p.dir, Target: "/m"}}})
}

func swapped(c *controller.Config, is func(look int) bool) {
	look := 0
	c.CheckMounted = func(int, hostfiles.Mounted, []hostfiles.Mounted) (bool, error) {
		if look++; is(look) {
			return true, fmt.Errorf("swapped: %w", errdefs.ErrAborted)
		}
		return true, nil
	}
}

// A container that was ended before its release has not run: its recorded start no longer counts.
func TestAPrimaryWithASwappedMountIsStartedAgain(t *testing.T) {
	for _, command := range [][]string{nil, {"serve"}} {
		withDaemon(t, func(t *testing.T, p *player) {
			id := p.mounted(t, command...)
			pass(time.Minute)
			p.wantTypes(t, id, "ACCEPTED PREPARING READY")
			if n := p.engine.Calls(dockerx.OpStopContainer); n != 2 {
				t.Errorf("%d stops", n)
			}
		}, func(c *controller.Config) { swapped(c, func(look int) bool { return look <= 2 }) })
	}
}

// oddAfterStart answers the first call after a start with an error of no known class.
type oddAfterStart struct {
	controller.Engine
	odd bool
}

func (e *oddAfterStart) StartContainer(ctx context.Context, id string) error {
	e.odd = true
	return e.Engine.StartContainer(ctx, id)
}

func (e *oddAfterStart) InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error) {
	if e.odd {
		e.odd = false
		return dockerx.ContainerDetail{}, errdefs.ErrInternal
	}
	return e.Engine.InspectContainer(ctx, id)
}

func TestAnUnclearAnswerAboutMountsEndsNothing(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.mounted(t)
		pass(time.Minute)
		p.wantState(t, id, ready)
		if n := p.engine.Calls(dockerx.OpStopContainer); n != 0 {
			t.Errorf("%d stops", n)
		}
	}, func(c *controller.Config) {
		c.Engine = &oddAfterStart{Engine: c.Engine}
		swapped(c, func(int) bool { return false })
	})
}

// forgetful loses the first report of READY, and calls then.
type forgetful struct {
	controller.Store
	lost bool
	then func()
}

func (s *forgetful) Report(ctx context.Context, id string, r store.Report) error {
	if n := len(r.Events); n > 0 && r.Events[n-1].GetEventType() == agboxv1.EventType_SANDBOX_READY && !s.lost {
		s.lost = true
		if s.then != nil {
			s.then()
		}
		return errdefs.ErrUnavailable
	}
	return s.Store.Report(ctx, id, r)
}

// A release that is not recorded yet is not repeated: the main process runs, and a source may have been replaced since.
func TestAReleasedPrimaryIsNotComparedAgain(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.mounted(t, "serve")
		pass(time.Minute)
		p.wantTypes(t, id, "ACCEPTED PREPARING READY")
		if n := p.engine.Calls(dockerx.OpStopContainer); n != 0 {
			t.Errorf("%d stops", n)
		}
	}, func(c *controller.Config) {
		c.Store = &forgetful{Store: c.Store}
		swapped(c, func(look int) bool { return look > 1 })
	})
}

// A second primary would take execs from the first one, and they would be lost when one of both is removed.
func TestAStartedPrimaryThatTheListsHideGetsNoDouble(t *testing.T) {
	forget := &forgetful{}
	withDaemon(t, func(t *testing.T, p *player) {
		forget.then = func() {
			p.engine.RenameOutside(naming.Primary("box-0"), "elsewhere")
			p.engine.EmptyLists(dockerx.OpListContainers)
		}
		id := p.create(t, &agboxv1.CreateSpec{})
		pass(5 * time.Second)
		p.truth()
		pass(time.Minute)
		p.wantTypes(t, id, "ACCEPTED PREPARING READY")
		if n := p.engine.Calls(dockerx.OpCreateContainer); n != 1 {
			t.Errorf("%d containers were created", n)
		}
	}, func(c *controller.Config) {
		forget.Store, c.Store = c.Store, forget
	})
}
