package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// service runs a command in the target's image. Its first probe comes after interval.
func (c *client) service(name string, interval time.Duration, probe string, command ...string) *agboxv1.ServiceSpec {
	return &agboxv1.ServiceSpec{
		Name: name, Image: c.target.Image, Command: command,
		Healthcheck: &agboxv1.HealthcheckConfig{
			Test: []string{"CMD-SHELL", probe}, Interval: durationpb.New(interval), Timeout: durationpb.New(5 * time.Second), Retries: 1,
		},
	}
}

// well returns a service that gets healthy. How long that may take grows with the retries, which are for busy hosts.
func (c *client) well(name string) *agboxv1.ServiceSpec {
	s := c.service(name, 200*time.Millisecond, "true", "sleep", "3600")
	s.Healthcheck.Retries = 10
	return s
}

func required(list ...*agboxv1.ServiceSpec) func(*spec) {
	return func(s *spec) { s.RequiredServices = list }
}

func optional(list ...*agboxv1.ServiceSpec) func(*spec) {
	return func(s *spec) { s.OptionalServices = list }
}

const (
	serviceReady  = agboxv1.EventType_SANDBOX_SERVICE_READY
	serviceFailed = agboxv1.EventType_SANDBOX_SERVICE_FAILED
)

func services(t *testing.T, c *client) {
	c.sub(t, "required services are ready one after another, before the sandbox, on create and on resume", requiredServices)
	c.sub(t, "optional services do not hold the sandbox up", optionalServices)
	c.sub(t, "a required service that never gets healthy fails the create", func(c *client) {
		id := c.create(required(c.well("one"), c.service("two", 200*time.Millisecond, "false", "sleep", "3600"), c.well("three")))
		c.failsWith(id, "SANDBOX_CREATE_FAILED", "two")
		c.rows(c.history(id), rowAccepted, rowPreparing, "SERVICE_READY PENDING service_name=one",
			"SERVICE_FAILED PENDING service_name=two error_code=SANDBOX_SERVICE_FAILED", "FAILED FAILED error_code=SANDBOX_CREATE_FAILED")
	})
	c.sub(t, "hooks run in the primary, in order, before READY", hooks)
	c.sub(t, "a hook that fails fails the create and says what it printed", func(c *client) {
		db := c.well("db")
		db.PostStartOnPrimary = []string{"echo some words; exit 3"}
		c.failsWith(c.create(required(db)), "SANDBOX_CREATE_FAILED", "some words")
	})
	c.sub(t, "the death of a service after READY is one event, and the sandbox stays", deadService)
	c.sub(t, "while a create waits for a service", creating)
	c.sub(t, "while a resume waits for a service", resuming)
}

func requiredServices(c *client) {
	id := c.ready(required(c.well("one"), c.well("two"), c.well("three")))
	up := []string{
		"SERVICE_READY PENDING service_name=one", "SERVICE_READY PENDING service_name=two", "SERVICE_READY PENDING service_name=three", rowReady,
	}
	c.rows(c.history(id), append([]string{rowAccepted, rowPreparing}, up...)...)
	var names []string
	for _, s := range c.get(id).GetRequiredServices() {
		names = append(names, s.GetName())
	}
	if !slices.Equal(names, []string{"one", "two", "three"}) {
		c.Errorf("the handle has %q", names)
	}
	before := len(c.history(id))
	c.stops(id)
	c.resumes(id)
	c.rows(c.history(id)[before:], append([]string{rowToStop, rowStopped, rowAccepted}, up...)...)
}

func optionalServices(c *client) {
	slow := c.slow(10 * time.Second)
	ill := c.service("ill", 200*time.Millisecond, "false", "sleep", "3600")
	id := c.ready(required(c.well("db")), optional(slow, ill))
	list := c.subscribe(id, 0, false).untilBoth(serviceFailed, "ill", serviceReady, "slow")
	var readyAt, slowAt int
	for i, e := range list {
		switch {
		case e.GetEventType() == agboxv1.EventType_SANDBOX_READY:
			readyAt = i
		case e.GetService().GetServiceName() == "slow":
			slowAt = i
			if e.GetSandboxState() != ready {
				c.Errorf("a late one: %v", e)
			}
		case e.GetEventType() == serviceFailed:
			c.serviceFailure(e, "ill")
		}
	}
	if slowAt < readyAt {
		c.Errorf("READY waited for an optional service: %v", list)
	}
	if h := c.get(id); h.GetState() != ready || len(h.GetOptionalServices()) != 2 || len(h.GetRequiredServices()) != 1 {
		c.Errorf("%v", h)
	}
}

