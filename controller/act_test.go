package controller_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store"
)

const deleted = agboxv1.SandboxState_SANDBOX_STATE_DELETED

// pulling removes the image from the engine; a pull from the registry takes a minute.
func pulling(p *player) {
	p.engine.RemoveImageOutside(image)
	p.engine.AddRemoteImage(image, dockerx.Image{})
	p.engine.PullDelay = time.Minute
}

func TestAPullIsSharedAndEndsWithTheLastDelete(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		pulling(p)
		p.must(t, act{"create", 0}, act{"create", 0}, act{"create", 0})
		pass(10 * time.Second)
		if n, s := p.engine.Calls(dockerx.OpPullImage), p.daemon.Status("box-1"); n != 1 || !strings.Contains(s, "pulling") {
			t.Errorf("%d pulls; %q", n, s)
		}
		p.must(t, act{"delete", 0})
		pass(time.Second)
		p.wantState(t, "box-0", deleted)
		p.must(t, act{"delete", 1})
		pass(time.Minute)
		p.wantState(t, "box-2", ready)
	})
}

func TestADeleteCancelsThePull(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		pulling(p)
		p.must(t, act{"create", 0})
		pass(10 * time.Second)
		p.must(t, act{"delete", 0})
		pass(10 * time.Minute)
		p.wantState(t, "box-0", deleted)
		if err := p.engine.StartOutside("none"); !errdefs.IsNotFound(err) {
			t.Error(err)
		}
		if _, err := p.engine.InspectImage(t.Context(), image); !errdefs.IsNotFound(err) {
			t.Errorf("the image was pulled all the same: %v", err)
		}
	})
}

func TestAnImageThatDoesNotExistFailsTheCreateAndLeavesNothing(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.RemoveImageOutside(image)
		p.must(t, act{"create", 0})
		pass(time.Minute)
		p.wantState(t, "box-0", failed)
		if c := p.sandbox(t, "box-0").ErrorCode; c != "SANDBOX_CREATE_FAILED" {
			t.Error(c)
		}
		if n := len(p.engine.Networks()) + len(p.engine.Containers()); n != 0 {
			t.Errorf("%d objects are left", n)
		}
	})
}

// The status names an object of others that has our name; it is never touched.
func TestAConflictingObjectIsNamedAndNotTouched(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.RefuseDoubledNames = true
		n, err := p.engine.CreateNetwork(t.Context(), dockerx.NetworkSpec{Name: naming.Network("box-0")})
		if err != nil {
			t.Fatal(err)
		}
		p.must(t, act{"create", 0})
		pass(time.Minute)
		if s := p.daemon.Status("box-0"); !strings.Contains(s, naming.Network("box-0")+" is in use") {
			t.Errorf("the status is %q", s)
		}
		if len(p.engine.Networks()) != 1 {
			t.Error("the network of another owner is gone")
		}
		p.engine.RemoveNetworkOutside(n.ID)
		pass(time.Minute)
		p.wantState(t, "box-0", ready)
	})
}

// An error of no known class ends an attempt only if it recurs.
func TestAnUnknownErrorIsRetriedForAWhile(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.Fail(dockerx.OpStartContainer, 3, errdefs.ErrInternal, false)
		p.must(t, act{"create", 0})
		pass(time.Minute)
		p.wantState(t, "box-0", ready)
		p.engine.Fail(dockerx.OpStartContainer, 1000, errdefs.ErrInternal, false)
		p.must(t, act{"create", 0})
		pass(time.Minute)
		p.wantState(t, "box-1", failed)
	})
}

// Unavailability of the engine does not use up the patience for unclassified errors.
func TestTroubleOfTheEngineDoesNotUseUpThePatience(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.Fail(dockerx.OpStartContainer, 12, nil, false)
		p.engine.Fail(dockerx.OpStartContainer, 1, errdefs.ErrInternal, false)
		p.must(t, act{"create", 0})
		pass(10 * time.Minute)
		p.wantState(t, "box-0", ready)
	})
}

func TestOrphansStayInADryRun(t *testing.T) {
	for _, dry := range []bool{true, false} {
		withDaemon(t, func(t *testing.T, p *player) {
			p.readyBox(t)
			spec, _ := p.engine.Spec(p.container(0))
			p.must(t, act{"delete", 0})
			pass(time.Minute)
			if _, err := p.engine.CreateOutside(spec); err != nil {
				t.Fatal(err)
			}
			pass(5 * time.Minute)
			if left := len(p.engine.Containers()); left != map[bool]int{true: 1}[dry] {
				t.Errorf("dry run %v: %d containers", dry, left)
			}
		}, func(c *controller.Config) { c.Settings.KeepOrphans = dry })
	}
}

func TestUnknownContainersAreNotRemoved(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.readyBox(t)
		spec, _ := p.engine.Spec(p.container(0))
		spec.Name, spec.Labels[naming.SandboxID] = "agbox-primary-other", "other"
		if _, err := p.engine.CreateOutside(spec); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		if n := len(p.engine.Containers()); n != 2 {
			t.Errorf("%d containers", n)
		}
	})
}

func TestHistoryIsPurgedWhenItIsDue(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.must(t, act{"delete", 0})
		pass(50 * time.Minute)
		p.wantState(t, id, deleted)
		pass(20 * time.Minute)
		if _, err := p.store.Sandbox(t.Context(), id); !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	}, func(c *controller.Config) { c.Settings.EventRetention = time.Hour })
}

