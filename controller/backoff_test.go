package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
)

// A background operation that fails at once is retried with the backoff of its key, not as fast as the engine refuses.
func TestAStopThatFailsIsRetriedWithBackOff(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Fail(dockerx.OpStopContainer, 1000, errdefs.ErrInternal, false)
		p.must(t, act{"stop", 0})
		pass(5 * time.Minute)
		if n := p.engine.Calls(dockerx.OpStopContainer); n > 25 {
			t.Errorf("%d stops in five minutes", n)
		}
		if s := p.daemon.Status(id); !strings.Contains(s, "retrying") {
			t.Errorf("the status says %q", s)
		}
		p.engine.Heal()
		pass(time.Minute)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		if s := p.daemon.Status(id); s != "" {
			t.Errorf("the status of a stopped sandbox says %q", s)
		}
	})
}

func TestAPullThatFailsIsRetriedWithBackOff(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.engine.RemoveImageOutside(image)
		p.engine.AddRemoteImage(image, dockerx.Image{})
		p.engine.Fail(dockerx.OpPullImage, 1000, nil, false)
		p.must(t, act{"create", 0})
		pass(5 * time.Minute)
		if n := p.engine.Calls(dockerx.OpPullImage); n > 25 {
			t.Errorf("%d pulls in five minutes", n)
		}
		if s := p.daemon.Status("box-0"); !strings.Contains(s, "pull") {
			t.Errorf("the status says %q", s)
		}
		p.engine.Heal()
		pass(time.Minute)
		p.wantState(t, "box-0", agboxv1.SandboxState_SANDBOX_STATE_READY)
	})
}

// The error of an abandoned stop is not reported for the next one.
func TestTheErrorOfAStopDoesNotOutliveIt(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Fail(dockerx.OpStopContainer, 1, errdefs.ErrInternal, true)
		p.must(t, act{"stop", 0})
		pass(time.Second)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_STOPPED)
		p.must(t, act{"resume", 0})
		pass(time.Second)
		p.must(t, act{"stop", 0})
		if pass(10 * time.Millisecond); p.daemon.Status(id) != "stopping" {
			t.Errorf("the status says %q", p.daemon.Status(id))
		}
	})
}

// A stop that still runs in the engine must not hit the next run of the sandbox.
func TestAResumeWaitsForTheStopBeforeIt(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.Delay(dockerx.OpStopContainer, 5*time.Second)
		p.must(t, act{"stop", 0})
		pass(time.Second)
		p.must(t, act{"kill box", 0})
		pass(time.Second)
		p.must(t, act{"resume", 0})
		pass(time.Second)
		p.must(t, act{"resume", 0})
		pass(10 * time.Second)
		p.must(t, act{"resume", 0})
		pass(time.Second)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_READY)
	})
}
