package controller

import (
	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/internal/agent/agentstate"
)

// noRoom says in one sentence why the disk has no room; empty when it has.
func (c *Controller) noRoom() string {
	if c.cfg.NoRoom == nil {
		return ""
	}
	return c.cfg.NoRoom()
}

// RoomReturned requeues every key that may have failed because the disk was full, and resets its back-off.
func (c *Controller) RoomReturned() {
	for _, id := range c.cfg.Store.LiveIDs() {
		c.sandboxes.Forget(id)
	}
	c.execs.RetryAll()
	c.agents.EnqueueAll()
	c.askResync()
}

// freeSpace drops the logs of execs of a sandbox that is being deleted, while the disk has no room: the
// delete removes them anyway, and may need their space. The logs of agents stay until their output is on record.
func (c *Controller) freeSpace(rec plan.Record) {
	if rec.Standing != plan.Live || rec.Desired != storev1.RunState_RUN_STATE_DELETE || c.noRoom() == "" {
		return
	}
	freed, err := c.cfg.Execs.DropLogs(rec.ID, func(execID string) bool {
		_, _, agent := agentstate.OfExec(execID)
		return agent
	})
	switch {
	case err != nil:
		c.log.Warn("logs of a sandbox that is being deleted are not dropped yet", "sandbox_id", rec.ID, "err", err)
	case freed > 0:
		c.log.Warn("the disk is full: logs of a sandbox that is being deleted are dropped", "sandbox_id", rec.ID, "bytes", freed)
	}
}
