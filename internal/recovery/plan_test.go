package recovery

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

func TestSpecIsReadFromTheLabelAndSecretsFromContainers(t *testing.T) {
	got := one(t, input(found(t)))
	if !proto.Equal(got.Record.GetSpec(), spec()) || got.Source != FromLabels || got.Record.GetDesired().GetName() != "my-box" {
		t.Errorf("from %s: %v", got.Source, got.Record)
	}
	if slices.ContainsFunc(got.Defaulted, func(f string) bool { return strings.Contains(f, "env") || f == "spec" || f == "name" }) {
		t.Errorf("defaulted %v", got.Defaulted)
	}
}

func TestFieldsMissingInTheLabelAreDefaulted(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*Found)
	}{
		{"envs", func(f *Found) { f.Containers[0].Env = nil }},
		{"services[db].envs", func(f *Found) { f.Containers = f.Containers[:1] }},
		{"spec", func(f *Found) { f.Containers[0].Env = []string{"TOKEN=another"} }},
		{"name", func(f *Found) { f.Containers[0].Hostname = "Not A Name" }},
		{"execs", func(f *Found) { f.Traces = append(f.Traces, ended("exec-1", 0, now)) }},
		{"execs", func(f *Found) { f.Unread = 1 }},
		{"state", func(f *Found) { exited(f, 0) }},
		{"hooks_done", func(f *Found) { f.Traces = nil }},
	} {
		f := found(t)
		c.change(&f)
		if got := one(t, input(f)); !slices.Contains(got.Defaulted, c.field) {
			t.Errorf("%s is not in %v", c.field, got.Defaulted)
		}
	}
}

func TestUpdatedLimitsAreReadFromTheContainer(t *testing.T) {
	f := found(t)
	f.Containers[0].Limits = dockerx.Limits{NanoCPUs: 1_500_000_000, MemoryBytes: 1 << 30, Pids: 100}
	s := one(t, input(f)).Record.GetSpec()
	if s.GetCpuLimit() != 1.5 || s.GetMemoryLimit() != "1073741824" || s.GetPidsLimit() != 100 {
		t.Errorf("limits %v %s %d", s.GetCpuLimit(), s.GetMemoryLimit(), s.GetPidsLimit())
	}
}

func TestEnginesHostNameIsNoName(t *testing.T) {
	f := found(t)
	f.Containers[0].Hostname = f.Containers[0].ID[:12]
	got := one(t, input(f))
	if got.Record.GetDesired().GetName() != "" || slices.Contains(got.Defaulted, "name") {
		t.Errorf("name %q, defaulted %v", got.Record.GetDesired().GetName(), got.Defaulted)
	}
}

func TestSandboxWithoutALabelIsRebuiltFromItsContainers(t *testing.T) {
	f := found(t)
	for i := range f.Containers {
		for _, l := range []string{naming.Spec, naming.SpecHash, naming.Template} {
			delete(f.Containers[i].Labels, l)
		}
	}
	c := &f.Containers[0]
	c.Entrypoint = []string{execjournal.ContainerShim, "init", "--default-user=agbox", "--user=me", "--cap=13", "--new-privileges", "--", "server", "--port=1"}
	c.Mounts = append(c.Mounts, dockerx.Mount{Source: "/home/me/src", Target: "/src", Writable: true},
		dockerx.Mount{Source: "/v/1/_data", Target: "/data", Writable: true, Volume: naming.VolumeOf("11111111-1111-4111-8111-111111111111", "web", "data")},
		dockerx.Mount{Source: "/v/2/_data", Target: "/of-the-image", Writable: true, Volume: strings.Repeat("0", 64)})
	c.ReadOnlyRoot, c.Unconfined = true, true
	c.Ports = []dockerx.Port{{ContainerPort: 80, HostPort: 32768, Protocol: "tcp"}}
	f.Traces, f.Released = nil, false // it had no gate
	in := input(f)
	in.Images = map[string]dockerx.Image{"sha256:base": {Env: []string{"PATH=/bin"}}, "sha256:db": {Env: []string{"PATH=/bin"}}}
	got := one(t, in)
	want := &agboxv1.CreateSpec{
		Image: "base:1", Envs: map[string]string{"TOKEN": "secret"}, Labels: map[string]string{"team": "x"}, MemoryLimit: "536870912",
		User: "me", Command: []string{"server", "--port=1"}, Mounts: []*agboxv1.MountSpec{{Source: "/home/me/src", Target: "/src", Writable: true}},
		Ports:            []*agboxv1.PortSpec{{ContainerPort: 80, Protocol: "tcp"}},
		Volumes:          []*agboxv1.VolumeSpec{{Name: "data", Target: "/data"}},
		Security:         &agboxv1.SecuritySpec{ReadOnlyRoot: true, CapabilitiesAdd: []string{"NET_RAW"}, Seccomp: "unconfined", NoNewPrivileges: new(bool)},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "db:1", Envs: map[string]string{"PASSWORD": "hunter2"}}},
	}
	if !proto.Equal(got.Record.GetSpec(), want) || got.Source != FromInspect {
		t.Errorf("from %s\ngot  %v\nwant %v", got.Source, got.Record.GetSpec(), want)
	}
	if agboxv1.SandboxState(got.Record.GetState()) != agboxv1.SandboxState_SANDBOX_STATE_READY {
		t.Errorf("state %d", got.Record.GetState())
	}
	for _, field := range []string{"spec", "services", "ports"} {
		if !slices.Contains(got.Defaulted, field) {
			t.Errorf("%s is not in %v", field, got.Defaulted)
		}
	}
}