// untilBoth returns all events until both services had theirs.
func (s *stream) untilBoth(t1 agboxv1.EventType, service1 string, t2 agboxv1.EventType, service2 string) []*event {
	s.Helper()
	var list []*event
	for one, two := false, false; !one || !two; {
		e := s.next()
		list = append(list, e)
		one = one || e.GetEventType() == t1 && e.GetService().GetServiceName() == service1
		two = two || e.GetEventType() == t2 && e.GetService().GetServiceName() == service2
	}
	return list
}

// serviceFailure checks the details of a SANDBOX_SERVICE_FAILED.
func (c *client) serviceFailure(e *event, name string) {
	c.Helper()
	d := e.GetService()
	if d.GetServiceName() != name || !slices.Contains([]string{"SANDBOX_SERVICE_FAILED", "CONTAINER_DIED", "CONTAINER_OOM"}, d.GetErrorCode()) {
		c.Errorf("%v", e)
	}
	c.sentence("error_message", d.GetErrorMessage())
	if s := e.GetSandboxState(); s != pending && s != ready {
		c.Errorf("the state is %s, not as it was", s)
	}
}

// failsWith waits for FAILED and checks that the message has a part.
func (c *client) failsWith(id, code, part string) {
	c.Helper()
	list := c.subscribe(id, 0, false).until(agboxv1.EventType_SANDBOX_FAILED)
	d := list[len(list)-1].GetSandboxPhase()
	if d.GetErrorCode() != code || !strings.Contains(d.GetErrorMessage(), part) {
		c.Errorf("%v, want %s with %q", d, code, part)
	}
}

func hooks(c *client) {
	one, two := c.well("one"), c.well("two")
	file := "/tmp/" + newID()
	one.Envs = map[string]string{"WHO": "one"}
	one.PostStartOnPrimary = []string{"echo $WHO >>" + file, "echo again >>" + file}
	two.PostStartOnPrimary = []string{"echo two >>" + file}
	id := c.ready(required(one, two))
	for _, e := range c.history(id) {
		if e.GetExec() != nil {
			c.Errorf("a hook is no exec of the client's: %v", e)
		}
	}
	want := "one\nagain\ntwo\n"
	c.prints(id, want, "cat", file)
	c.stops(id)
	c.resumes(id)
	c.prints(id, want, "cat", file) // a resume does not repeat them
	c.ended(c.exec(id, "", "rm", file))
}

func (c *client) prints(sandbox, want string, command ...string) {
	c.Helper()
	resp := c.execRequest(&agboxv1.CreateExecRequest{SandboxId: sandbox, Command: command})
	c.ended(resp.GetExecId())
	c.holds(resp.GetStdoutLogPath(), want)
}

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
	c.refused(c.tryPause(id), notReady(id))
	c.sets(id, after(time.Hour))
	c.deletes(id)
	c.rows(c.history(id), rowAccepted, rowPreparing, rowToDelete, rowDeleted)
}

func resuming(c *client) {
	id := c.ready(required(c.slow(10 * time.Second)))
	c.stops(id)
	before := len(c.history(id))
	c.must(c.tryResume(id))
	c.must(c.tryResume(id)) // under way already
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
	dies := func(name string) *agboxv1.ServiceSpec {
		svc := c.service(name, 200*time.Millisecond, "true", "sh", "-c", "sleep 15; exit 3")
		svc.Healthcheck.Retries = 3 // the death ends a probe too, which must not make it unhealthy first
		return svc
	}
	id := c.ready(required(dies("short")), optional(dies("brief")))
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