func TestAContainerOfSomebodyElseFailsNothing(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id, err := p.engine.CreateOutside(dockerx.ContainerSpec{Name: naming.Primary("box-0"), Image: image})
		if err != nil {
			t.Fatal(err)
		}
		p.must(t, act{"create", 0})
		pass(10 * time.Minute)
		if s := p.daemon.Status("box-0"); !strings.Contains(s, naming.Primary("box-0")+" is in use") {
			t.Errorf("the status is %q", s)
		}
		p.engine.RemoveContainerOutside(id)
		pass(time.Minute)
		p.wantState(t, "box-0", ready)
	})
}

// After a reboot the file system of a mount may appear later than the engine.
func TestARestartAfterARebootWaitsForItsMounts(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.must(t, act{"create", 0})
		pass(time.Second)
		p.engine.HideSource("/shim", true)
		p.must(t, act{"reboot", 0})
		pass(2 * time.Minute)
		p.wantState(t, "box-0", ready)
		if s := p.daemon.Status("box-0"); !strings.Contains(s, "/shim") {
			t.Errorf("the status does not say what is missing: %q", s)
		}
		p.engine.HideSource("/shim", false)
		pass(time.Minute)
		p.wantState(t, "box-0", ready)
		if got := p.types(t, "box-0"); got != "ACCEPTED PREPARING READY RESTARTED" {
			t.Errorf("got %s", got)
		}
	})
}

func TestARestartAfterADeathIsGivenUpInTheEnd(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.must(t, act{"create", 0})
		pass(time.Second)
		p.engine.HideSource("/shim", true)
		p.must(t, act{"reboot", 0})
		pass(15 * time.Minute)
		if sb, err := p.store.Sandbox(t.Context(), "box-0"); err != nil || sb.ErrorCode != "CONTAINER_NOT_RUNNING" {
			t.Errorf("is %s %s, %v", sb.State, sb.ErrorCode, err)
		}
	})
}

// pull_policy always uses the registry's present image; never does not contact a registry.
func TestAPullPolicyIsKept(t *testing.T) {
	for policy, want := range map[string]agboxv1.SandboxState{"": ready, "never": ready, "always": failed} {
		withDaemon(t, func(t *testing.T, p *player) { // it is in the engine, and in no registry
			p.wantState(t, p.createPulled(t, policy), want)
		})
	}
	for policy, want := range map[string]agboxv1.SandboxState{"": ready, "never": failed, "always": ready} {
		withDaemon(t, func(t *testing.T, p *player) { // it is in the registry only
			p.engine.RemoveImageOutside(image)
			p.engine.AddRemoteImage(image, dockerx.Image{})
			p.wantState(t, p.createPulled(t, policy), want)
		})
	}
}

func (p *player) createPulled(t *testing.T, policy string) string {
	t.Helper()
	id := p.create(t, &agboxv1.CreateSpec{PullPolicy: policy})
	pass(time.Minute)
	return id
}

// hungTar reads no file and does not answer until its caller's context ends.
type hungTar struct {
	controller.Engine
	left chan struct{}
}

func (e *hungTar) WriteTar(ctx context.Context, _, _ string, _ time.Duration, _ io.Reader) error {
	<-ctx.Done()
	close(e.left)
	return ctx.Err()
}

func TestADeleteEndsACopyThatHangs(t *testing.T) {
	e := &hungTar{left: make(chan struct{})}
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{Copies: []*agboxv1.CopySpec{{Source: p.dir, Target: "/data"}}})
		pass(time.Second)
		p.must(t, act{"delete", 0})
		pass(time.Second)
		p.wantState(t, id, deleted)
		select {
		case <-e.left:
		default:
			t.Error("the copy goes on")
		}
	}, func(c *controller.Config) { e.Engine, c.Engine = c.Engine, e })
}

// A client that waits for READY reads the ports next.
func TestPortsAreKnownWhenReadyIsCommitted(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		told := false
		p.store.OnCommit(func(change store.Change) {
			id := change.SandboxID
			sb, err := p.store.Sandbox(t.Context(), id)
			if err != nil || sb.State != ready || told {
				return
			}
			told = true
			if ports := p.daemon.Ports(id); len(ports) != 1 || ports[0].GetHostPort() == 0 {
				t.Errorf("READY with ports %v", ports)
			}
		})
		p.must(t, act{"create", 3})
		pass(time.Minute)
		if !told {
			t.Error("never READY")
		}
	})
}

func TestObjectsCarryTheNameOfTheirSandbox(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.namedBox(t, "id-1", "web")
		p.namedBox(t, "id-2", "")
		pass(time.Second)
		want := map[string]string{"id-1": "web", "id-2": ""}
		for id := range want {
			p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_READY)
		}
		check := func(what string, labels map[string]string) {
			id := labels[naming.SandboxID]
			if name, ok := labels[naming.SandboxName]; name != want[id] || ok != (want[id] != "") {
				t.Errorf("%s of %s has the name %q, there %t; want %q", what, id, name, ok, want[id])
			}
		}
		for _, c := range p.engine.Containers() {
			check("container", c.Labels)
		}
		for _, n := range p.engine.Networks() {
			check("network", n.Labels)
		}
	})
}
