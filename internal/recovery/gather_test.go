package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// host is a fake engine with the real files of a daemon.
type host struct {
	testing.TB
	engine *dockertest.Fake
	files  *execjournal.Dir
	Gatherer
}

func newHost(t testing.TB) *host {
	t.Helper()
	root := t.TempDir()
	h := &host{TB: t, engine: dockertest.NewFake(), files: execjournal.New(filepath.Join(root, "logs"), filepath.Join(root, "s"))}
	h.engine.AddImage("base:1", dockerx.Image{Env: []string{"PATH=/bin"}})
	h.Gatherer = Gatherer{
		Engine: h.engine, Files: h.files, Log: slog.New(slog.DiscardHandler), Instance: ours,
		Settings: Settings{PidsLimit: 4096, EngineRun: run},
	}
	return h
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// make creates a sandbox with one service, all running, with its directories in files.
func (h *host) make(id string, files *execjournal.Dir) {
	h.Helper()
	ctx := h.Context()
	s := &agboxv1.CreateSpec{
		Image: "base:1", Envs: map[string]string{"A": id}, OptionalServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "base:1"}},
	}
	label, err := plan.SpecLabel(s)
	h.must(err)
	with := func(component string, more map[string]string) map[string]string {
		l := map[string]string{naming.SandboxID: id, naming.Instance: ours, naming.Component: component, naming.SpecHash: plan.SpecHash(s)}
		for k, v := range more {
			l[k] = v
		}
		return l
	}
	net, err := h.engine.CreateNetwork(ctx, dockerx.NetworkSpec{Name: naming.Network(id), Labels: with(naming.ComponentNetwork, nil), PrefixBits: 28})
	h.must(err)
	p, err := files.Prepare(id)
	h.must(err)
	h.must(files.Release(id))
	primary, err := h.engine.CreateContainer(ctx, dockerx.ContainerSpec{
		Name: naming.Primary(id), Image: "base:1", Env: []string{"A=" + id}, WorkingDir: plan.WorkingDir, NetworkID: net.ID,
		Entrypoint: []string{execjournal.ContainerShim, "init", "--gated"}, Limits: dockerx.Limits{Pids: 4096},
		Labels: with(naming.ComponentPrimary, map[string]string{naming.Spec: label}), Mounts: []dockerx.Mount{{Source: p.Ctl, Target: execjournal.ContainerCtl}},
	})
	h.must(err)
	service, err := h.engine.CreateContainer(ctx, dockerx.ContainerSpec{
		Name: naming.Service(id, "db"), Image: "base:1", NetworkID: net.ID, Limits: dockerx.Limits{Pids: 4096},
		Labels: with(naming.ComponentService, map[string]string{naming.ServiceName: "db"}),
	})
	h.must(err)
	h.must(h.engine.StartContainer(ctx, primary))
	h.must(h.engine.StartContainer(ctx, service))
}

func (h *host) plan(known ...Known) Output {
	h.Helper()
	in, err := h.Gather(h.Context(), known)
	h.must(err)
	return Plan(in, time.Now())
}

func known(id string) Known {
	return Known{Record: &storev1.SandboxRecord{SandboxId: id, Instance: ours, Spec: &agboxv1.CreateSpec{}, Desired: &storev1.Desired{Generation: 1, RunState: 1}}}
}

