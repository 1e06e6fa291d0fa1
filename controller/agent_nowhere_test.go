package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/agbox/agbox/controller"
)

// lateStore runs before between the observation of a pass and its move.
type lateStore struct {
	controller.Store
	before func()
}

func (s *lateStore) MoveAgent(ctx context.Context, id string, version uint64) error {
	s.before()
	return s.Store.MoveAgent(ctx, id, version)
}

// TestAnAgentRestartsWhenItsDestinationIsDeleted: the agent restarts without waiting for a resync.
func TestAnAgentRestartsWhenItsDestinationIsDeleted(t *testing.T) {
	late := &lateStore{before: func() {}}
	withDaemon(t, func(t *testing.T, p *player) {
		here, there := p.readyBox(t), p.readyBox(t)
		p.newAgent(t, here, "ada", nil)
		pass(time.Second)
		late.before = func() {
			if _, err := p.store.RequestDelete(context.Background(), there, "delete_requested"); err != nil {
				t.Error(err)
			}
		}
		p.ask(t, p.moveTo(there), "ada")
		pass(5 * time.Second)
		p.wantAgent(t, "ada", agentIdle)
		if a := p.agent(t, "ada"); a.SandboxID != here || a.Status.GetIncarnation() != 2 {
			t.Errorf("it is in %s, in life %d", a.SandboxID, a.Status.GetIncarnation())
		}
	}, func(c *controller.Config) {
		late.Store = c.Store
		c.Store = late
	})
}
