package controller_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
)

// pruned are n STOPPED sandboxes whose containers were removed without events while agboxd did not run.
func (p *player) pruned(t *testing.T, n int) []string {
	t.Helper()
	for range n {
		p.stopBox(t, p.readyBox(t))
	}
	pass(time.Minute)
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}
	p.vanish(true)
	p.comesBack(t)
	pass(5 * time.Minute)
	return p.boxes
}

// wantQuiet checks that only the lists of the resyncs and the probes of the link reach the engine.
func (p *player) wantQuiet(t *testing.T) {
	t.Helper()
	before := p.calls()
	const minutes = 10
	pass(minutes * time.Minute)
	for op, n := range p.calls() {
		limit := map[string]int{dockerx.OpListContainers: minutes, dockerx.OpListNetworks: minutes, dockerx.OpListImages: minutes, dockerx.OpInfo: 12 * minutes}[op]
		if n -= before[op]; n > limit {
			t.Errorf("%d calls of %s in %d minutes, want at most %d", n, op, minutes, limit)
		}
	}
}

// A `docker container prune` while agboxd was down leaves any number of sandboxes that no client uses. Their resyncs cost as much as those
// of none.
func TestSandboxesThatAreGoneCostNoCallsByThemselves(t *testing.T) {
	for _, n := range []int{1, 2, 30} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				boxes := p.pruned(t, n)
				if held := p.daemon.Held(); n > 1 && held != n {
					t.Errorf("%d are held", held)
				}
				p.wantQuiet(t)
				for _, id := range boxes {
					p.wantState(t, id, stopped)
				}
			})
		})
	}
}

// The same for sandboxes that should run, and that publish ports.
func TestHeldSandboxesCostNoCallsByThemselves(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		for range 5 {
			p.create(t, &agboxv1.CreateSpec{Ports: []*agboxv1.PortSpec{{ContainerPort: 80}}})
		}
		pass(time.Minute)
		if err := p.kill(); err != nil {
			t.Fatal(err)
		}
		p.vanish(true)
		p.comesBack(t)
		pass(5 * time.Minute)
		p.wantHeld(t, p.boxes)
		p.wantQuiet(t)
	})
}

// A sandbox that is left alone is observed again once anything about it changes.
func TestASandboxThatIsGoneIsObservedOnceAnythingChanges(t *testing.T) {
	for name, c := range map[string]struct {
		n      int
		change func(t *testing.T, p *player)
		state  agboxv1.SandboxState // of the first one
		line   string               // in its status
	}{
		"its container returns": {1, func(_ *testing.T, p *player) { p.engine.HideContainer(p.container(0), false) }, stopped, ""},
		"a resume":              {1, func(t *testing.T, p *player) { p.must(t, act{"resume", 0}) }, failed, ""},
		"a delete": {
			1, func(t *testing.T, p *player) { p.must(t, act{"delete", 0}) }, agboxv1.SandboxState_SANDBOX_STATE_DELETED, "",
		},
		"the engine restarts": {1, func(_ *testing.T, p *player) {
			p.engine.RestartEngine(true)
			p.vanish(false)
		}, stopped, ""},
		"an operator confirms":                   {3, func(t *testing.T, p *player) { p.confirms(t, p.boxes, nil) }, failed, ""},
		"all return":                             {3, func(_ *testing.T, p *player) { p.vanish(false) }, stopped, ""},
		"one of three returns":                   {3, func(_ *testing.T, p *player) { p.engine.HideContainer(p.container(1), false) }, stopped, "2 sandboxes vanished"},
		"one of three is resumed and stays held": {3, func(t *testing.T, p *player) { p.must(t, act{"resume", 0}) }, agboxv1.SandboxState_SANDBOX_STATE_PENDING, "3 sandboxes vanished"},
		"the other one is deleted":               {2, func(t *testing.T, p *player) { p.must(t, act{"delete", 1}) }, stopped, "does not show the primary"},
		"the other one returns":                  {2, func(_ *testing.T, p *player) { p.engine.HideContainer(p.container(1), false) }, stopped, "does not show the primary"},
	} {
		t.Run(name, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				p.pruned(t, c.n)
				c.change(t, p)
				pass(90 * time.Second)
				p.wantState(t, p.boxes[0], c.state)
				if line := p.daemon.Status(p.boxes[0]); !strings.Contains(line, c.line) || c.line == "" && line != "" {
					t.Errorf("its status is %q, want %q", line, c.line)
				}
				if c.state != agboxv1.SandboxState_SANDBOX_STATE_DELETED {
					p.wantQuiet(t)
				}
			})
		})
	}
}