func TestCompleteRecordsNeedOnlyTwoLists(t *testing.T) {
	h := newHost(t)
	var files []Known
	for i := range 20 {
		id := fmt.Sprintf("box-%02d", i)
		h.make(id, h.files)
		files = append(files, known(id))
	}
	if out := h.plan(files...); len(out.Sandboxes) != 20 || len(out.Skipped) != 0 {
		t.Errorf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
	calls := 0
	for _, op := range []string{dockerx.OpListContainers, dockerx.OpListNetworks, dockerx.OpInspectContainer, dockerx.OpInspectImage} {
		calls += h.engine.Calls(op)
	}
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

// Each inspection takes 50 ms of simulated time: one after another, the 400 would take 20 s.
func TestTwoHundredSandboxesAreInspectedConcurrently(t *testing.T) {
	synctest.Test(t, inspectTwoHundred)
}

func inspectTwoHundred(t *testing.T) {
	h := newHost(t)
	defer func() { h.must(h.engine.Close()) }()
	for i := range 200 {
		h.make(fmt.Sprintf("box-%03d", i), h.files)
	}
	h.engine.Delay(dockerx.OpInspectContainer, 50*time.Millisecond)
	begun := time.Now()
	out := h.plan()
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if n := h.engine.Calls(dockerx.OpInspectContainer); len(out.Sandboxes) != 200 || n != 400 || h.engine.Calls(dockerx.OpListContainers) != 1 {
		t.Errorf("%d sandboxes by %d inspections", len(out.Sandboxes), n)
	}
	for _, s := range out.Sandboxes {
		if s.Record.GetSpec().GetEnvs()["A"] != s.Record.GetSandboxId() || s.Record.GetState() != int32(agboxv1.SandboxState_SANDBOX_STATE_READY) {
			t.Fatalf("unexpected record %v", s.Record)
		}
	}
}

func TestAnotherDaemonsSandboxIsLeftAlone(t *testing.T) {
	h := newHost(t)
	root := t.TempDir()
	h.make("box-1", execjournal.New(filepath.Join(root, "logs"), filepath.Join(root, "s")))
	_, err := h.files.Prepare("box-1") // even if this daemon had one of that ID
	h.must(err)
	if out := h.plan(); len(out.Sandboxes) != 0 || len(out.Skipped) != 3 {
		t.Errorf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
	if n := h.engine.Calls(dockerx.OpInspectContainer); n != 1 {
		t.Errorf("%d inspections", n)
	}
}

func TestRecordedSandboxesAreNotInspected(t *testing.T) {
	h := newHost(t)
	h.make("box-1", h.files)
	h.Reserved = func(id string) bool { return id == "box-1" || id == "box-2" }
	if out := h.plan(known("box-2")); len(out.Sandboxes) != 0 || h.engine.Calls(dockerx.OpInspectContainer) != 0 {
		t.Errorf("%d sandboxes", len(out.Sandboxes))
	}
}

func TestFailedListIsAnError(t *testing.T) {
	for _, op := range []string{dockerx.OpListContainers, dockerx.OpListNetworks} {
		h := newHost(t)
		h.make("box-1", h.files)
		h.engine.Fail(op, 1, nil, false)
		if _, err := h.Gather(t.Context(), nil); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// failing fails the inspection of some containers.
type failing struct {
	Engine
	name string
	err  error
}

func (f failing) InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error) {
	d, err := f.Engine.InspectContainer(ctx, id)
	if err == nil && strings.HasPrefix(d.Name, f.name) {
		return dockerx.ContainerDetail{}, f.err
	}
	return d, err
}

func TestOnlyUnreadableContainersAreSkipped(t *testing.T) {
	h := newHost(t)
	h.make("box-1", h.files)
	h.make("box-2", h.files)
	h.Engine = failing{h.engine, naming.Primary("box-1"), fmt.Errorf("stuck: %w", context.DeadlineExceeded)}
	out := h.plan()
	if len(out.Sandboxes) != 1 || out.Sandboxes[0].Record.GetSandboxId() != "box-2" {
		t.Fatalf("%d sandboxes", len(out.Sandboxes))
	}
	unreadable := 0
	for _, s := range out.Skipped {
		if s.Unreadable {
			unreadable++
		}
	}
	if unreadable != 2 { // the container, and the sandbox for it
		t.Errorf("skipped %+v", out.Skipped)
	}
}

func TestEngineLossDuringInspectionsIsAnError(t *testing.T) {
	h := newHost(t)
	h.make("box-1", h.files)
	h.engine.Fail(dockerx.OpInspectContainer, 1, nil, false)
	h.Engine = downAfterList{h.engine}
	if _, err := h.Gather(t.Context(), nil); !errdefs.IsUnavailable(err) {
		t.Errorf("%v", err)
	}
}

// downAfterList is an engine that dies when the first container is inspected.
type downAfterList struct{ *dockertest.Fake }

func (d downAfterList) InspectContainer(ctx context.Context, id string) (dockerx.ContainerDetail, error) {
	d.Down(true)
	return d.Fake.InspectContainer(ctx, id)
}

func TestFailedInspectionIsRetried(t *testing.T) {
	h := newHost(t)
	h.make("box-1", h.files)
	h.engine.Fail(dockerx.OpInspectContainer, 1, nil, false)
	if out := h.plan(); len(out.Sandboxes) != 1 || len(out.Skipped) != 0 {
		t.Errorf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
}

func TestPrimaryRemovedMeanwhileCountsAsMissing(t *testing.T) {
	h := newHost(t)
	h.make("box-1", h.files)
	h.Engine = failing{h.engine, naming.Primary("box-1"), fmt.Errorf("gone: %w", errdefs.ErrNotFound)}
	out := h.plan()
	if len(out.Sandboxes) != 1 || out.Sandboxes[0].Record.GetErrorCode() != plan.CodeContainerMissing {
		t.Fatalf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
	if s := out.Sandboxes[0].Record.GetSpec().GetOptionalServices(); len(s) != 1 || s[0].GetImage() != "base:1" {
		t.Errorf("services %v", s)
	}
}

func TestInvalidIDLabelIsSkipped(t *testing.T) {
	h := newHost(t)
	_, err := h.engine.CreateContainer(t.Context(), dockerx.ContainerSpec{Name: "x", Image: "base:1", Labels: map[string]string{naming.SandboxID: "../x"}})
	h.must(err)
	if out := h.plan(); len(out.Sandboxes) != 0 || len(out.Skipped) != 1 {
		t.Errorf("%d sandboxes, skipped %+v", len(out.Sandboxes), out.Skipped)
	}
}

func TestImagesEnvironmentIsNotTheSpecs(t *testing.T) {
	h := newHost(t)
	p, err := h.files.Prepare("box-1")
	h.must(err)
	_, err = h.engine.CreateContainer(t.Context(), dockerx.ContainerSpec{
		Name: naming.Primary("box-1"), Image: "base:1", Env: []string{"A=1", "HOST_UID=0"},
		Labels: map[string]string{naming.SandboxID: "box-1", naming.Component: naming.ComponentPrimary},
		Mounts: []dockerx.Mount{{Source: p.Ctl, Target: execjournal.ContainerCtl}},
	})
	h.must(err)
	out := h.plan()
	if len(out.Sandboxes) != 1 {
		t.Fatalf("skipped %+v", out.Skipped)
	}
	if envs := out.Sandboxes[0].Record.GetSpec().GetEnvs(); len(envs) != 1 || envs["A"] != "1" {
		t.Errorf("envs %v", envs)
	}
}

func TestGatherKnownMakesNoEngineCall(t *testing.T) {
	h := newHost(t)
	h.Engine = nil
	_, err := h.files.Prepare("box-1")
	h.must(err)
	h.must(h.files.Start("box-1", execjournal.Request{ExecID: "exec-1", Nonce: nonce, Command: []string{"true"}}))
	out := Plan(h.GatherKnown([]Known{known("box-1")}), now)
	if len(out.Sandboxes) != 1 || len(out.Sandboxes[0].Execs) != 1 {
		t.Errorf("%+v", out)
	}
}

// A record rewritten after a rebuild names the new store, and its containers the previous one.
func TestFormerInstanceIsReadFromContainers(t *testing.T) {
	for name, files := range map[string][]Known{"in its file": {known("box-1")}, "in the store": nil} {
		h := newHost(t)
		h.make("box-1", h.files)
		h.Instance = "22222222-2222-4222-8222-222222222222"
		h.Reserved = func(id string) bool { return files == nil && id == "box-1" }
		for _, k := range files {
			k.Record.Instance = h.Instance
		}
		if out := h.plan(files...); !slices.Equal(out.Former, []string{ours}) || len(out.Sandboxes) != len(files) {
			t.Errorf("%s: former %v, %d sandboxes", name, out.Former, len(out.Sandboxes))
		}
	}
}

func TestInstanceOfAnotherDaemonsSandboxIsNotFormer(t *testing.T) {
	h := newHost(t)
	h.make("box-1", execjournal.New(t.TempDir(), t.TempDir()))
	h.Instance = "22222222-2222-4222-8222-222222222222"
	k := known("box-1")
	k.Record.Instance = h.Instance
	if out := h.plan(k); len(out.Former) != 0 {
		t.Errorf("former %v", out.Former)
	}
}

func TestKnownInstanceNeedsNoInspection(t *testing.T) {
	h := newHost(t)
	h.make("box-1", h.files)
	h.Instance, h.Former = "22222222-2222-4222-8222-222222222222", []string{ours}
	h.Reserved = func(string) bool { return true }
	if out := h.plan(); len(out.Former) != 1 || h.engine.Calls(dockerx.OpInspectContainer) != 0 {
		t.Errorf("former %v, %d inspections", out.Former, h.engine.Calls(dockerx.OpInspectContainer))
	}
}
