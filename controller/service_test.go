package controller_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/internal/servicelog"
)

// create accepts the next sandbox of its world, with this spec.
func (p *player) create(t *testing.T, spec *agboxv1.CreateSpec) string {
	t.Helper()
	id := fmt.Sprintf("box-%d", len(p.boxes))
	p.boxes, spec.Image = append(p.boxes, id), image
	if _, err := p.store.CreateSandbox(context.Background(), id, "", spec, nil); err != nil {
		t.Fatal(err)
	}
	return id
}

// checked is a required service that becomes healthy after 3 s.
func checked(p *player, name string, hooks ...string) *agboxv1.ServiceSpec {
	p.engine.HealthBehavior = func(dockerx.ContainerSpec) (dockerx.Health, time.Duration) {
		return dockerx.HealthHealthy, 3 * time.Second
	}
	check := &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}}
	return &agboxv1.ServiceSpec{Name: name, Image: image, Healthcheck: check, PostStartOnPrimary: hooks}
}

func (p *player) named(name string) string {
	for _, c := range p.engine.Containers() {
		if c.Name == name {
			return c.ID
		}
	}
	return "none"
}

func (p *player) wantTypes(t *testing.T, id, want string) {
	t.Helper()
	if got := p.types(t, id); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The engine's death ends everything that was started, not only the part that is started again first.
func TestADeathOfTheEngineFailsNoCreateAndNoResume(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db"), checked(p, "mq")}})
		pass(4 * time.Second)
		p.engine.RestartEngine(false)
		pass(time.Minute)
		p.wantTypes(t, id, "ACCEPTED PREPARING SERVICE_READY SERVICE_READY READY")
		p.must(t, act{"stop", 0})
		pass(time.Minute)
		p.must(t, act{"resume", 0})
		pass(4 * time.Second)
		p.engine.RestartEngine(false)
		pass(time.Minute)
		p.wantState(t, id, ready)
	})
}

// The output of a probe goes into an event. It may contain the service's environment.
func TestAProbeRevealsNoSecretsOfTheService(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		db := checked(p, "db")
		db.Envs = map[string]string{"PASSWORD": "the probe"}
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}})
		pass(10 * time.Second)
		p.engine.SetHealth(p.named(naming.Service(id, "db")), dockerx.HealthUnhealthy)
		pass(time.Second)
		if m := p.sandbox(t, id).Progress.GetServices()["db"].GetErrorMessage(); !strings.HasSuffix(m, ": [redacted] says unhealthy") {
			t.Errorf("it says %q", m)
		}
	})
}

// The last lines of a service that fails a create are in its events, without its secrets; the container is gone by then.
func TestTheFailureOfAServiceQuotesItsLastOutput(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		db := checked(p, "db")
		db.Envs = map[string]string{"PASSWORD": "swordfish"}
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}})
		pass(time.Second)
		container := p.named(naming.Service(id, "db"))
		p.engine.Print(container, false, "reading the tables")
		p.engine.Print(container, true, "swordfish opens no table")
		p.engine.ExitContainer(container, 1, false)
		pass(time.Minute)
		sb := p.sandbox(t, id)
		const want = "required service db: its container exited with code 1; its output ends: reading the tables\n[redacted] opens no table"
		if sb.State != agboxv1.SandboxState_SANDBOX_STATE_FAILED || sb.ErrorMessage != want {
			t.Errorf("%s: %q", sb.State, sb.ErrorMessage)
		}
		if n := len(p.engine.Containers()); n != 0 {
			t.Errorf("%d containers are left", n)
		}
		path, problem, err := p.daemon.ServiceLog(t.Context(), id, "db")
		data, readErr := os.ReadFile(path)
		if lines := servicelog.Parse(data); err != nil || readErr != nil || problem != "" || len(lines) != 2 || string(lines[1].Text) != "swordfish opens no table\n" {
			t.Errorf("%q, %q, %v, %v", data, problem, err, readErr)
		}
		p.must(t, act{"delete", 0})
		pass(time.Minute)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the delete: %v", err)
		}
	})
}

// The engine's lists hide everything of a sandbox whose services are starting. Its network is found through the containers, which are found
// by name.
func TestALyingEngineGetsNoSecondNetwork(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db")}})
		pass(time.Second) // it is not healthy yet
		p.engine.EmptyLists(dockerx.OpListContainers, dockerx.OpListNetworks)
		pass(5 * time.Minute)
		p.engine.EmptyLists()
		pass(5 * time.Minute)
		p.wantState(t, id, ready)
		if n := len(p.engine.Networks()); n != 1 {
			t.Errorf("it has %d networks", n)
		}
	})
}
