package controller_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

// inBubble runs a test on its own world in a synctest bubble. No daemon runs yet.
func inBubble(t *testing.T, test func(t *testing.T, p *player)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(t.TempDir())
		defer func() {
			if err := p.close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, p)
	})
}

// withDaemon is inBubble with a daemon that is connected to the engine. Every set changes its configuration.
func withDaemon(t *testing.T, test func(t *testing.T, p *player), set ...func(*controller.Config)) {
	t.Helper()
	inBubble(t, func(t *testing.T, p *player) {
		p.cfg = func(c *controller.Config) {
			for _, s := range set {
				s(c)
			}
		}
		if err := p.start(-1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		test(t, p)
	})
}

// pass lets time pass and everything that is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// must fails the test if an act returns an error.
func (p *player) must(t *testing.T, acts ...act) {
	t.Helper()
	for _, a := range acts {
		if err := p.do(a); err != nil {
			t.Fatalf("%v: %v", a, err)
		}
	}
}

// readyBox creates the next sandbox of its world, which runs.
func (p *player) readyBox(t *testing.T) string {
	t.Helper()
	p.must(t, act{"create", 0})
	pass(time.Second)
	id := p.boxes[len(p.boxes)-1]
	p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_READY)
	return id
}

func (p *player) sandbox(t *testing.T, id string) store.Sandbox {
	t.Helper()
	sb, err := p.store.Sandbox(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func (p *player) wantState(t *testing.T, id string, want agboxv1.SandboxState) {
	t.Helper()
	if sb := p.sandbox(t, id); sb.State != want {
		t.Fatalf("%s is %s (%s %s), want %s; %q", id, sb.State, sb.ErrorCode, sb.ErrorMessage, want, p.daemon.Status(id))
	}
}

// types returns the event types of a sandbox in order, without their prefix.
func (p *player) types(t *testing.T, id string) string {
	t.Helper()
	events, err := p.store.Events(t.Context(), id, 0, 256)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range events {
		names = append(names, strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_"))
	}
	return strings.Join(names, " ")
}
