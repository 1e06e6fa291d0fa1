package server_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

func (f *fixture) update(id string, spec *agboxv1.CreateSpec, dry bool) (*agboxv1.UpdateSandboxResponse, error) {
	return f.UpdateSandbox(f.t.Context(), &agboxv1.UpdateSandboxRequest{SandboxId: id, CreateSpec: spec, DryRun: dry})
}

func (f *fixture) get(id string) *agboxv1.SandboxHandle {
	f.t.Helper()
	resp, err := f.GetSandbox(f.t.Context(), &agboxv1.GetSandboxRequest{SandboxId: id})
	f.must(err)
	return resp.GetSandbox()
}

func TestUpdateInPlace(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	next := &agboxv1.CreateSpec{Image: "x", Labels: map[string]string{"id": "abcd", "team": "b"}, CpuLimit: 2, IdleTtl: durationpb.New(0)}
	want := []string{"cpu_limit", "idle_ttl", "labels[team]"}
	resp, err := f.update("abcd", next, true)
	if f.must(err); !slices.Equal(resp.GetChangedFields(), want) || resp.GetSandbox().GetLastEventSequence() != 2 || resp.GetSandbox().GetSpec().GetCpuLimit() != 0 {
		t.Errorf("dry run: %v", resp)
	}
	if sb := f.get("abcd"); sb.GetLastEventSequence() != 2 || sb.GetSpec().GetCpuLimit() != 0 {
		t.Errorf("the dry run changed something: %v", sb)
	}
	s := f.subscribe(t.Context(), "abcd", 2, false)
	resp, err = f.update("abcd", next, false)
	if f.must(err); !slices.Equal(resp.GetChangedFields(), want) || !proto.Equal(resp.GetSandbox().GetSpec(), next) || resp.GetSandbox().GetState() != ready {
		t.Errorf("got %v", resp)
	}
	e := recv(t, s, 1)[0]
	if e.GetEventType() != agboxv1.EventType_SANDBOX_SPEC_CHANGED || !slices.Equal(e.GetSpecChange().GetFields(), want) || e.GetSandboxState() != 0 {
		t.Errorf("got %v", e)
	}
	sb, err := f.store.Sandbox(t.Context(), "abcd")
	if f.must(err); !sb.Desired.GetLimitsPending() || sb.Desired.GetGeneration() != 2 {
		t.Errorf("got %v", sb.Desired)
	}
	resp, err = f.update("abcd", next, false)
	if f.must(err); len(resp.GetChangedFields()) != 0 || resp.GetSandbox().GetLastEventSequence() != 3 {
		t.Errorf("the same again: %v", resp)
	}
	yaml, err := f.UpdateSandbox(t.Context(), &agboxv1.UpdateSandboxRequest{
		SandboxId: "abcd", ConfigYaml: []byte("image: x\nlabels: {id: abcd, team: b}\nidle_ttl: 0s\ncpu_limit: 1\n"), CreateSpec: &agboxv1.CreateSpec{CpuLimit: 2},
	})
	if f.must(err); len(yaml.GetChangedFields()) != 0 {
		t.Errorf("the same as YAML with an override: %v", yaml)
	}
}

func TestACreateCanBeRehearsed(t *testing.T) {
	f := newFixture(t)
	old := &agboxv1.CreateSandboxRequest{SandboxId: "old1", Name: "box", CreateSpec: &agboxv1.CreateSpec{Image: "x"}}
	_, err := f.CreateSandbox(t.Context(), old)
	f.must(err)
	try := func(change func(*agboxv1.CreateSandboxRequest)) (*agboxv1.CreateSandboxResponse, error) {
		req := &agboxv1.CreateSandboxRequest{SandboxId: "next", Name: "box", CreateSpec: &agboxv1.CreateSpec{Image: "x"}, DryRun: true}
		change(req)
		return f.CreateSandbox(t.Context(), req)
	}
	_, err = try(func(*agboxv1.CreateSandboxRequest) {})
	refused(t, err, codes.AlreadyExists, "SANDBOX_NAME_ALREADY_EXISTS", "sandbox name box already exists", nil)
	resp, err := try(func(r *agboxv1.CreateSandboxRequest) { r.Replaces = "old1" })
	if f.must(err); resp.GetSandbox().GetSpec().GetImage() != "x" || resp.GetSandbox().GetLastEventSequence() != 0 {
		t.Errorf("got %v", resp)
	}
	_, err = try(func(r *agboxv1.CreateSandboxRequest) { r.Replaces, r.DryRun = "old1", false })
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC", "replaces is for a dry_run only: delete that sandbox first", nil)
	if list, err := f.ListSandboxes(t.Context(), &agboxv1.ListSandboxesRequest{}); err != nil || len(list.GetSandboxes()) != 1 {
		t.Errorf("the rehearsal left %v, %v", list, err)
	}
}

