package controller

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
		c.sandboxLoop.Forget(id)
	}
	c.execs.RetryAll()
	c.agents.EnqueueAll()
	c.askResync()
}
