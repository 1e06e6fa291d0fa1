package controller

// noRoom returns why the disk is full, in one sentence; empty: it is not.
func (c *Controller) noRoom() string {
	if c.cfg.NoRoom == nil {
		return ""
	}
	return c.cfg.NoRoom()
}

// RoomReturned requeues every key that may have failed because the disk was full, and resets its backoff.
func (c *Controller) RoomReturned() {
	for _, id := range c.cfg.Store.LiveIDs() {
		c.sandboxLoop.Forget(id)
	}
	c.execs.RetryAll()
	c.agents.EnqueueAll()
	c.askResync()
}
