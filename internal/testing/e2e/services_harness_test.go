//go:build docker

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

const (
	serviceReady  = agboxv1.EventType_SANDBOX_SERVICE_READY
	serviceFailed = agboxv1.EventType_SANDBOX_SERVICE_FAILED
)

// web is a service that serves its own name on port 8080 and is healthy some seconds after each start.
func web(name string, seconds int) *agboxv1.ServiceSpec {
	script := fmt.Sprintf(`rm -f /tmp/ok; mkdir -p /tmp/w; echo %s >/tmp/w/name; httpd -p 8080 -h /tmp/w
		sleep %d; touch /tmp/ok; exec sleep 1000000`, name, seconds)
	return &agboxv1.ServiceSpec{
		Name: name, Image: baseImage, Command: []string{"sh", "-c", script}, Healthcheck: probe(10, "test -f /tmp/ok"),
	}
}

// probe runs each second.
func probe(retries uint32, test string) *agboxv1.HealthcheckConfig {
	return &agboxv1.HealthcheckConfig{
		Test: []string{"CMD-SHELL", test}, Retries: retries, Interval: durationpb.New(time.Second), Timeout: durationpb.New(3 * time.Second),
	}
}

// fetch reads the name that a web service serves, from inside the sandbox.
func fetch(service string) string { return "wget -qO- http://" + service + ":8080/name" }

// sandbox reads one.
func (d *daemon) sandbox(id string) *agboxv1.SandboxHandle {
	d.Helper()
	return must(d.GetSandbox(d.ctx(), &agboxv1.GetSandboxRequest{SandboxId: id}))(d).GetSandbox()
}

// rows is the history with the services' names, "SERVICE_READY(db)"; events about the services in without are left out.
func (d *daemon) rows(id string, without ...string) string {
	d.Helper()
	var rows []string
	for _, e := range d.events(id) {
		row := strings.TrimPrefix(e.GetEventType().String(), "SANDBOX_")
		if s := e.GetService(); s != nil {
			if slices.Contains(without, s.GetServiceName()) {
				continue
			}
			row += "(" + s.GetServiceName() + ")"
		}
		rows = append(rows, row)
	}
	return strings.Join(rows, " ")
}

// wantRows compares the history.
func (d *daemon) wantRows(id, want string, without ...string) {
	d.Helper()
	if got := d.rows(id, without...); got != want {
		d.Errorf("got  %s\nwant %s", got, want)
	}
}

// event is the last one of a type about a service; "" is the sandbox. There must be one.
func (d *daemon) event(id string, kind agboxv1.EventType, service string) *agboxv1.SandboxEvent {
	d.Helper()
	var last *agboxv1.SandboxEvent
	for _, e := range d.events(id) {
		if e.GetEventType() == kind && e.GetService().GetServiceName() == service {
			last = e
		}
	}
	if last == nil {
		d.Fatalf("there is no %s(%s): %s", kind, service, d.rows(id))
	}
	return last
}

// awaitEvent waits for the nth event of a type about a service.
func (d *daemon) awaitEvent(id string, nth int, kind agboxv1.EventType, service string) {
	d.Helper()
	d.eventually(fmt.Sprintf("%s(%s)", kind, service), func() error {
		n := 0
		for _, e := range d.events(id) {
			if e.GetEventType() == kind && e.GetService().GetServiceName() == service {
				n++
			}
		}
		if n < nth {
			return fmt.Errorf("%s; %s", d.rows(id), d.sandbox(id).GetStatusMessage())
		}
		return nil
	})
}

// service returns the status of one.
func (d *daemon) service(id, name string) *agboxv1.ServiceStatus {
	d.Helper()
	for _, s := range d.sandbox(id).GetServices() {
		if s.GetName() == name {
			return s
		}
	}
	d.Fatalf("no status of service %s", name)
	return nil
}

// inspected is what the tests need of a container.
type inspected struct {
	ID      string `json:"Id"`
	Created time.Time
	State   struct {
		Pid       int
		Running   bool
		StartedAt time.Time
	}
}

func (d *daemon) inspect(container string) inspected {
	d.Helper()
	c := d.inspectIfThere(container)
	if c.ID == "" {
		d.Fatalf("there is no container %s", container)
	}
	return c
}

// inspectIfThere returns nothing of a container that is not there.
func (d *daemon) inspectIfThere(container string) (c inspected) {
	_ = json.Unmarshal([]byte(d.docker("inspect", "-f", "{{json .}}", container)), &c)
	return c
}

// failsWith waits for FAILED and checks why.
func (d *daemon) failsWith(id, code string, parts ...string) {
	d.Helper()
	d.await(id, failed)
	sb := d.sandbox(id)
	for _, part := range parts {
		if sb.GetErrorCode() != code || !strings.Contains(sb.GetErrorMessage(), part) {
			d.Errorf("%s %s; want %s and %q", sb.GetErrorCode(), sb.GetErrorMessage(), code, part)
		}
	}
}

// engineHolds lists the containers and networks of a sandbox.
func (d *daemon) engineHolds(id string) (containers, networks []string) {
	label := "label=" + naming.SandboxID + "=" + id
	return strings.Fields(d.docker("ps", "-aq", "--filter", label)), strings.Fields(d.docker("network", "ls", "-q", "--filter", label))
}

// awaitNothing waits until Docker holds nothing of a sandbox.
func (d *daemon) awaitNothing(id string) {
	d.Helper()
	d.eventually("Docker holds nothing of "+id, func() error {
		if c, n := d.engineHolds(id); len(c)+len(n) > 0 {
			return fmt.Errorf("containers %v, networks %v", c, n)
		}
		return nil
	})
}

// logDir is where the logs of a sandbox are.
func (d *daemon) logDir(id string) string {
	return filepath.Join(d.home, "data/agents-sandbox/exec-logs", id)
}

// resume asks for it and waits.
func (d *daemon) resume(id string) {
	d.Helper()
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id}))(d)
	d.await(id, ready)
}

// halt stops a sandbox and waits.
func (d *daemon) halt(id string) {
	d.Helper()
	d.stopBox(id)
	d.await(id, stopped)
}