func TestUpdateRefusals(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) {
		d.EngineRefuses = func(spec *agboxv1.CreateSpec, _ *storev1.Confinement) (broken validate.Errors) {
			if spec.GetCpuLimit() > 100 {
				broken = append(broken, validate.Error{Field: "cpu_limit", Message: "cpu_limit is too much for this engine"})
			}
			return broken
		}
	})
	for id, state := range map[string]agboxv1.SandboxState{"ready": ready, "deleting": deleting, "deleted": deleted} {
		f.create(id, state)
	}
	spec := func(id string) *agboxv1.CreateSpec {
		return &agboxv1.CreateSpec{Image: "x", Labels: map[string]string{"id": id}}
	}
	for _, dry := range []bool{true, false} {
		try := func(id string, spec *agboxv1.CreateSpec) error { _, err := f.update(id, spec, dry); return err }
		refused(t, try("", spec("x")), codes.InvalidArgument, "INVALID_SPEC", "sandbox_id is required", nil)
		refused(t, try("nope", spec("x")), codes.NotFound, "SANDBOX_NOT_FOUND", "sandbox nope was not found", nil)
		refused(t, try("ready", nil), codes.InvalidArgument, "INVALID_SPEC", "create_spec is required", nil)
		refused(t, try("ready", &agboxv1.CreateSpec{}), codes.InvalidArgument, "INVALID_SPEC", "create_spec.image is required", nil)
		for _, id := range []string{"deleting", "deleted"} {
			refused(t, try(id, spec(id)), codes.FailedPrecondition, "SANDBOX_INVALID_STATE", "sandbox "+id+" is being deleted", map[string]string{"sandbox_id": id})
		}
		fixed := spec("other")
		fixed.Image, fixed.Envs = "y", map[string]string{"A": "secret"}
		err := try("ready", fixed)
		const way = ` cannot be changed in place: delete and recreate ("agbox apply --replace")`
		refused(t, err, codes.FailedPrecondition, "SANDBOX_FIELD_IMMUTABLE", "envs[A]"+way+"; image"+way, map[string]string{"sandbox_id": "ready", "fields": "envs[A],image"})
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Error(err)
		}
		much := spec("ready")
		much.CpuLimit = 101
		refused(t, try("ready", much), codes.InvalidArgument, "INVALID_SPEC", "cpu_limit is too much for this engine", map[string]string{"field": "cpu_limit"})
	}
	many := spec("ready")
	many.Envs = map[string]string{}
	for i := range 3000 {
		many.Envs[fmt.Sprintf("%s_%d", strings.Repeat("X", 60), i)] = ""
	}
	_, err := f.update("ready", many, false)
	if text := fmt.Sprint(err); len(text) > 4000 || !strings.Contains(text, "and 2992 more") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	if sb := f.get("ready"); sb.GetLastEventSequence() != 2 {
		t.Errorf("something was written: %v", sb)
	}
}

// Each stage of a create tells of all that is wrong, and what is stored is the spec in its one form.
func TestCreateChecksInStages(t *testing.T) {
	home := t.TempDir()
	t.Setenv("SSH_AUTH_SOCK", "")
	f := newFixture(t, func(d *server.Deps) {
		d.Home = home
		d.EngineRefuses = func(*agboxv1.CreateSpec, *storev1.Confinement) validate.Errors {
			return validate.Errors{{Field: "gpus", Message: "gpus: none here"}, {Field: "runtime", Message: "runtime: unknown"}}
		}
	})
	create := func(spec *agboxv1.CreateSpec) error {
		_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
		return err
	}
	spec := &agboxv1.CreateSpec{
		Image: "x", BuiltinTools: []string{"claude", "codex"},
		Mounts: []*agboxv1.MountSpec{{Source: "/no/such", Target: "/m"}}, Copies: []*agboxv1.CopySpec{{Source: "/no/such", Target: "/c"}},
	}
	err := create(spec)
	var fields []string
	for _, v := range violations(err) {
		fields = append(fields, v.GetField())
	}
	if fmt.Sprint(fields) != "[mounts[0].source copies[0].source builtin_tools[0] builtin_tools[1] builtin_tools[1] gpus runtime]" {
		t.Errorf("%v: %v", fields, err)
	}
	refused(t, create(&agboxv1.CreateSpec{Image: "x"}), codes.InvalidArgument, "INVALID_SPEC", "gpus: none here; runtime: unknown", map[string]string{"field": "gpus"})
}

