//go:build docker

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
	"github.com/agbox/agbox/store/storetest"
)

// older is what a daemon before agboxd left behind: its database, and containers whose labels name no instance.
type older struct {
	*daemon
	db  *storetest.Older
	tag string
}

func newOlder(t *testing.T) *older {
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.conf = "[runtime]\nstop_grace = \"1s\"\nresync_interval = \"2s\"\n"
	return &older{d, storetest.NewOlder(t, d.data("ids.db"), time.Now().Add(-time.Hour)), fmt.Sprintf("older-%d-", os.Getpid())}
}

// box makes a sandbox with one service as the older daemon did, in a container that only sleeps, and returns its ID.
func (o *older) box(name string, events ...*agboxv1.SandboxEvent) string {
	o.Helper()
	id := o.tag + name
	o.db.Sandbox(id, olderSpec(), events...)
	o.containers(id, filepath.Join(o.data("exec-logs"), id))
	return id
}

func olderSpec() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image: baseImage, Labels: map[string]string{"team": "a"},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: baseImage}},
	}
}

func (o *older) containers(id, logs string) {
	o.Helper()
	if err := os.MkdirAll(logs, 0o755); err != nil {
		o.Fatal(err)
	}
	label := func(component string) []string {
		return []string{"--label", naming.SandboxID + "=" + id, "--label", naming.Component + "=" + component}
	}
	o.docker(append([]string{"network", "create", naming.Network(id)}, label(naming.ComponentNetwork)...)...)
	run := func(name string, args ...string) {
		o.Helper()
		all := append([]string{"run", "-d", "--name", name, "--network", naming.Network(id)}, args...)
		if out := o.docker(append(all, baseImage, "sleep", "100000")...); out == "" {
			o.Fatalf("docker %q made no container", all)
		}
	}
	run(naming.Primary(id), append(label(naming.ComponentPrimary), "--label", naming.UserPrefix+"team=a", "-v", logs+":/var/log/agents-sandbox")...)
	run(naming.Service(id, "db"), append(label(naming.ComponentService), "--label", naming.ServiceName+"=db", "--network-alias", "db")...)
	o.Cleanup(func() {
		filter := "label=" + naming.SandboxID + "=" + id
		o.docker(append([]string{"rm", "-fv"}, strings.Fields(o.docker("ps", "-aq", "--filter", filter))...)...)
		o.docker(append([]string{"network", "rm"}, strings.Fields(o.docker("network", "ls", "-q", "--filter", filter))...)...)
	})
}

var (
	olderReady = []*agboxv1.SandboxEvent{
		storetest.Phase(agboxv1.EventType_SANDBOX_ACCEPTED, pending, ""),
		storetest.Phase(agboxv1.EventType_SANDBOX_PREPARING, pending, "materialize"),
		storetest.Phase(agboxv1.EventType_SANDBOX_READY, ready, ""),
	}
	olderStopped = append(olderReady[:3:3],
		storetest.Phase(agboxv1.EventType_SANDBOX_STOP_REQUESTED, ready, "stop_requested"),
		storetest.Phase(agboxv1.EventType_SANDBOX_STOPPED, stopped, "stop_requested"))
)

