//go:build docker

package dockerx

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/client"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
	"github.com/agbox/agbox/dockerx/dockertest/dockerd"
)

const testLabel = "io.github.agbox.dockerx-test"

var testObjects atomic.Int64

// uniqueName returns a name unique to this call.
func uniqueName() string {
	return fmt.Sprintf("agbox-dockerx-%d-%d", os.Getpid(), testObjects.Add(1))
}

// private starts an engine of the test's own, with an image.
func private(t *testing.T, args ...string) (*dockerd.Engine, *Engine) {
	t.Helper()
	d := dockerd.Start(t, args...)
	busybox.Import(t, d.Host(), "busybox:1")
	e, _ := newEngine(t, d.Host())
	return d, e
}

func runOf(t *testing.T, e *Engine) string {
	t.Helper()
	return infoFrom(t, e).Run
}

func infoFrom(t *testing.T, e *Engine) Info {
	t.Helper()
	info, err := e.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// startOne starts a container on a network of its own.
func startOne(t *testing.T, e *Engine) (containerID string, n Network) {
	t.Helper()
	name := uniqueName()
	n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: name, Labels: map[string]string{testLabel: name}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: name, Image: "busybox:1", Cmd: []string{"sleep", "1000"}, NetworkID: n.ID, Labels: map[string]string{testLabel: name},
		StopSignal: "SIGKILL", // a PID 1 without a handler ignores TERM
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id, n
}

func detail(t *testing.T, e *Engine, id string) ContainerDetail {
	t.Helper()
	d, err := e.InspectContainer(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestInfoRunChangesWithEachEngineProcess(t *testing.T) {
	for _, args := range [][]string{nil, {"--live-restore"}} {
		t.Run(strings.Join(args, ""), func(t *testing.T) {
			d, e := private(t, args...)
			live := len(args) > 0
			run := runOf(t, e)
			same := func(what string) {
				t.Helper()
				if got := runOf(t, e); got != run {
					t.Errorf("%s: %q, before %q", what, got, run)
				}
			}
			id, n := startOne(t, e)
			same("containers and networks were created")
			if err := syscall.Kill(d.Pid(), syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			same("the engine reloaded its configuration")
			d.Freeze()
			d.Thaw()
			same("the engine was frozen briefly")
			first := detail(t, e, id)
			for _, end := range []struct {
				name string
				end  func()
			}{{"kill", d.Kill}, {"stop", d.Stop}} {
				if err := e.StartContainer(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				end.end()
				if _, err := e.Info(t.Context()); !errdefs.IsUnavailable(err) {
					t.Errorf("after the %s: %v", end.name, err)
				}
				d.Start()
				// A pooled connection may still lead to the previous engine: one call may fail for that.
				if _, err := e.Info(t.Context()); err != nil && !errdefs.IsUnavailable(err) {
					t.Error(err)
				}
				next := runOf(t, e)
				if next == run {
					t.Errorf("after a %s still %q", end.name, run)
				}
				run = next
				got, began := detail(t, e, id), infoFrom(t, e).StartedAt
				if got.Running != live || live && got.StartedAt != first.StartedAt {
					t.Errorf("after a %s: %+v", end.name, got)
				}
				// StartedAt distinguishes a container that died with the engine from one that was stopped.
				if !got.StartedAt.Before(began) || !live && got.FinishedAt.Before(began) != (end.name == "stop") {
					t.Errorf("the engine began at %s, and after a %s: %+v", began, end.name, got)
				}
			}
			if err := e.RemoveContainer(t.Context(), id); err != nil {
				t.Error(err)
			}
			if err := e.RemoveNetwork(t.Context(), n.ID); err != nil {
				t.Error(err)
			}
			same("containers and networks were removed")
		})
	}
}

func TestEngineThatIsFrozen(t *testing.T) {
	d, e := private(t)
	startOne(t, e)
	d.Freeze()
	defer d.Thaw()
	var wg sync.WaitGroup
	for _, op := range []string{OpInfo, OpInspectContainer, OpEvents, OpInspectVolume, OpInspectImage} {
		wg.Go(func() {
			start := time.Now()
			err := everyMethod[op](t.Context(), e)
			wantClass(t, err, errdefs.ErrUnavailable)
			if took := time.Since(start); took > Deadline(op)+2*time.Second {
				t.Errorf("%s took %s", op, took)
			}
		})
	}
	wg.Wait()
	d.Thaw()
	if _, err := e.ListContainers(t.Context(), nil); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}

// Docker's default address pools are exhausted at about 31 networks.
func TestTwoHundredNetworks(t *testing.T) {
	_, e := private(t)
	var mu sync.Mutex
	var networks []Network
	var wg sync.WaitGroup
	start := time.Now()
	for range 8 {
		wg.Go(func() {
			for range 25 {
				n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: uniqueName()})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				networks = append(networks, n)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	start = time.Now()
	list, err := e.ListNetworks(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("200 networks in %s; a list of them takes %s", took, time.Since(start))
	if len(list) != 203 { // with bridge, host and none
		t.Errorf("%d networks listed", len(list))
	}
	for i, a := range list {
		for _, b := range list[:i] {
			if a.Subnet.IsValid() && b.Subnet.IsValid() && a.Subnet.Overlaps(b.Subnet) {
				t.Errorf("%s overlaps %s", a.Subnet, b.Subnet)
			}
		}
	}
	for _, n := range networks[:5] {
		if err := e.RemoveNetwork(t.Context(), n.ID); err != nil {
			t.Error(err)
		}
	}
}

// Two daemons on one engine do not share their allocations.
func TestTwoAllocatorsOnOneEngine(t *testing.T) {
	d, one := private(t)
	two, _ := newEngine(t, d.Host())
	for _, e := range []*Engine{two, one, two, one} {
		if _, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: uniqueName()}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCreateContainerAppliesTheSpec(t *testing.T) {
	d, e := private(t)
	source := t.TempDir()
	n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: uniqueName()})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Entrypoint: []string{"/bin/sleep"}, Cmd: []string{"1000"},
		Env: []string{"A=b"}, User: "1000:1000", WorkingDir: "/tmp", Hostname: "box", Labels: map[string]string{"a": "b"},
		Mounts:    []Mount{{Source: source, Target: "/ro"}, {Source: source, Target: "/rw", Writable: true}},
		NetworkID: n.ID, NetworkAliases: []string{"alias"}, Init: &yes, StopSignal: "SIGINT",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	raw, err := client.NewClientWithOpts(client.WithHost(d.Host()), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c, err := raw.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	h := c.HostConfig
	for what, ok := range map[string]bool{
		"entrypoint":        slices.Equal(c.Config.Entrypoint, []string{"/bin/sleep"}) && slices.Equal(c.Config.Cmd, []string{"1000"}),
		"env":               slices.Contains(c.Config.Env, "A=b"),
		"user, dir, host":   c.Config.User == "1000:1000" && c.Config.WorkingDir == "/tmp" && c.Config.Hostname == "box",
		"labels":            c.Config.Labels["a"] == "b",
		"stop signal":       c.Config.StopSignal == "SIGINT",
		"not privileged":    !h.Privileged && len(h.CapAdd) == 0 && len(h.SecurityOpt) == 0 && !h.PublishAllPorts,
		"no host namespace": h.PidMode == "" && !h.IpcMode.IsHost() && h.UTSMode == "" && h.UsernsMode == "",
		"no restart":        h.RestartPolicy.IsNone() && !h.AutoRemove,
		"init":              h.Init != nil && *h.Init,
		"bounded log":       h.LogConfig.Type == "json-file" && h.LogConfig.Config["max-size"] == "512k" && h.LogConfig.Config["max-file"] == "2",
		"network":           (string(h.NetworkMode) == n.ID || string(h.NetworkMode) == n.Name) && len(c.NetworkSettings.Networks) == 1,
	} {
		if !ok {
			t.Errorf("%s: unexpected: %+v %+v", what, c.Config, h)
		}
	}
	for _, end := range c.NetworkSettings.Networks {
		ip, err := netip.ParseAddr(end.IPAddress)
		if err != nil || end.NetworkID != n.ID || !slices.Contains(end.Aliases, "alias") || !n.Subnet.Contains(ip) {
			t.Errorf("endpoint %+v", end)
		}
	}
	want := []Mount{{Source: source, Target: "/ro"}, {Source: source, Target: "/rw", Writable: true}}
	got := detail(t, e, id).Mounts
	slices.SortFunc(got, func(a, b Mount) int { return strings.Compare(a.Target, b.Target) })
	if !slices.Equal(got, want) {
		t.Errorf("mounts %+v", got)
	}
}

func TestStartContainerFailsForBadSpecs(t *testing.T) {
	_, e := private(t)
	for name, tc := range map[string]struct {
		spec ContainerSpec
		want func(error) bool
	}{
		"no such program":      {ContainerSpec{Cmd: []string{"/no/such"}}, errdefs.IsInvalidArgument},
		"not in the path":      {ContainerSpec{Cmd: []string{"no-such"}}, errdefs.IsInvalidArgument},
		"a directory":          {ContainerSpec{Cmd: []string{"/bin"}}, errdefs.IsInvalidArgument},
		"no such entrypoint":   {ContainerSpec{Entrypoint: []string{"/no/such"}}, errdefs.IsInvalidArgument},
		"a file for a mount":   {ContainerSpec{Cmd: []string{"true"}, Mounts: []Mount{{Source: "/bin/sh", Target: "/bin"}}}, errdefs.IsInvalidArgument},
		"no such user (20.10)": {ContainerSpec{Cmd: []string{"true"}, User: "nobody-of-that-name"}, errdefs.IsInternal},
	} {
		tc.spec.Name, tc.spec.Image = uniqueName(), "busybox:1"
		id, err := e.CreateContainer(t.Context(), tc.spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.StartContainer(t.Context(), id); !tc.want(err) && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: class of %v", name, err)
		}
	}
}

func TestStartContainerWithARemovedMountSource(t *testing.T) {
	_, e := private(t)
	source := t.TempDir() + "/source"
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sleep", "1000"}, Mounts: []Mount{{Source: source, Target: "/m"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	wantClass(t, e.StartContainer(t.Context(), id), errdefs.ErrInvalidArgument)
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Errorf("with the source restored: %v", err)
	}
}

func TestStopContinuesAfterTheCallerCancels(t *testing.T) {
	_, e := private(t)
	id, err := e.CreateContainer(t.Context(), ContainerSpec{Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.StopContainer(ctx, id, time.Second); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for range 100 {
		if !detail(t, e, id).Running {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("still running")
}
