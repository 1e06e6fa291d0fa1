package conformance

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// The rows of a plain sandbox's life.
const (
	rowAccepted  = "ACCEPTED PENDING"
	rowPreparing = "PREPARING PENDING phase=materialize"
	rowReady     = "READY READY"
	rowToStop    = "STOP_REQUESTED READY reason=stop_requested"
	rowStopped   = "STOPPED STOPPED reason=stop_requested"
	rowToDelete  = "DELETE_REQUESTED DELETING reason=delete_requested"
	rowDeleted   = "DELETED DELETED reason=delete_requested"
)

func events(t *testing.T, c *client) {
	c.sub(t, "create, stop, resume, delete; all of it can be read afterwards", func(c *client) {
		id := c.ready()
		c.stops(id)
		c.resumes(id)
		c.deletes(id)
		c.rows(c.history(id), rowAccepted, rowPreparing, rowReady, rowToStop, rowStopped, rowAccepted, rowReady, rowToDelete, rowDeleted)
	})
	c.sub(t, "a stop shows only when it is done, and a second one leaves no event", stopUnderWay)
	c.sub(t, "a delete during a create ends in DELETED", func(c *client) {
		id := c.create()
		c.deletes(id)
		for _, e := range c.history(id) {
			if e.GetEventType() == agboxv1.EventType_SANDBOX_FAILED {
				c.Errorf("%v", e)
			}
		}
	})
	c.sub(t, "an idle sandbox stops, but not while an exec runs", idleStop)
	c.sub(t, "what ends a sandbox", func(c *client) {
		for _, row := range []struct {
			damage Damage
			code   string
		}{{KillPrimary, "CONTAINER_DIED"}, {RemovePrimary, "CONTAINER_MISSING"}, {RemoveNetwork, "NETWORK_MISSING"}} {
			c.broken(row.damage, row.code)
		}
	})
	c.sub(t, "out of memory is named", func(c *client) {
		c.limits()
		id := c.ready(glutton)
		c.daemon.Break(c, id, StarvePrimary)
		c.failsWith(id, "CONTAINER_OOM", "memory")
		c.rows(c.history(id), rowAccepted, rowPreparing, rowReady, "FAILED FAILED error_code=CONTAINER_OOM")
	})
	c.sub(t, "a create that can't be", func(c *client) {
		id := c.create(func(s *spec) { s.Image, s.PullPolicy = c.target.MissingImage, "never" })
		c.failsWith(id, "SANDBOX_CREATE_FAILED", c.target.MissingImage)
		c.rows(c.history(id), rowAccepted, rowPreparing, "FAILED FAILED error_code=SANDBOX_CREATE_FAILED")
		c.sentence("error_message", c.get(id).GetErrorMessage())
	})
	c.sub(t, "a resume never recreates anything", func(c *client) {
		id := c.ready()
		c.stops(id)
		c.daemon.Break(c, id, RemovePrimary)
		_ = c.tryResume(id) // refused when the daemon has found out already
		c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_FAILED)
		if h := c.get(id); h.GetErrorCode() != "SANDBOX_RESUME_FAILED" && h.GetErrorCode() != "CONTAINER_MISSING" {
			c.Errorf("%s %s", h.GetErrorCode(), h.GetErrorMessage())
		}
	})
}

// glutFile lies in a container of a real engine and nowhere else.
const glutFile = "/tmp/agbox-conformance-glut"

// glutton makes a sandbox whose main process wants much memory as soon as glutFile is there.
func glutton(s *spec) {
	s.MemoryLimit = "32MiB"
	s.Command = []string{"sh", "-c", "until [ -e " + glutFile + " ]; do sleep 0.1; done; x=$(yes | head -c 200000000); echo ${#x}"}
}

// stopUnderWay has an exec that does not care about TERM hold up a stop for the grace period.
func stopUnderWay(c *client) {
	id := c.ready()
	x := newID()
	c.stubborn(id, x)
	c.must(c.tryStop(id))
	if h := c.get(id); h.GetState() != ready && h.GetState() != stopped {
		c.Errorf("state is %s", h.GetState())
	}
	c.must(c.tryStop(id))
	c.refused(c.tryExec(id), sandboxNotReady(id))
	c.refused(c.tryPause(id), notReady(id))
	c.refused(errOf(c.trySet(id, after(time.Hour))), notRunning(id))
	c.refused(c.tryResume(id), notStopped(id))
	c.await(id, stopped)
	c.rows(c.history(id), rowAccepted, rowPreparing, rowReady, started(x),
		"STOP_REQUESTED READY reason=stop_requested", "EXEC_CANCELLED - exec_id="+x+" exec_state=CANCELLED exit_code=137",
		"STOPPED STOPPED reason=stop_requested")
}

func idleStop(c *client) {
	x := newID()
	id := c.ready(func(s *spec) { s.IdleTtl = durationpb.New(time.Second) })
	if c.tryExecID(id, x, "sleep", "2") != nil { // this machine slept for a second
		c.await(id, stopped)
		c.resumes(id)
		c.must(c.tryExecID(id, x, "sleep", "2"))
	}
	c.await(id, stopped)
	list := c.history(id)
	c.rows(list[len(list)-4:], started(x),
		"EXEC_FINISHED - exec_id="+x+" exec_state=FINISHED exit_code=0",
		"STOP_REQUESTED READY reason=idle_ttl", "STOPPED STOPPED reason=idle_ttl")
}

// broken checks that damage to a READY sandbox makes it FAILED, once, and that its record can be deleted.
func (c *client) broken(damage Damage, code string) {
	c.Helper()
	id := c.ready()
	c.daemon.Break(c, id, damage)
	c.subscribe(id, 3, false).until(agboxv1.EventType_SANDBOX_FAILED)
	h := c.get(id)
	if h.GetState() != failed || h.GetErrorCode() != code {
		c.Errorf("%s: %s %s", damage, h.GetErrorCode(), h.GetErrorMessage())
	}
	c.sentence("error_message", h.GetErrorMessage())
	list := c.history(id)
	c.rows(list, rowAccepted, rowPreparing, rowReady, "FAILED FAILED error_code="+code)
	if text := list[len(list)-1].GetSandboxPhase().GetErrorMessage(); text != h.GetErrorMessage() {
		c.Errorf("the event says %q, the handle %q", text, h.GetErrorMessage())
	}
	c.must(c.tryDelete(id))
	c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_DELETED)
}
