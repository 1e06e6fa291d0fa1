package controller_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// relay is an engine behind a proxy: its process may be replaced while the stream of events stays open, and the proxy may repeat or drop
// events.
type relay struct {
	controller.Engine
	restarted, mute atomic.Bool
	handle          atomic.Pointer[func(dockerx.Event)] // of the present stream
}

func (r *relay) Events(ctx context.Context, since time.Time, labels map[string]string, ready func(), handle func(dockerx.Event)) error {
	r.handle.Store(&handle)
	return r.Engine.Events(ctx, since, labels, ready, func(e dockerx.Event) {
		if !r.mute.Load() {
			handle(e)
		}
	})
}

// repeats sends the event of the removal of a sandbox's container, whether or not the container exists.
func (r *relay) repeats(p *player, n int) {
	(*r.handle.Load())(dockerx.Event{
		Type: dockerx.TypeContainer, Action: dockerx.ActionDestroy, ID: p.container(n), Time: time.Now(),
		Labels: map[string]string{naming.SandboxID: p.box(n), naming.Instance: p.store.InstanceID()},
	})
}

func (r *relay) Info(ctx context.Context) (dockerx.Info, error) {
	info, err := r.Engine.Info(ctx)
	if r.restarted.Load() {
		info.Run += "-and-another"
	}
	return info, err
}

// Two sandboxes that vanish together are judged without an operator only by the engine's report of their removal: an event of the engine's
// present life, live or replayed from its memory.
func TestOnlyRemovalsReportedInThisEngineLifeCount(t *testing.T) {
	down := func(t *testing.T, p *player, d time.Duration) {
		p.engine.Down(true)
		pass(d)
		p.engine.Down(false)
	}
	for _, c := range []struct {
		name   string
		happen func(t *testing.T, p *player, remove func(), r *relay)
		judged bool
	}{
		{"the events come as it happens: judged", func(_ *testing.T, _ *player, remove func(), _ *relay) { remove() }, true},
		{"the stream breaks before the second look, and the next one replays the events: judged", func(t *testing.T, p *player, remove func(), _ *relay) {
			remove()
			pass(200 * time.Millisecond)
			down(t, p, 2*time.Second)
		}, true},
		{"the daemon was dead for the events, and its engine still remembers them: judged", func(t *testing.T, p *player, remove func(), _ *relay) {
			if err := p.kill(); err != nil {
				t.Fatal(err)
			}
			remove()
			pass(5 * time.Second)
			p.comesBack(t)
		}, true},
		{"the daemon was dead for the events, and asks for no events as old: held", func(t *testing.T, p *player, remove func(), _ *relay) {
			if err := p.kill(); err != nil {
				t.Fatal(err)
			}
			remove()
			pass(20 * time.Second)
			p.comesBack(t)
		}, false},
		{"newer events have taken their place in the engine's memory: held", func(t *testing.T, p *player, remove func(), _ *relay) {
			if err := p.kill(); err != nil {
				t.Fatal(err)
			}
			remove()
			for n := range 300 {
				id, err := p.engine.CreateOutside(dockerx.ContainerSpec{Name: fmt.Sprint("other-", n), Image: image})
				if err != nil {
					t.Fatal(err)
				}
				p.engine.RemoveContainerOutside(id)
			}
			p.comesBack(t)
		}, false},
		{"the engine is another process before the second look: held", func(_ *testing.T, p *player, remove func(), _ *relay) {
			remove()
			pass(200 * time.Millisecond)
			p.engine.RestartEngine(true)
		}, false},
		{"the same, and the stream stays open: held", func(_ *testing.T, _ *player, remove func(), r *relay) {
			remove()
			pass(200 * time.Millisecond)
			r.restarted.Store(true)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &relay{}
			withDaemon(t, func(t *testing.T, p *player) {
				boxes := []string{p.readyBox(t), p.readyBox(t)}
				remove := func() {
					for n := range boxes {
						p.engine.RemoveContainerOutside(p.container(n))
					}
				}
				c.happen(t, p, remove, r)
				pass(5 * time.Minute)
				if !c.judged {
					p.wantHeld(t, boxes)
					return
				}
				for _, id := range boxes {
					p.wantState(t, id, failed)
				}
			}, seldom, func(cfg *controller.Config) {
				if cfg.Engine != controller.Engine(r) {
					r.Engine, cfg.Engine = cfg.Engine, r
				}
			})
		})
	}
}

// A removal event of a container that exists is no proof: neither at once, nor when the container vanishes later without an event.
func TestRemovalEventsOfContainersThatExistProveNothing(t *testing.T) {
	r := &relay{}
	withDaemon(t, func(t *testing.T, p *player) {
		boxes := []string{p.readyBox(t), p.readyBox(t)}
		for range 20 {
			for n := range boxes {
				r.repeats(p, n)
			}
			pass(time.Second)
		}
		for n, id := range boxes {
			p.wantState(t, id, ready)
			if _, exists := p.engine.Spec(p.container(n)); !exists {
				t.Errorf("the container of %s was removed", id)
			}
		}
		r.mute.Store(true)
		for n := range boxes {
			p.engine.RemoveContainerOutside(p.container(n))
		}
		pass(5 * time.Minute)
		p.wantHeld(t, boxes)
	}, func(cfg *controller.Config) {
		if cfg.Engine != controller.Engine(r) {
			r.Engine, cfg.Engine = cfg.Engine, r
		}
	})
}
