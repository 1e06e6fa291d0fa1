package recovery

import (
	"strings"
	"testing"
	"time"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

var (
	now   = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	nonce = strings.Repeat("a", 32)
	ours  = "11111111-1111-4111-8111-111111111111"
	run   = &storev1.EngineRun{BootId: "boot", EngineStart: "start"}
)

const boxID = "box-1"

func spec() *agboxv1.CreateSpec {
	return &agboxv1.CreateSpec{
		Image: "base:1", Envs: map[string]string{"TOKEN": "secret"}, Labels: map[string]string{"team": "x"}, MemoryLimit: "512MiB",
		RequiredServices: []*agboxv1.ServiceSpec{{
			Name: "db", Image: "db:1", Envs: map[string]string{"PASSWORD": "hunter2"}, PostStartOnPrimary: []string{"migrate", "seed"},
			Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}},
		}},
	}
}

func labels(s *agboxv1.CreateSpec, component, instance string) map[string]string {
	l := map[string]string{
		naming.SandboxID: boxID, naming.Component: component, naming.Instance: instance, naming.SpecHash: plan.SpecHash(s),
	}
	for k, v := range s.GetLabels() {
		l[naming.UserPrefix+k] = v
	}
	return l
}

// running is the running primary of spec() as the engine shows it.
func running(t testing.TB, s *agboxv1.CreateSpec) dockerx.ContainerDetail {
	t.Helper()
	l := labels(s, naming.ComponentPrimary, ours)
	label, err := plan.SpecLabel(s)
	if err != nil {
		t.Fatal(err)
	}
	l[naming.Spec], l[naming.Template] = label, s.GetImage()
	return dockerx.ContainerDetail{
		Container: dockerx.Container{
			ID: strings.Repeat("c", 64), Name: naming.Primary(boxID), Labels: l, State: dockerx.StateRunning, Created: now.Add(-time.Hour),
		},
		Running: true, StartedAt: now.Add(-50 * time.Minute), ImageRef: s.GetImage(), Image: "sha256:base",
		Entrypoint: []string{execjournal.ContainerShim, "init", "--gated", "--default-user="}, WorkingDir: plan.WorkingDir, User: "0:0",
		Env: []string{"HOST_UID=0", "HOST_GID=0", "TOKEN=secret", "PATH=/bin"}, Hostname: "my-box", Runtime: "runc",
		Limits: dockerx.Limits{MemoryBytes: 512 << 20, Pids: 4096},
		Mounts: []dockerx.Mount{
			{Source: "/shim", Target: "/run/agbox/bin"}, {Source: "/logs", Target: execjournal.ContainerLogs, Writable: true},
			{Source: "/data/s/1/ctl", Target: execjournal.ContainerCtl}, {Source: "/data/s/1/out", Target: execjournal.ContainerOut, Writable: true},
		},
	}
}

func service(s *agboxv1.CreateSpec) dockerx.ContainerDetail {
	l := labels(s, naming.ComponentService, ours)
	l[naming.ServiceName], l[naming.Template] = "db", "db:1"
	return dockerx.ContainerDetail{
		Container: dockerx.Container{
			ID: strings.Repeat("d", 64), Name: naming.Service(boxID, "db"), Labels: l, State: dockerx.StateRunning,
			Created: now.Add(-time.Hour), Health: dockerx.HealthHealthy,
		},
		Running: true, StartedAt: now.Add(-55 * time.Minute), Image: "sha256:db", ImageRef: "db:1",
		Env: []string{"HOST_UID=0", "HOST_GID=0", "PASSWORD=hunter2", "PATH=/bin"}, Limits: dockerx.Limits{Pids: 4096},
	}
}

func ended(id string, code int, at time.Time) execjournal.Trace {
	return execjournal.Trace{ExecID: id, Journal: &execjournal.Journal{
		Version: 1, ExecID: id, Nonce: nonce, State: execjournal.StateEnded, ExitCode: code,
		StartedAtNanos: at.Add(-time.Second).UnixNano(), EndedAtNanos: at.UnixNano(),
	}}
}

// found is a healthy, running sandbox whose hooks have run.
func found(t testing.TB) Found {
	t.Helper()
	s := spec()
	return Found{
		ID: boxID, Ctl: "/data/s/1/ctl", RunDir: true, Released: true,
		Containers: []dockerx.ContainerDetail{running(t, s), service(s)},
		Networks:   []dockerx.Network{{ID: "net", Name: naming.Network(boxID), Labels: labels(s, naming.ComponentNetwork, ours)}},
		Traces:     []execjournal.Trace{ended("_hook.0", 0, now.Add(-49*time.Minute)), ended("_hook.1", 0, now.Add(-48*time.Minute))},
	}
}

func input(f ...Found) Input {
	return Input{Instance: ours, Found: f, Settings: Settings{Timeout: time.Hour, PidsLimit: 4096, EngineRun: run}}
}

// one returns the only sandbox of a plan.
func one(t testing.TB, in Input) Sandbox {
	t.Helper()
	out := Plan(in, now)
	if len(out.Sandboxes) != 1 {
		t.Fatalf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
	return out.Sandboxes[0]
}