func TestCreateStoresTheNormalizedSpecAndItsTools(t *testing.T) {
	home := t.TempDir()
	t.Setenv("SSH_AUTH_SOCK", home+"/agent")
	f := newFixture(t, func(d *server.Deps) { d.Home = home })
	for _, dir := range []string{"dotfiles", ".config/gh"} {
		f.must(os.MkdirAll(filepath.Join(home, dir), 0o700))
	}
	f.must(os.Symlink(filepath.Join(home, "dotfiles"), filepath.Join(home, ".npm")))
	l, err := net.Listen("unix", home+"/agent")
	f.must(err)
	defer l.Close()
	spec := &agboxv1.CreateSpec{
		Image: "x", BuiltinTools: []string{"npm", "git"}, Mounts: []*agboxv1.MountSpec{{Source: home + "/", Target: "//m/./x/"}},
		Ports: []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 8080}},
	}
	resp, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "abcd", CreateSpec: spec})
	f.must(err)
	got := resp.GetSandbox().GetSpec()
	if got.GetMounts()[0].GetTarget() != "/m/x" || got.GetMounts()[0].GetSource() != home || got.GetPorts()[0].GetProtocol() != "tcp" {
		t.Errorf("got %v", got)
	}
	sb, err := f.store.Sandbox(t.Context(), "abcd")
	f.must(err)
	var sources []string
	for _, m := range sb.Desired.GetToolMounts() {
		sources = append(sources, m.GetTool()+" "+strings.TrimPrefix(m.GetSource(), home)+" "+m.GetTarget())
	}
	want := []string{"npm /dotfiles /home/agbox/.npm", "git /agent /ssh-agent", "git /.config/gh /home/agbox/.config/gh"}
	if !slices.Equal(sources, want) {
		t.Errorf("got %q", sources)
	}
	_, err = f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "other", CreateSpec: &agboxv1.CreateSpec{
		Image: "x", Ports: []*agboxv1.PortSpec{{ContainerPort: 1, HostPort: 8080, Protocol: "tcp"}},
	}})
	refused(t, err, codes.AlreadyExists, "SANDBOX_PORT_ALREADY_IN_USE", "host port 8080/tcp is already published by sandbox abcd; choose another host port or delete that sandbox", map[string]string{"sandbox_id": "other", "field": "ports[0].host_port"})
}

func TestHandleShowsTheProgressOfTheRun(t *testing.T) {
	f := newFixture(t, func(d *server.Deps) {
		d.Ports = func(id string) []*agboxv1.PublishedPort {
			return []*agboxv1.PublishedPort{{ContainerPort: 80, HostPort: 31000, Protocol: "tcp", ServiceName: id}}
		}
		d.MainLogs = func(id string) (string, string) { return id + ".out", id + ".err" }
	})
	health := &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}}
	_, err := f.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "abcd", CreateSpec: &agboxv1.CreateSpec{
		Image: "x", Command: []string{"serve"},
		RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "x", Healthcheck: health}, {Name: "mq", Image: "x", Healthcheck: health}},
		OptionalServices: []*agboxv1.ServiceSpec{{Name: "aux", Image: "x"}},
	}})
	f.must(err)
	f.must(f.store.Report(t.Context(), "abcd", store.Report{Generation: 1, Progress: &storev1.Progress{
		Restarts: &storev1.Restarts{Count: 4},
		Services: map[string]*storev1.ServiceProgress{
			"db":  {Mark: storev1.ServiceMark_SERVICE_MARK_READY, ErrorCode: "OLD", Restarts: &storev1.Restarts{Count: 2}},
			"aux": {Mark: storev1.ServiceMark_SERVICE_MARK_FAILED, ErrorCode: "CONTAINER_OOM", ErrorMessage: "it died"},
		},
	}}))
	if sb := f.get("abcd"); len(sb.GetPorts()) != 0 {
		t.Errorf("ports while it is created: %v", sb.GetPorts())
	}
	f.report("abcd", ready)
	sb := f.get("abcd")
	want := []*agboxv1.ServiceStatus{
		{Name: "db", Required: true, State: "READY", Restarts: 2}, {Name: "mq", Required: true},
		{Name: "aux", State: "FAILED", ErrorCode: "CONTAINER_OOM", ErrorMessage: "it died"},
	}
	if !slices.EqualFunc(sb.GetServices(), want, func(a, b *agboxv1.ServiceStatus) bool { return proto.Equal(a, b) }) {
		t.Errorf("got %v", sb.GetServices())
	}
	if sb.GetRestarts() != 4 || len(sb.GetPorts()) != 1 || sb.GetPorts()[0].GetServiceName() != "abcd" || sb.GetStdoutLogPath() != "abcd.out" || sb.GetStderrLogPath() != "abcd.err" {
		t.Errorf("got %v", sb)
	}
	f.create("plain", ready)
	if sb := f.get("plain"); sb.GetStdoutLogPath() != "" || len(sb.GetServices()) != 0 {
		t.Errorf("got %v", sb)
	}
}

func TestExecShowsWhatItsLogsLack(t *testing.T) {
	f := newFixture(t)
	f.create("abcd", ready)
	f.exec("abcd", "exec1")
	f.must(f.store.EndExec(context.Background(), "exec1", &storev1.ExecEnd{
		State: int32(agboxv1.ExecState_EXEC_STATE_FINISHED), StdoutDroppedBytes: 5, StderrDroppedBytes: 7,
	}))
	got, err := f.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: "exec1"})
	if f.must(err); got.GetExec().GetStdoutDroppedBytes() != 5 || got.GetExec().GetStderrDroppedBytes() != 7 {
		t.Errorf("got %v", got)
	}
}
