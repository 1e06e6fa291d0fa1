//go:build docker

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/host/naming"
)

// bringBack resumes as `agbox resume` does.
func (d *daemon) bringBack(id string) {
	d.Helper()
	must(d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id, Recover: true}))(d)
	d.await(id, ready)
}

func TestFailedSandboxesAreBroughtBack(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"2s\"\n")
	for name, c := range map[string]struct {
		harm func(id string)
		code string
	}{
		"killed":          {func(id string) { d.docker("kill", naming.Primary(id)) }, "CONTAINER_DIED"},
		"network removed": {d.removeNetwork, "NETWORK_MISSING"},
	} {
		id := d.create(nil)
		d.await(id, ready)
		d.sh(id, "echo kept >/workspace/note")
		c.harm(id)
		d.await(id, failed)
		if code := d.errorCode(id); code != c.code {
			t.Errorf("%s: it failed with %s", name, code)
		}
		_, err := d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id})
		if !isCode(err, codes.FailedPrecondition) || !strings.Contains(err.Error(), "is not stopped") {
			t.Errorf("%s: an older client's resume: %v", name, err)
		}
		d.bringBack(id)
		if got := d.sh(id, "cat /workspace/note; ls /sys/class/net"); !strings.HasPrefix(got, "kept\n") || !strings.Contains(got, "eth0") {
			t.Errorf("%s: %q", name, got)
		}
		d.stopBox(id)
		d.await(id, stopped)
		d.docker("network", "rm", naming.Network(id)) // as docker network prune does
		d.bringBack(id)
		d.remove(id)
	}
}

func TestWhatOthersDoToAContainerIsNoFailure(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"1h\"\n")
	id := d.create(nil)
	d.await(id, ready)
	d.docker("network", "disconnect", naming.Network(id), naming.Primary(id))
	lost := time.Now()
	d.eventually("the engine's event has it connected again", func() error {
		if !strings.Contains(d.docker("inspect", "-f", "{{json .NetworkSettings.Networks}}", naming.Primary(id)), naming.Network(id)) {
			return errors.New("it is on no network")
		}
		return nil
	})
	t.Logf("connected again after %s", time.Since(lost).Round(time.Millisecond))
	d.docker("rename", naming.Primary(id), "somebody-elses-idea-"+id)
	d.restart()
	d.sh(id, "true")
	d.stopBox(id)
	d.await(id, stopped)
	d.bringBack(id)
	d.docker("stop", "somebody-elses-idea-"+id)
	d.await(id, stopped)
	if types := d.types(id); strings.Contains(types, "SANDBOX_FAILED") || !strings.HasSuffix(types, "STOP_REQUESTED STOPPED") {
		t.Errorf("%s", types)
	}
	d.bringBack(id)
	d.sh(id, "true")
	d.remove(id)
}

// With a main process the exit code proves nothing: what PID 1 recorded does.
func TestDockerStopOfAMainProcessIsAStop(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{
		Image: baseImage, Command: []string{"sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.1; done"}, RestartPolicy: "always",
	})
	d.await(id, ready)
	d.docker("stop", naming.Primary(id))
	d.await(id, stopped)
	d.remove(id)
}

// A sandbox whose memory was used up is started again: its files are there, and its execs have their true ends.
func TestASandboxThatFailedOutOfMemoryIsRecovered(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{
		Image: baseImage, MemoryLimit: "32m",
		Command: []string{"sh", "-c", "test -e /workspace/note || until test -e /workspace/go; do sleep 0.1; done; " +
			"test -e /workspace/again && exec sleep 1000; touch /workspace/again; exec tail /dev/zero"},
	})
	d.await(id, ready)
	d.sh(id, "echo kept >/workspace/note")
	x := d.exec(id, "sh", "-c", "touch /workspace/go; sleep 1000")
	d.await(id, failed)
	if code := d.errorCode(id); code != "CONTAINER_OOM" {
		t.Errorf("it failed with %s", code)
	}
	if st := d.ended(x.GetExecId()); st.GetState() == finished || st.GetExitCode() == 0 {
		t.Errorf("the exec beside it: %v", st)
	}
	d.wantResume(id, "start-container "+naming.Primary(id)+" (resume)")
	d.bringBack(id)
	if got := d.sh(id, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("after the resume: %q", got)
	}
	d.stopBox(id)
	d.await(id, stopped)
	d.bringBack(id)
	d.remove(id)
}