func TestClaimRequiresTheDataDirectory(t *testing.T) {
	const former = "22222222-2222-4222-8222-222222222222"
	rename := func(f *Found, instance string) {
		for i := range f.Containers {
			f.Containers[i].Labels[naming.Instance] = instance
		}
		f.Networks[0].Labels[naming.Instance] = instance
	}
	for _, c := range []struct {
		name     string
		change   func(*Found)
		recorded bool
		skipped  int
		former   int
	}{
		{"another daemon's", func(f *Found) { f.Ctl = "/elsewhere" }, false, 3, 0},
		{"a former instance of ours", func(f *Found) { rename(f, former) }, true, 0, 1},
		{"no instance label", func(f *Found) { rename(f, "") }, true, 0, 0},
		{"a primary without a ctl mount", func(f *Found) { f.Containers[0].Mounts = nil }, false, 3, 0},
		{"a service of another instance", func(f *Found) { f.Containers[1].Labels[naming.Instance] = former }, true, 1, 0},
		{"a primary of another name", func(f *Found) { f.Containers[0].Name = "agbox-primary-other" }, false, 3, 0},
		{"no primary, another instance", func(f *Found) {
			f.Containers = f.Containers[1:]
			rename(f, former)
		}, false, 2, 0},
		{"no primary and no directory", func(f *Found) { f.Containers, f.RunDir = f.Containers[1:], false }, false, 2, 0},
		{"its primary can't be read", func(f *Found) {
			f.Unreadable, f.Containers = []dockerx.Container{f.Containers[0].Container}, f.Containers[1:]
		}, false, 1, 0},
		{"a service can't be read, the label knows it", func(f *Found) {
			f.Unreadable, f.Containers = []dockerx.Container{f.Containers[1].Container}, f.Containers[:1]
		}, true, 0, 0},
		{"a service can't be read, no label knows it", func(f *Found) {
			f.Unreadable, f.Containers = []dockerx.Container{f.Containers[1].Container}, f.Containers[:1]
			delete(f.Containers[0].Labels, naming.Spec)
		}, false, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := found(t)
			c.change(&f)
			out := Plan(input(f), now)
			if (len(out.Sandboxes) == 1) != c.recorded || len(out.Skipped) != c.skipped || len(out.Former) != c.former {
				t.Errorf("%d recorded, former %v, skipped %+v", len(out.Sandboxes), out.Former, out.Skipped)
			}
		})
	}
}

func TestCompleteRecordNeedsNoContainer(t *testing.T) {
	rec := &storev1.SandboxRecord{
		Version: 1, SandboxId: "box-2", Instance: "former", Spec: spec(), State: 4, LastSequence: 7, Desired: &storev1.Desired{Generation: 3, RunState: 2},
	}
	in := input(found(t))
	in.Known = []Known{{Record: rec, Execs: []*storev1.ExecRecord{{ExecId: "exec-1"}}, Traces: []execjournal.Trace{ended("exec-1", 0, now), ended("exec-2", 5, now)}}}
	out := Plan(in, now)
	if len(out.Sandboxes) != 2 || !slices.Equal(out.Former, []string{"former"}) || len(out.Rebuilt()) != 2 {
		t.Fatalf("%d sandboxes, former %v", len(out.Sandboxes), out.Former)
	}
	got := out.Sandboxes[0]
	if !proto.Equal(got.Record, rec) || got.Source != FromLog || len(got.Execs) != 2 || !slices.Equal(got.Defaulted, []string{"execs"}) {
		t.Errorf("%v, %v, %v", got.Record, got.Execs, got.Defaulted)
	}
	rec.Desired.RunState = storev1.RunState_RUN_STATE_DELETE
	if got := Plan(in, now).Sandboxes[0]; len(got.Execs) != 1 || len(got.Defaulted) != 0 {
		t.Errorf("of a sandbox that is being deleted: %v", got.Execs)
	}
}

func TestWriteText(t *testing.T) {
	in := input(found(t))
	in.Skipped = []Skipped{{Kind: "container", ID: "c1", SandboxID: "a\x1b[2J", Reason: badID}}
	var b bytes.Buffer
	if err := Plan(in, now).WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"box-1", "my-box", "labels", "READY", "deadline_at", `skipped: container c1 of sandbox "a\x1b[2J"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "secret") || strings.Contains(b.String(), "hunter2") {
		t.Errorf("a secret in\n%s", b.String())
	}
}

// Plan does not change its input, so the same input gives the same plan again.
func TestPlanIsRepeatable(t *testing.T) {
	in := input(found(t))
	labelsBefore := maps.Clone(in.Found[0].Containers[0].Labels)
	first, second := Plan(in, now), Plan(in, now)
	if !proto.Equal(first.Sandboxes[0].Record, second.Sandboxes[0].Record) || !maps.Equal(labelsBefore, in.Found[0].Containers[0].Labels) {
		t.Error("the second plan differs")
	}
}
