package controller_test

import (
	"os"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/internal/host/execjournal"
)

// A primary that has not been started may be pruned. The next one gets the files too.
func TestFilesAreCopiedIntoTheNextPrimaryToo(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		if err := os.WriteFile(p.dir+"/file", []byte("copied"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.engine.TakePort(80, "tcp", true)
		id := p.create(t, &agboxv1.CreateSpec{
			Copies: []*agboxv1.CopySpec{{Source: p.dir + "/file", Target: "/data/file"}},
			Ports:  []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 80}},
		})
		pass(10 * time.Second)
		p.engine.RemoveContainerOutside(p.container(0))
		p.engine.TakePort(80, "tcp", false)
		pass(time.Minute)
		p.wantState(t, id, ready)
		if data, _ := p.engine.File(p.container(0), "/data/file"); string(data) != "copied" {
			t.Errorf("the file holds %q", data)
		}
	})
}

// deafExecs drop requests for a start, or for an end: they simulate a container that ignores both.
type deafExecs struct {
	controller.Execs
	start, cancel bool
}

func (e *deafExecs) Start(sandboxID string, r execjournal.Request) error {
	if e.start {
		return nil
	}
	return e.Execs.Start(sandboxID, r)
}

func (e *deafExecs) Cancel(sandboxID, execID, nonce string) error {
	if e.cancel {
		return nil
	}
	return e.Execs.Cancel(sandboxID, execID, nonce)
}

// A hook cannot hold its create forever, whatever its container does.
func TestAHookThatNeverStartsOrNeverEndsFailsTheCreate(t *testing.T) {
	for _, deaf := range []deafExecs{{start: true}, {cancel: true}} {
		withDaemon(t, func(t *testing.T, p *player) {
			id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db", "sleep 9999999 0")}})
			pass(time.Minute)
			p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_PENDING)
			if deaf.cancel { // the next daemon finds it running
				if err := p.restart(-1); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
			}
			pass(time.Minute)
			p.wantState(t, id, failed)
			if sb := p.sandbox(t, id); !strings.Contains(sb.ErrorMessage, "hook_timeout") {
				t.Errorf("it says %q", sb.ErrorMessage)
			}
			if n := len(p.engine.Containers()); n != 0 {
				t.Errorf("%d containers are left", n)
			}
		}, func(c *controller.Config) { deaf.Execs = c.Execs; c.Execs = &deaf })
	}
}

// A hook that docker stop ended does not run again, so the create fails; its error must not blame the hook's timeout.
func TestAStopFromOutsideAmidAHookFailsTheCreateAndSaysSo(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		id := p.create(t, &agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{checked(p, "db", "sleep 20000 0")}})
		pass(10 * time.Second)
		p.wantState(t, id, agboxv1.SandboxState_SANDBOX_STATE_PENDING)
		if err := p.engine.StopOutside(p.container(0), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantState(t, id, failed)
		if sb := p.sandbox(t, id); !strings.Contains(sb.ErrorMessage, "stopped from outside") || strings.Contains(sb.ErrorMessage, "hook_timeout") {
			t.Errorf("it says %q", sb.ErrorMessage)
		}
		if n := len(p.engine.Containers()); n != 0 {
			t.Errorf("%d containers are left", n)
		}
	})
}
