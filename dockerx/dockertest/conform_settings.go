package dockertest

import (
	"archive/tar"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/dockerx"
)

func (w *world) wantLimits(id string, want dockerx.Limits) {
	w.Helper()
	if got := w.inspect(id).Limits; got != want {
		w.Errorf("limits %+v, want %+v", got, want)
	}
}

func checkUsage(w *world) {
	spec := w.spec("", "")
	spec.Limits = dockerx.Limits{MemoryBytes: 64 << 20, Pids: 50}
	id, idle := w.create(spec), w.create(w.spec("-idle", ""))
	asked := []string{id, idle, strings.Repeat("0", 64)}
	want := func(running bool) {
		w.Helper()
		w.eventually(fmt.Sprintf("usage of a container, running %t", running), func() bool { // cgroups may go a moment after the engine's answer
			all := w.e.Usage(asked)
			_, ok := all[id]
			return ok == running && len(all) <= 1
		})
	}
	want(false)
	w.ok(w.e.StartContainer(w.ctx, id))
	want(true)
	u := w.e.Usage(asked)[id]
	if u.Pids < 1 || u.PidsLimit != 50 || u.MemoryBytes == 0 || u.MemoryLimitBytes != 64<<20 || u.CPU <= 0 {
		w.Errorf("usage: %+v", u)
	}
	w.ok(w.e.PauseContainer(w.ctx, id))
	want(true)
	w.ok(w.e.UnpauseContainer(w.ctx, id))
	w.ok(w.e.StopContainer(w.ctx, id, time.Second))
	want(false)
	w.ok(w.e.StartContainer(w.ctx, id))
	want(true)
}

// checkMeasure counts what is written, and neither the image nor another container.
func checkMeasure(w *world) {
	id, idle := w.create(w.spec("", "")), w.create(w.spec("-idle", ""))
	measure := func(id string) int64 { w.Helper(); return must(w.e.MeasureContainer(w.ctx, id))(w) }
	const size = 1 << 20
	content := strings.Repeat("x", size)
	before := measure(id)
	w.ok(w.e.WriteTar(w.ctx, id, "/tmp", time.Minute, archiveOf(w, tar.Header{Name: "./file", Typeflag: tar.TypeReg, Mode: 0o640, Linkname: content})))
	for _, step := range []func(context.Context, string) error{
		func(context.Context, string) error { return nil }, w.e.StartContainer, w.e.PauseContainer, w.e.UnpauseContainer,
		func(ctx context.Context, id string) error { return w.e.StopContainer(ctx, id, time.Second) },
	} {
		w.ok(step(w.ctx, id))
		if grown := measure(id) - before; grown < size || grown > size+size/4 {
			w.Errorf("it has grown by %d bytes, want %d", grown, size)
		}
	}
	if n := measure(idle); n < 0 || n > size/4 {
		w.Errorf("the one that wrote nothing has %d bytes", n)
	}
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.refused(errOf(w.e.MeasureContainer(w.ctx, id)), errdefs.ErrNotFound)
}

