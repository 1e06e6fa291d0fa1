package conformance

import (
	"testing"
	"time"
)

// aging has what needs a daemon of its own: what becomes of paused sandboxes as time goes on, and of all of it when the
// daemon is killed.
func aging(t *testing.T, c *client) {
	own(t, c.target, "past max_frozen the one paused longest is stopped, and stays paused", Settings{MaxFrozen: 1}, tooManyFrozen)
	own(t, c.target, "what is frozen for too long is stopped, and then deleted",
		Settings{FreezeDuration: time.Second, StoppedGCAfter: time.Second}, frozenTooLong)
	own(t, c.target, "a daemon that is killed forgets no pause and no end", Settings{}, outliveTheDaemon)
}

const rowDemoted = "PAUSED PAUSED reason=demoted"

// untilRow reads events up to the one that is as the table of events has it.
func (s *stream) untilRow(want string) {
	s.Helper()
	for row(s.next()) != want {
	}
}

func tooManyFrozen(c *client) {
	first, x, file := c.ready(), newID(), "/tmp/"+newID()
	c.ended(c.exec(first, "", "touch", file))
	c.exec(first, x, "sleep", "3600")
	c.pauses(first)
	since := c.get(first).GetStateChangedAt()
	second := c.paused()
	c.subscribe(first, 0, false).untilRow(rowDemoted)
	h := c.get(first)
	if h.GetState() != paused || h.GetDemotedAt() == nil || h.GetActiveExecs() != 0 || !h.GetStateChangedAt().AsTime().Equal(since.AsTime()) {
		c.Errorf("demoted: %v", h)
	}
	c.endedIn(cancelled, x)
	c.refused(c.tryPause(first), alreadyPaused(first))
	if h := c.get(second); h.GetState() != paused || h.GetDemotedAt() != nil {
		c.Errorf("the other: %v", h)
	}
	before := len(c.history(first))
	c.must(c.tryResume(first))
	if h := c.await(first, ready); h.GetDemotedAt() != nil {
		c.Errorf("resumed: %v", h)
	}
	c.allRows(c.history(first)[before:], rowAccepted, rowReady)
	c.endedIn(finished, c.exec(first, "", "rm", file)) // its file is there
}

func frozenTooLong(c *client) {
	id := c.ready()
	c.asksForPause(id) // on a busy host it is not PAUSED for long enough to be seen
	c.await(id, deleted)
	c.allRows(c.history(id)[3:], rowToPause, rowPaused, rowDemoted,
		"DELETE_REQUESTED DELETING reason=stopped_gc", "DELETED DELETED reason=stopped_gc")
}

func outliveTheDaemon(c *client) {
	frozen, running, x := c.ready(), c.ready(lasting(time.Hour, "delete")), newID()
	c.exec(frozen, x, "sleep", "3600")
	c.sets(frozen, after(2*time.Hour))
	c.pauses(frozen)
	before := []*handle{c.get(frozen), c.get(running)}
	c.daemon.Restart(c)
	c = newClient(c, c.target, c.daemon)
	c.ended(c.exec(running, "", "true"))
	for _, was := range before {
		is := c.get(was.GetSandboxId())
		if is.GetState() != was.GetState() || !is.GetStateChangedAt().AsTime().Equal(was.GetStateChangedAt().AsTime()) ||
			!is.GetDeadlineAt().AsTime().Equal(was.GetDeadlineAt().AsTime()) || is.GetOnTimeout() != was.GetOnTimeout() || is.GetDemotedAt() != nil {
			c.Errorf("was %v, is %v", was, is)
		}
	}
	c.must(c.tryResume(frozen))
	if h := c.await(frozen, ready); !h.GetDeadlineAt().AsTime().Equal(before[0].GetDeadlineAt().AsTime()) || h.GetActiveExecs() != 1 {
		c.Errorf("resumed: %v", h)
	}
	c.must(c.tryCancel(x))
	c.endedIn(cancelled, x)
	// What ran into its end while no daemon was there ends when there is one.
	c.sets(running, after(time.Second))
	c.daemon.Stop(c)
	time.Sleep(time.Second) // only time makes a deadline pass
	c.daemon.Restart(c)
	c = newClient(c, c.target, c.daemon)
	c.await(running, deleted)
	c.allRows(c.history(running)[6:], "DELETE_REQUESTED DELETING reason=timeout", "DELETED DELETED reason=timeout")
}