// withDB is a spec with a required service, whose hook ran once for each sandbox.
func withDB() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image: baseImage,
		RequiredServices: []*agboxv1.ServiceSpec{{
			Name: "db", Image: baseImage, Command: []string{"sh", "-c", "trap exit TERM; echo run >>/runs; while :; do sleep 0.1; done"},
			Healthcheck:        &agboxv1.HealthcheckConfig{Test: []string{"CMD", "test", "-s", "/runs"}, Interval: durationpb.New(1e9)},
			PostStartOnPrimary: []string{"echo hook >>/workspace/hooks"},
		}},
	}
}

// A failed sandbox with services: a resume starts the same containers again, on a new network where the old one is gone, and finds the
// service by its name. It runs no hook.
func TestAFailedSandboxWithServicesIsBroughtBack(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "[runtime]\nresync_interval = \"2s\"\n")
	id := d.create(withDB())
	d.await(id, ready)
	containers := func() string {
		return d.docker("inspect", "-f", "{{.Id}}", naming.Primary(id)) + d.docker("inspect", "-f", "{{.Id}}", naming.Service(id, "db"))
	}
	were := containers()
	for n, harm := range []func(){
		func() { d.docker("kill", naming.Primary(id)) },
		func() { d.removeNetwork(id) },
		func() { d.docker("kill", naming.Primary(id), naming.Service(id, "db")) },
	} {
		harm()
		d.await(id, failed)
		d.eventually("what the failure left running is stopped", func() error {
			if running := d.docker("ps", "-q", "--filter", "name="+id); running != "" {
				return errors.New(running + " still runs")
			}
			return nil
		})
		d.wantResume(id, "start-container "+naming.Service(id, "db")+" (resume)")
		d.bringBack(id)
		if now := containers(); now != were {
			t.Errorf("harm %d: other containers than before", n)
		}
		if got := d.sh(id, "nslookup db >/dev/null && cat /workspace/hooks"); got != "hook\n" {
			t.Errorf("harm %d: %q", n, got)
		}
	}
	d.remove(id)
}

func TestARecoverWithoutARequiredServiceIsRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(withDB())
	d.await(id, ready)
	d.docker("kill", naming.Primary(id))
	d.await(id, failed)
	d.docker("rm", "-f", naming.Service(id, "db"))
	const missing = "the container of the required service db is missing"
	e := must(d.admin().Explain(d.ctx(), &agboxv1.ExplainRequest{SandboxId: id}))(t)
	if !strings.HasPrefix(e.GetResumeRefusal(), missing) || len(e.GetResumeSteps()) > 0 {
		t.Errorf("explained as %q, refused for %q", e.GetResumeSteps(), e.GetResumeRefusal())
	}
	_, err := d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id, Recover: true})
	if !isCode(err, codes.FailedPrecondition) || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v", err)
	}
	if s := d.state(id); s != failed {
		t.Errorf("after the refusal it is %s", s)
	}
	d.remove(id)
}

// wantResume asserts that explain lists a step of a resume.
func (d *daemon) wantResume(id, step string) {
	d.Helper()
	e := must(d.admin().Explain(d.ctx(), &agboxv1.ExplainRequest{SandboxId: id}))(d)
	if !slices.Contains(e.GetResumeSteps(), step) || e.GetResumeRefusal() != "" {
		d.Errorf("explained as %q, refused for %q; want %q", e.GetResumeSteps(), e.GetResumeRefusal(), step)
	}
}
