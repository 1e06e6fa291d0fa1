package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

func volume(name, target string) []*agboxv1.VolumeSpec {
	return []*agboxv1.VolumeSpec{{Name: name, Target: target}}
}

// withVolumes creates a sandbox with a name, whose primary and service have volumes.
func (p *player) withVolumes(t *testing.T, id, name string) {
	t.Helper()
	spec := &agboxv1.CreateSpec{Image: image, Volumes: volume("data", "/data"), RequiredServices: []*agboxv1.ServiceSpec{{
		Name: "db", Image: image, Volumes: volume("db", "/var/lib/db"),
		Healthcheck: &agboxv1.HealthcheckConfig{Test: []string{"CMD", "true"}},
	}}}
	if _, err := p.store.CreateSandbox(t.Context(), id, name, spec, nil); err != nil {
		t.Fatal(err)
	}
}

func (p *player) delete(t *testing.T, id string, volumes bool) {
	t.Helper()
	request := p.store.RequestDelete
	var err error
	if volumes {
		_, err = p.store.RequestDeleteWithVolumes(t.Context(), id, "delete_requested", false)
	} else {
		_, err = request(t.Context(), id, "delete_requested")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wantVolumes compares the volumes that exist, as SANDBOX/VOLUME, with "+" if a live sandbox has it.
func (p *player) wantVolumes(t *testing.T, want ...string) {
	t.Helper()
	all, err := p.daemon.Volumes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range all {
		one := v.GetSandboxName() + "/" + v.GetName()
		if v.GetSandboxId() != "" {
			one += "+"
		}
		got = append(got, one)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the volumes are %q, want %q", got, want)
	}
}

// volumesOf returns the engine's names of the volumes of a container.
func (p *player) volumesOf(t *testing.T, container string) (names []string) {
	t.Helper()
	spec, ok := p.engine.Spec(container)
	if !ok {
		t.Fatalf("no container %s", container)
	}
	for _, v := range spec.Volumes {
		names = append(names, v.Name)
	}
	return names
}

func TestVolumesSurviveStopAndDeleteAndServeTheNextSandboxOfTheName(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.withVolumes(t, "box-a", "web")
		pass(time.Minute)
		p.wantState(t, "box-a", ready)
		p.wantVolumes(t, "web/data+", "web/db+")
		had := slices.Concat(p.volumesOf(t, naming.Primary("box-a")), p.volumesOf(t, naming.Service("box-a", "db")))
		if len(had) != 2 || !strings.HasSuffix(had[0], "-web.data") || !strings.HasSuffix(had[1], "-web.db") {
			t.Fatalf("mounted: %q", had)
		}
		if _, err := p.store.RequestStop(t.Context(), "box-a", "stop_requested"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.delete(t, "box-a", false)
		pass(time.Minute)
		p.wantState(t, "box-a", deleted)
		p.wantVolumes(t, "web/data", "web/db")
		if len(p.collect(t, sweepAll)) != 0 {
			t.Error("a volume is garbage")
		}
		p.withVolumes(t, "box-b", "web")
		pass(time.Minute)
		p.wantState(t, "box-b", ready)
		if now := slices.Concat(p.volumesOf(t, naming.Primary("box-b")), p.volumesOf(t, naming.Service("box-b", "db"))); !slices.Equal(now, had) {
			t.Errorf("the next sandbox of the name mounts %q, not %q", now, had)
		}
	})
}

// The next sandbox of a name waits for the removal of the one before: two never share a volume, and one that is removed with its sandbox
// is not in use by the next.
func TestTwoSandboxesOfANameNeverShareAVolume(t *testing.T) {
	for _, volumes := range []bool{false, true} {
		withDaemon(t, func(t *testing.T, p *player) {
			p.withVolumes(t, "box-a", "web")
			p.withVolumes(t, "box-x", "other")
			pass(time.Minute)
			p.engine.Fail(dockerx.OpRemoveContainer, 5, errdefs.ErrInternal, false)
			p.delete(t, "box-a", volumes)
			p.withVolumes(t, "box-b", "web")
			pass(time.Second)
			if s := p.daemon.Status("box-b"); !strings.Contains(s, "box-a") {
				t.Errorf("the status of the next one is %q", s)
			}
			if _, ok := p.engine.Spec(naming.Primary("box-b")); ok {
				t.Error("both have containers")
			}
			pass(5 * time.Minute)
			p.wantState(t, "box-a", deleted)
			p.wantState(t, "box-b", ready)
			p.wantVolumes(t, "other/data+", "other/db+", "web/data+", "web/db+")
		})
	}
}

func TestDeleteWithVolumesIsRetriedUntilTheyAreGone(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.withVolumes(t, "box-a", "web")
		p.withVolumes(t, "box-x", "other")
		pass(time.Minute)
		stranger, err := p.engine.CreateContainer(t.Context(), dockerx.ContainerSpec{
			Name: "stranger", Image: image, Volumes: []dockerx.VolumeMount{{Name: p.volumesOf(t, naming.Primary("box-a"))[0], Target: "/x"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.delete(t, "box-a", false) // the request for the volumes may come later
		p.delete(t, "box-a", true)
		pass(10 * time.Minute)
		p.wantState(t, "box-a", agboxv1.SandboxState_SANDBOX_STATE_DELETING)
		if s := p.daemon.Status("box-a"); !strings.Contains(s, "volume data") || !strings.Contains(s, "in use") {
			t.Errorf("the status is %q", s)
		}
		if err := p.restart(noDeath); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if err := p.engine.RemoveContainer(t.Context(), stranger); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantState(t, "box-a", deleted)
		p.wantVolumes(t, "other/data+", "other/db+")
	})
}

// A sandbox without a name has no volumes: its delete removes none, and above all not those of others.
func TestDeleteWithVolumesOfANamelessSandboxRemovesNone(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.withVolumes(t, "box-x", "other")
		p.must(t, act{"create", 0})
		pass(time.Minute)
		p.delete(t, "box-0", true)
		pass(time.Minute)
		p.wantState(t, "box-0", deleted)
		p.wantVolumes(t, "other/data+", "other/db+")
	})
}

func TestAVolumeIsRemovedOnlyWhenNobodyHasIt(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.withVolumes(t, "box-a", "web")
		pass(time.Minute)
		if err := p.daemon.RemoveVolume(t.Context(), "web", "data"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "spec of sandbox web") {
			t.Errorf("of a live sandbox: %v", err)
		}
		name := p.volumesOf(t, naming.Primary("box-a"))[0]
		p.delete(t, "box-a", false)
		pass(time.Minute)
		stranger, err := p.engine.CreateContainer(t.Context(), dockerx.ContainerSpec{Name: "stranger", Image: image, Volumes: []dockerx.VolumeMount{{Name: name, Target: "/x"}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.daemon.RemoveVolume(t.Context(), "web", "data"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "container stranger") {
			t.Errorf("of a container: %v", err)
		}
		p.wantVolumes(t, "web/data", "web/db")
		if err := p.engine.RemoveContainer(t.Context(), stranger); err != nil {
			t.Fatal(err)
		}
		if err := p.daemon.RemoveVolume(t.Context(), "web", "data"); err != nil {
			t.Error(err)
		}
		p.wantVolumes(t, "web/db")
		if err := p.daemon.RemoveVolume(t.Context(), "web", "data"); !errdefs.IsNotFound(err) {
			t.Errorf("again: %v", err)
		}
	})
}

// A container that was kept although its record is deleted still writes to its volumes.
func TestAVolumeOfAKeptContainerIsNotSharedWithTheNextSandbox(t *testing.T) {
	withDaemon(t, func(t *testing.T, p *player) {
		p.withVolumes(t, "box-a", "web")
		pass(time.Minute)
		spec, _ := p.engine.Spec(naming.Primary("box-a"))
		p.delete(t, "box-a", false)
		pass(time.Minute)
		spec.Name, spec.NetworkID = "kept", ""
		spec.Labels[naming.SandboxID] = "box-never-known"
		kept, err := p.engine.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		p.withVolumes(t, "box-b", "web")
		pass(time.Minute)
		if s := p.daemon.Status("box-b"); !strings.Contains(s, "still mounted by container kept") {
			t.Errorf("the status is %q", s)
		}
		if err := p.engine.RemoveContainer(t.Context(), kept); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		p.wantState(t, "box-b", ready)
	})
}
