//go:build docker

package recovery

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/plan"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/dockerx/dockertest/busybox"
	"github.com/agbox/agbox/internal/host/execjournal"
	"github.com/agbox/agbox/internal/host/naming"
)

// A real engine shows everything needed to derive a container's owner, spec and state; containers of other users of the
// engine are not rebuilt.
func TestRebuildFromARealContainer(t *testing.T) {
	image, id := fmt.Sprintf("agbox-rehydrate:%d", os.Getpid()), fmt.Sprintf("rehydrate-%d", os.Getpid())
	busybox.Import(t, "", image, "ENV A=image B=image")
	engine, err := dockerx.New(dockerx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	files := execjournal.New(filepath.Join(root, "logs"), filepath.Join(root, "s"))
	paths, err := files.Prepare(id)
	if err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateSpec{
		Image: image, Envs: map[string]string{"A": "mine", "C": "x=y"}, MemoryLimit: "64MiB", CpuLimit: 0.5, PidsLimit: 100,
		Labels: map[string]string{"team": "x"}, Mounts: []*agboxv1.MountSpec{{Source: root, Target: "/src", Writable: true}},
	}
	label, err := plan.SpecLabel(want)
	if err != nil {
		t.Fatal(err)
	}
	create := func(id, ctl, label string) string {
		c, err := engine.CreateContainer(t.Context(), dockerx.ContainerSpec{
			Name: naming.Primary(id), Image: image, Entrypoint: []string{"/bin/sleep", "900"}, Env: []string{"A=mine", "C=x=y", "HOST_UID=0"},
			WorkingDir: plan.WorkingDir, Hostname: "my-box", Limits: dockerx.Limits{NanoCPUs: 5e8, MemoryBytes: 64 << 20, Pids: 100},
			Labels: map[string]string{
				naming.SandboxID: id, naming.Component: naming.ComponentPrimary, naming.Instance: ours, naming.Spec: label,
				naming.SpecHash: plan.SpecHash(want), naming.UserPrefix + "team": "x",
			},
			Mounts: []dockerx.Mount{{Source: ctl, Target: execjournal.ContainerCtl}, {Source: root, Target: "/src", Writable: true}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = engine.RemoveContainer(context.Background(), c) })
		if err := engine.StartContainer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := create(id, paths.Ctl, label)
	create(id+"-foreign", paths.Out, label)
	g := Gatherer{Engine: engine, Files: files, Log: slog.New(slog.DiscardHandler), Instance: ours}
	state := func(want agboxv1.SandboxState) Sandbox {
		t.Helper()
		in, err := g.Gather(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		out := Plan(in, time.Now())
		if len(out.Sandboxes) != 1 || out.Sandboxes[0].Record.GetState() != int32(want) {
			t.Fatalf("want one sandbox in state %s, got %+v", want, out.Sandboxes)
		}
		return out.Sandboxes[0]
	}
	got := state(agboxv1.SandboxState_SANDBOX_STATE_READY)
	if got.Source != FromLabels || !proto.Equal(got.Record.GetSpec(), want) || got.Record.GetDesired().GetName() != "my-box" {
		t.Errorf("from %s: %v", got.Source, got.Record)
	}
	if err := engine.PauseContainer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	state(agboxv1.SandboxState_SANDBOX_STATE_PAUSED)
	if err := engine.StopContainer(t.Context(), c, 0); err != nil {
		t.Fatal(err)
	}
	state(agboxv1.SandboxState_SANDBOX_STATE_FAILED)
	if err := engine.RemoveContainer(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	create(id, paths.Ctl, "")
	got = state(agboxv1.SandboxState_SANDBOX_STATE_READY)
	guessed := proto.CloneOf(want)
	guessed.MemoryLimit = "67108864"
	if got.Source != FromInspect || !proto.Equal(got.Record.GetSpec(), guessed) {
		t.Errorf("from %s\ngot  %v\nwant %v", got.Source, got.Record.GetSpec(), guessed)
	}
}