func checkLimits(w *world) {
	spec := w.spec("", "")
	spec.Limits = dockerx.Limits{NanoCPUs: 333_333_333, MemoryBytes: 64 << 20, Pids: 50}
	id := w.create(spec)
	w.wantLimits(id, dockerx.Limits{NanoCPUs: 333_330_000, MemoryBytes: 64 << 20, Pids: 50})
	w.ok(w.e.StartContainer(w.ctx, id))
	w.wantLimits(id, spec.Limits.Rounded())

	for _, l := range []dockerx.Limits{
		{NanoCPUs: 2_000_000_000, MemoryBytes: 128 << 20, Pids: 100},
		{NanoCPUs: 10_000_000, MemoryBytes: 32 << 20, Pids: 10},
		{},
		{MemoryBytes: 32 << 20},
		{NanoCPUs: 500_000_000},
		{Pids: 20},
	} {
		w.ok(w.e.UpdateContainer(w.ctx, id, l))
		w.wantLimits(id, l)
	}
	w.refused(w.e.UpdateContainer(w.ctx, id, dockerx.Limits{MemoryBytes: 1000}), errdefs.ErrInvalidArgument)
	w.refused(w.e.UpdateContainer(w.ctx, id, dockerx.Limits{NanoCPUs: 1000}), errdefs.ErrInvalidArgument)
	w.refused(w.e.UpdateContainer(w.ctx, id, dockerx.Limits{Pids: -1}), errdefs.ErrInvalidArgument)
	w.wantLimits(id, dockerx.Limits{Pids: 20})

	w.kill(id)
	for _, l := range []dockerx.Limits{{NanoCPUs: 500_000_000, MemoryBytes: 64 << 20, Pids: 9}, {}} {
		w.ok(w.e.UpdateContainer(w.ctx, id, l))
		w.ok(w.e.StartContainer(w.ctx, id))
		w.wantLimits(id, l)
		w.ok(w.e.StopContainer(w.ctx, id, 0))
	}
	w.ok(w.e.RemoveContainer(w.ctx, id))
	w.refused(w.e.UpdateContainer(w.ctx, id, dockerx.Limits{}), errdefs.ErrNotFound)

	w.ok(w.e.StartContainer(w.ctx, w.create(w.spec("", "")))) // with no limits at all
}