// A user exchanges the older daemon for agboxd: nothing stops running, and everything can be seen, stopped, resumed and deleted.
func TestTheSandboxesOfAnOlderDaemonAreAdopted(t *testing.T) {
	t.Parallel()
	o := newOlder(t)
	runs, stops := o.box("runs", olderReady...), o.box("stops", olderReady...)
	sleeps := o.box("sleeps", olderStopped...)
	o.docker("stop", "-t", "0", naming.Primary(sleeps), naming.Service(sleeps, "db"))
	deletes := o.box("deletes", append(olderReady[:3:3], storetest.Phase(agboxv1.EventType_SANDBOX_DELETE_REQUESTED, agboxv1.SandboxState_SANDBOX_STATE_DELETING, "delete_requested"))...)
	unready := o.tag + "unready" // its name was taken by the sandbox of another user's daemon, whose logs are elsewhere
	o.db.Sandbox(unready, olderSpec(), append(olderReady[:2:2], storetest.Phase(agboxv1.EventType_SANDBOX_FAILED, agboxv1.SandboxState_SANDBOX_STATE_FAILED, "SANDBOX_CREATE_FAILED"))...)
	o.containers(unready, filepath.Join(o.home, "another-daemon", unready))
	o.db.Exec(runs, runs+"-x", "sleep", "1000")
	o.db.Event(runs, 4, storetest.ExecEvent(agboxv1.EventType_EXEC_STARTED, &agboxv1.ExecEventDetails{ExecId: runs + "-x", ExecState: agboxv1.ExecState_EXEC_STATE_RUNNING}))
	o.db.Close()
	before := o.docker("inspect", "-f", "{{.Id}} {{.State.StartedAt}}", naming.Primary(runs), naming.Service(runs, "db"))

	o.start()
	o.await(deletes, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	if held := o.held(deletes); held != "" {
		t.Errorf("after the delete there is still %s", held)
	}
	list := must(o.ListSandboxes(o.ctx(), &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{"team": "a"}}))(t)
	if n := len(list.GetSandboxes()); n != 4 {
		t.Errorf("%d sandboxes are listed", n)
	}
	for range 2 {
		if got, want := o.types(runs), "ACCEPTED PREPARING READY EXEC_STARTED EXEC_FAILED"; !strings.HasPrefix(got, want) { // then its service
			t.Errorf("events: %s", got)
		}
		if st := o.ended(runs + "-x"); st.GetState() != agboxv1.ExecState_EXEC_STATE_FAILED || !strings.Contains(st.GetError(), "older daemon") {
			t.Errorf("the exec that the older daemon left running: %v", st)
		}
		_, err := o.CreateExec(o.ctx(), &agboxv1.CreateExecRequest{SandboxId: runs, Command: []string{"true"}})
		if !isCode(err, codes.FailedPrecondition) || !strings.Contains(err.Error(), "has no agbox-shim") {
			t.Errorf("an exec in a container without a shim: %v", err)
		}
		o.restart()
	}
	must(o.StopSandbox(o.ctx(), &agboxv1.StopSandboxRequest{SandboxId: stops}))(t)
	o.await(stops, stopped)
	must(o.ResumeSandbox(o.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: sleeps}))(t)
	o.await(sleeps, ready)
	o.eventually("the resumed one runs with its optional service, and the stopped one does not", func() error {
		running := o.docker("inspect", "-f", "{{.State.Running}}", naming.Primary(sleeps), naming.Service(sleeps, "db"), naming.Primary(stops))
		if running != "true\ntrue\nfalse\n" {
			return fmt.Errorf("they run: %q", running)
		}
		return nil
	})
	if after := o.docker("inspect", "-f", "{{.Id}} {{.State.StartedAt}}", naming.Primary(runs), naming.Service(runs, "db")); after != before || o.state(runs) != ready {
		t.Errorf("the running sandbox is %s, with containers\n%swant\n%s", o.state(runs), after, before)
	}
	o.kill()
	o.start()
	for _, id := range []string{runs, stops, sleeps} {
		o.remove(id)
	}
	if _, err := o.DeleteSandbox(o.ctx(), &agboxv1.DeleteSandboxRequest{SandboxId: unready}); err != nil {
		t.Error(err)
	}
	o.await(unready, agboxv1.SandboxState_SANDBOX_STATE_DELETED)
	if running := o.docker("inspect", "-f", "{{.State.Running}}", naming.Primary(unready), naming.Service(unready, "db")); running != "true\ntrue\n" {
		t.Errorf("containers of another daemon run: %q", running)
	}
}

// A sandbox whose container the engine does not show is not made again, and one that dies is judged as any other.
func TestAnAdoptedSandboxIsJudgedByItsContainer(t *testing.T) {
	t.Parallel()
	o := newOlder(t)
	dies := o.box("dies", olderReady...)
	gone := o.tag + "gone"
	o.db.Sandbox(gone, &agboxv1.CreateSpec{Image: baseImage}, olderReady...)
	o.db.Close()
	o.start()
	o.await(gone, agboxv1.SandboxState_SANDBOX_STATE_FAILED)
	if sb := must(o.GetSandbox(o.ctx(), &agboxv1.GetSandboxRequest{SandboxId: gone}))(t).GetSandbox(); sb.GetErrorCode() != "CONTAINER_MISSING" {
		t.Errorf("the sandbox without a container: %v", sb)
	}
	if held := o.held(gone); held != "" && held != "logs" {
		t.Errorf("it was made again: %s", held)
	}
	o.docker("kill", naming.Primary(dies))
	o.await(dies, agboxv1.SandboxState_SANDBOX_STATE_FAILED)
	o.remove(dies)
	o.remove(gone)
}
