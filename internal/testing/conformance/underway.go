package conformance

import (
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// slow is a service whose health takes long, so that what waits for it can be looked at, on a busy host as well.
func (c *client) slow(takes time.Duration) *agboxv1.ServiceSpec {
	return c.service("slow", takes, "true", "sleep", "3600")
}

func creating(c *client) {
	id := c.create(required(c.slow(30 * time.Second)))
	c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_PREPARING)
	c.refused(c.tryExec(id), sandboxNotReady(id))
	c.refused(c.tryStop(id), notReady(id))
	c.refused(c.tryResume(id), notStopped(id))
	c.deletes(id)
	c.rows(c.history(id), rowAccepted, rowPreparing, rowToDelete, rowDeleted)
}

func resuming(c *client) {
	id := c.ready(required(c.slow(10 * time.Second)))
	c.stops(id)
	before := len(c.history(id))
	c.resume(id)
	c.resume(id) // under way already
	if h := c.get(id); h.GetState() != pending {
		c.Errorf("%v", h)
	}
	c.refused(c.tryExec(id), sandboxNotReady(id))
	c.refused(c.tryStop(id), notReady(id))
	c.await(id, ready)
	c.rows(c.history(id)[before:], rowAccepted, "SERVICE_READY PENDING service_name=slow", rowReady)
}

// deadService has a required and an optional service that end by themselves some time after READY, on a busy host as well.
func deadService(c *client) {
	id := c.ready(required(c.service("short", 200*time.Millisecond, "true", "sh", "-c", "sleep 15; exit 3")),
		optional(c.service("brief", 200*time.Millisecond, "true", "sh", "-c", "sleep 15; exit 3")))
	list := c.subscribe(id, 0, false).untilBoth(serviceFailed, "short", serviceFailed, "brief")
	for _, e := range list {
		if e.GetEventType() != serviceFailed {
			continue
		}
		c.serviceFailure(e, e.GetService().GetServiceName())
		if e.GetService().GetErrorCode() != "CONTAINER_DIED" || e.GetSandboxState() != ready {
			c.Errorf("%v", e)
		}
	}
	c.ended(c.exec(id, "", "true")) // it goes on without them
	c.deletes(id)
	falls := 0
	for _, e := range c.history(id) {
		if e.GetEventType() == serviceFailed {
			falls++
		}
		if e.GetEventType() == agboxv1.EventType_SANDBOX_FAILED {
			c.Errorf("%v", e)
		}
	}
	if falls != 2 {
		c.Errorf("two services fell %d times", falls)
	}
}
