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
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// refusing fails the start of one service, and counts the tries.
type refusing struct {
	controller.Engine
	err   error
	tries *int
}

func (e *refusing) StartContainer(ctx context.Context, id string) error {
	if d, err := e.InspectContainer(ctx, id); err == nil && strings.HasSuffix(d.Name, "-opt") {
		*e.tries++
		return fmt.Errorf("start container %s: %w", id, e.err)
	}
	return e.Engine.StartContainer(ctx, id)
}

// A container that cannot be started counts as never started. Its failure gets one event, and nothing spins.
func TestAServiceThatCannotBeStartedFailsOnce(t *testing.T) {
	for _, class := range []error{errdefs.ErrInvalidArgument, errdefs.ErrInternal} {
		for policy, most := range map[string]int{"": 10, "always": 120} {
			for hook, want := range map[string]string{
				"sleep 10 0":    "ACCEPTED PREPARING SERVICE_READY READY SERVICE_FAILED",
				"sleep 50000 0": "ACCEPTED PREPARING SERVICE_READY SERVICE_FAILED READY",
			} {
				tries := 0
				withDaemon(t, func(t *testing.T, p *player) {
					id := p.create(t, &agboxv1.CreateSpec{
						RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db", hook)},
						OptionalServices: []*agboxv1.ServiceSpec{{Name: "opt", Image: image, RestartPolicy: policy}},
					})
					pass(20 * time.Minute)
					if hook == "sleep 10 0" && errdefs.IsInvalidArgument(class) {
						want = strings.Replace(want, "READY SERVICE_FAILED", "SERVICE_FAILED READY", 1) // at once: together with the hook
					}
					p.wantTypes(t, id, want)
					if tries > most {
						t.Errorf("%d starts in 20 minutes", tries)
					}
				}, func(c *controller.Config) { c.Engine = &refusing{c.Engine, class, &tries} })
			}
		}
	}
}

// A service that fails right after READY does not revert READY.
func TestAServiceThatFailsAtOnceLeavesTheSandboxReady(t *testing.T) {
	tries := 0
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{{Name: "opt", Image: image}}})
		pass(time.Minute)
		p.wantTypes(t, id, "ACCEPTED PREPARING READY SERVICE_FAILED")
		p.wantState(t, id, ready)
	}, func(c *controller.Config) { c.Engine = &refusing{c.Engine, errdefs.ErrInvalidArgument, &tries} })
}

// The kernel may refuse a limit for any length of time.
func TestLimitsThatAreRefusedHoldUpNothingElse(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{{Name: "opt", Image: image}}})
		pass(time.Second)
		p.engine.Fail(dockerx.OpUpdateContainer, 100, errdefs.ErrInternal, false)
		change := func(old *agboxv1.CreateSpec) (*agboxv1.CreateSpec, []string, bool, error) {
			next := proto.CloneOf(old)
			next.MemoryLimit = "64MiB"
			return next, []string{"memory_limit"}, true, nil
		}
		if _, _, err := p.store.UpdateSpec(t.Context(), id, 0, change); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		p.engine.ExitContainer(p.named(naming.Service(id, "opt")), 1, false)
		pass(5 * time.Minute)
		p.wantTypes(t, id, "ACCEPTED PREPARING READY SERVICE_READY SPEC_CHANGED SERVICE_FAILED STOP_REQUESTED STOPPED")
		if s := p.daemon.Status(id); !strings.Contains(s, "retrying") {
			t.Errorf("the status says %q", s)
		}
		p.engine.Heal()
		pass(time.Minute)
		if d, _ := p.engine.InspectContainer(t.Context(), p.container(0)); d.Limits.MemoryBytes != 64<<20 {
			t.Errorf("the memory limit is %d", d.Limits.MemoryBytes)
		}
	}, func(c *controller.Config) { c.Settings.IdleTTL = time.Minute })
}

// A service that ends soon after each start is READY in between. That does not reset its backoff.
func TestAServiceThatEndsAgainAndAgainIsLeftAloneForLonger(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{
			{Name: "opt", Image: image, RestartPolicy: "always"},
		}})
		for range 600 {
			pass(time.Second)
			p.engine.ExitContainer(p.named(naming.Service(id, "opt")), 0, false)
		}
		if n := p.engine.Calls(dockerx.OpStartContainer); n < 8 || n > 12 { // 1 s, 2 s, 4 s, ... 256 s, and the primary
			t.Errorf("%d starts in 10 minutes", n)
		}
	})
}

// A failed service that no policy restarts is as wanted: it costs no pass, whether or not it published ports.
func TestAFallenServiceIsLeftInPeace(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{OptionalServices: []*agboxv1.ServiceSpec{
			{Name: "opt", Image: image, RestartPolicy: "on-failure", Ports: []*agboxv1.PortSpec{{ContainerPort: 80}}},
		}})
		pass(time.Second)
		p.engine.ExitContainer(p.named(naming.Service(id, "opt")), 0, false)
		pass(5 * time.Minute)
		before := p.engine.Calls(dockerx.OpInspectContainer)
		pass(10 * time.Minute)
		if n := p.engine.Calls(dockerx.OpInspectContainer) - before; n != 0 {
			t.Errorf("%d inspections in ten quiet minutes", n)
		}
	})
}