// freePort returns a TCP port of the host that was free a moment ago.
func (w *world) freePort() uint16 {
	w.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	w.ok(err)
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func checkPorts(w *world) {
	n, port := w.network(w.name), w.freePort()
	spec := w.spec("a", n.ID)
	spec.Ports = []dockerx.Port{
		{ContainerPort: 90, HostPort: port, Protocol: "tcp"},
		{ContainerPort: 80, Protocol: "udp"},
		{ContainerPort: 80, Protocol: "tcp"},
	}
	a := w.create(spec)
	if p := w.inspect(a).Ports; len(p) != 0 {
		w.Errorf("before the start: %v", p)
	}
	w.ok(w.e.StartContainer(w.ctx, a))
	got := w.inspect(a).Ports
	if len(got) != 3 || got[0].HostPort == 0 || got[1].HostPort == 0 {
		w.Fatalf("ports %v", got)
	}
	want := []dockerx.Port{
		{ContainerPort: 80, HostPort: got[0].HostPort, Protocol: "tcp"},
		{ContainerPort: 80, HostPort: got[1].HostPort, Protocol: "udp"},
		{ContainerPort: 90, HostPort: port, Protocol: "tcp"},
	}
	if !slices.Equal(got, want) {
		w.Errorf("ports %v, want %v", got, want)
	}

	spec = w.spec("b", n.ID)
	spec.Ports = []dockerx.Port{{ContainerPort: 80, HostPort: port, Protocol: "tcp"}}
	b := w.create(spec)
	w.refused(w.e.StartContainer(w.ctx, b), errdefs.ErrFailedPrecondition)
	w.ok(w.e.StopContainer(w.ctx, a, 0))
	if p := w.inspect(a).Ports; len(p) != 0 {
		w.Errorf("after the exit: %v", p)
	}
	w.ok(w.e.StartContainer(w.ctx, b))
	if p := w.inspect(b).Ports; !slices.Equal(p, spec.Ports) {
		w.Errorf("ports %v, want %v", p, spec.Ports)
	}
	w.refused(w.e.StartContainer(w.ctx, a), errdefs.ErrFailedPrecondition)
}

const (
	wellTest = "exit 0"
	sickTest = "echo not well; exit 1"
)

func (w *world) checkedSpec(name, test string) dockerx.ContainerSpec {
	spec := w.spec(name, "")
	spec.Healthcheck = &dockerx.Healthcheck{
		Test: []string{"CMD-SHELL", test}, Interval: 100 * time.Millisecond, Timeout: 10 * time.Second, Retries: 1,
	}
	return spec
}

func checkHealth(w *world) {
	f := w.follow(time.Time{})
	defer w.stop(f)
	well, sick := w.create(w.checkedSpec("well", wellTest)), w.create(w.checkedSpec("sick", sickTest))
	spec := w.checkedSpec("none", wellTest)
	spec.Healthcheck.Test = []string{"NONE"}
	none := w.create(spec)
	for id, want := range map[string]dockerx.Health{
		well: dockerx.HealthHealthy, sick: dockerx.HealthUnhealthy, none: dockerx.HealthNone,
	} {
		if h := w.inspect(id).Health; h != dockerx.HealthNone {
			w.Errorf("before the start: %q", h)
		}
		w.ok(w.e.StartContainer(w.ctx, id))
		if h := w.inspect(id).Health; h != want && h != dockerx.HealthStarting {
			w.Errorf("after the start: %q", h)
		}
		w.eventually("the verdict is "+string(want), func() bool {
			return w.inspect(id).Health == want && w.listed(id).Health == want
		})
	}
	if d := w.inspect(sick); d.HealthOutput == "" {
		w.Error("no output")
	}
	for _, id := range []string{well, sick} {
		w.wantStories(f, map[string][]string{id: {"container create", "container start", "container health_status"}})
	}
	w.ok(w.e.StopContainer(w.ctx, sick, 0))
	if d := w.inspect(sick); d.Health != dockerx.HealthNone || d.HealthOutput == "" {
		w.Errorf("after the exit: %q %q", d.Health, d.HealthOutput)
	}
	w.wantStories(f, map[string][]string{none: {"container create", "container start"}})
}

// checkSettings requests settings that the engine's Info reports as unsupported.
func checkSettings(w *world) {
	info := must(w.e.Info(w.ctx))(w)
	if !slices.IsSorted(info.Runtimes) || !slices.Contains(info.Runtimes, info.DefaultRuntime) || info.StorageDriver == "" {
		w.Errorf("%+v", info)
	}
	spec := w.spec("", "")
	spec.Runtime = info.Runtimes[len(info.Runtimes)-1]
	w.ok(w.e.RemoveContainer(w.ctx, w.create(spec)))

	n := w.network(w.name)
	refused := func(change func(*dockerx.ContainerSpec)) {
		w.Helper()
		spec := w.spec("", n.ID)
		change(&spec)
		w.refused(errOf(w.e.CreateContainer(w.ctx, spec)), errdefs.ErrInvalidArgument)
	}
	refused(func(s *dockerx.ContainerSpec) { s.Runtime = "agbox-no-such-runtime" })
	refused(func(s *dockerx.ContainerSpec) { s.Limits.MemoryBytes = 1000 })
	refused(func(s *dockerx.ContainerSpec) { s.Limits.NanoCPUs = 1000 })
	refused(func(s *dockerx.ContainerSpec) { s.DiskBytes = -1 })
	for _, gpus := range []string{"0", "-1", ",", "a, b", " all"} {
		refused(func(s *dockerx.ContainerSpec) { s.GPUs = gpus })
	}
	for _, p := range []dockerx.Port{{Protocol: "tcp"}, {ContainerPort: 80}, {ContainerPort: 80, Protocol: "sctp"}} {
		refused(func(s *dockerx.ContainerSpec) { s.Ports = []dockerx.Port{p} })
	}
	refused(func(s *dockerx.ContainerSpec) {
		s.NetworkID, s.Ports = "", []dockerx.Port{{ContainerPort: 80, Protocol: "tcp"}}
	})
	if !info.StartInterval {
		refused(func(s *dockerx.ContainerSpec) {
			s.Healthcheck = &dockerx.Healthcheck{Test: []string{"CMD", "true"}, StartInterval: time.Second}
		})
	}
	spec = w.spec("disk", "")
	spec.DiskBytes = 1 << 30
	dropped := info.StorageDriver == "overlayfs" // of containerd, which ignores the limit; callers check DiskLimit
	if _, err := w.e.CreateContainer(w.ctx, spec); !info.DiskLimit && !dropped && (err == nil || errdefs.IsUnavailable(err)) {
		w.Errorf("a disk limit on %s: %v", info.StorageDriver, err)
	}
	spec = w.spec("gpu", "")
	spec.GPUs = "all"
	if err := w.e.StartContainer(w.ctx, w.create(spec)); !info.GPUs && (err == nil || errdefs.IsUnavailable(err)) {
		w.Errorf("GPUs on an engine without: %v", err)
	}
}
