//go:build docker

package e2e

import (
	"errors"
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

// With a main process the exit code says nothing: what PID 1 noted does.
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

func TestARecoverWithoutARequiredServiceIsRefused(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "", "")
	id := d.create(&agboxv1.CreateSpec{
		Image: baseImage,
		RequiredServices: []*agboxv1.ServiceSpec{{
			Name: "db", Image: baseImage, Command: []string{"sleep", "100000"},
			Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}, Interval: durationpb.New(1e9)},
		}},
	})
	d.await(id, ready)
	d.docker("kill", naming.Primary(id))
	d.await(id, failed)
	d.docker("rm", "-f", naming.Service(id, "db"))
	_, err := d.ResumeSandbox(d.ctx(), &agboxv1.ResumeSandboxRequest{SandboxId: id, Recover: true})
	if !isCode(err, codes.FailedPrecondition) || !strings.Contains(err.Error(), "required service db is missing") {
		t.Errorf("%v", err)
	}
	d.remove(id)
}
