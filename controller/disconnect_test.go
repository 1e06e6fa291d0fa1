package controller_test

import (
	"testing"
	"time"

	"github.com/agbox/agbox/dockerx"
)

func (p *player) connected(id string) bool {
	for _, c := range p.engine.Containers() {
		if c.ID == id {
			return len(c.Networks) > 0
		}
	}
	return false
}

func TestALostConnectionIsMadeAgainAtOnce(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		for range 2 {
			p.engine.DisconnectOutside(p.container(0))
			pass(time.Second)
			if !p.connected(p.container(0)) {
				t.Fatalf("the primary is still disconnected; %q", p.daemon.Status(id))
			}
		}
		if got := p.types(t, id); got != "ACCEPTED PREPARING READY" {
			t.Errorf("%s", got)
		}
	}, seldom)
}

// Current engines disconnect an ending container before they send its end. During a stop or a delete that is not a lost connection, and
// costs no call.
func TestADisconnectDuringAStopIsIgnored(t *testing.T) {
	for _, verb := range []string{"stop", "delete", "pause"} {
		t.Run(verb, func(t *testing.T) {
			withDaemon(t, func(t *testing.T, p *player) {
				p.readyBox(t)
				p.engine.StopBehavior = func(string) time.Duration { return 5 * time.Second }
				p.engine.Delay(dockerx.OpRemoveContainer, 5*time.Second)
				p.must(t, act{verb, 0})
				pass(2 * time.Second)
				before := p.engine.Calls(dockerx.OpListContainers)
				p.engine.DisconnectOutside(p.container(0))
				pass(time.Second)
				if n := p.engine.Calls(dockerx.OpListContainers) - before; n > 0 || p.engine.Calls(dockerx.OpConnectNetwork) > 0 {
					t.Errorf("%d passes for the disconnect, and %d connects", n, p.engine.Calls(dockerx.OpConnectNetwork))
				}
			}, seldom)
		})
	}
}

// A failed start makes the engine send a disconnect too. The backoff of the failure holds.
func TestTheDisconnectOfAFailedStartCutsNoBackOffShort(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.readyBox(t)
		p.engine.HideSource("/shim", true)
		before := p.engine.Calls(dockerx.OpStartContainer)
		p.must(t, act{"reboot", 0})
		pass(2 * time.Minute)
		p.wantState(t, id, ready)
		if n := p.engine.Calls(dockerx.OpStartContainer) - before; n > 15 {
			t.Errorf("%d starts in two minutes", n)
		}
	}, seldom)
}
