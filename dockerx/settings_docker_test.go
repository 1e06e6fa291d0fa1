//go:build docker

package dockerx

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/nat"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
)

func TestSettingsReachTheEngine(t *testing.T) {
	d, e := private(t)
	n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: uniqueName()})
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sleep", "1000"}, NetworkID: n.ID, GPUs: "a,b", Runtime: "runc",
		Healthcheck: &Healthcheck{
			Test: []string{"CMD", "true"}, Interval: time.Second, Timeout: 2 * time.Second, StartPeriod: 3 * time.Second, Retries: 4,
		},
		Ports: []Port{{80, 8080, "tcp"}, {80, 0, "udp"}},
	})
	if err != nil {
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
	for what, pair := range map[string][2]any{
		"healthcheck": {c.Config.Healthcheck, &container.HealthConfig{
			Test: []string{"CMD", "true"}, Interval: time.Second, Timeout: 2 * time.Second, StartPeriod: 3 * time.Second, Retries: 4,
		}},
		"runtime": {c.HostConfig.Runtime, "runc"},
		"ports": {c.HostConfig.PortBindings, nat.PortMap{
			"80/tcp": {{HostIP: "127.0.0.1", HostPort: "8080"}}, "80/udp": {{HostIP: "127.0.0.1", HostPort: "0"}},
		}},
		"exposed": {c.Config.ExposedPorts, nat.PortSet{"80/tcp": {}, "80/udp": {}}},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %+v, want %+v", what, pair[0], pair[1])
		}
	}
	r := c.HostConfig.DeviceRequests
	if len(r) != 1 || r[0].Count != 0 || !reflect.DeepEqual(r[0].DeviceIDs, []string{"a", "b"}) ||
		!reflect.DeepEqual(r[0].Capabilities, [][]string{{"gpu"}}) {
		t.Errorf("device requests %+v", r)
	}
}

// startLimited starts a container that runs script, with limits.
func startLimited(t *testing.T, e *Engine, limits Limits, script string) string {
	t.Helper()
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sh", "-c", script}, Limits: limits, StopSignal: "SIGKILL",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return id
}

// cgroup reads a value that the kernel keeps for a process: in v1 the file of a controller, in v2 another one.
func cgroup(t *testing.T, pid int, controller, v1, v2 string) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	var path string
	for line := range strings.Lines(string(raw)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case strings.Contains(","+part[1]+",", ","+controller+","):
			path = filepath.Join("/sys/fs/cgroup", controller, part[2], v1)
		case part[1] == "" && path == "":
			path = filepath.Join("/sys/fs/cgroup", part[2], v2)
		}
	}
	value, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(value))
}

// kernelLimits are a container's limits as the kernel has them; "" for none.
func kernelLimits(t *testing.T, e *Engine, id string) (cpu, memory, pids string) {
	t.Helper()
	pid := detail(t, e, id).Pid
	cpu, _, _ = strings.Cut(cgroup(t, pid, "cpu", "cpu.cfs_quota_us", "cpu.max"), " ")
	memory = cgroup(t, pid, "memory", "memory.limit_in_bytes", "memory.max")
	pids = cgroup(t, pid, "pids", "pids.max", "pids.max")
	return none(cpu), none(memory), none(pids)
}

func none(v string) string {
	if v == "max" || v == "-1" || v == strconv.FormatInt(unlimitedBytes, 10) {
		return ""
	}
	return v
}

func TestLimitsReachTheKernel(t *testing.T) {
	_, e := private(t)
	first := Limits{NanoCPUs: 500_000_000, MemoryBytes: 64 << 20, Pids: 50}
	id := startLimited(t, e, first, "sleep 1000")
	want := func(cpu, memory, pids string) {
		t.Helper()
		if c, m, p := kernelLimits(t, e, id); c != cpu || m != memory || p != pids {
			t.Errorf("cpu %q, memory %q, pids %q; want %q, %q, %q", c, m, p, cpu, memory, pids)
		}
	}
	update := func(l Limits) {
		t.Helper()
		if err := e.UpdateContainer(t.Context(), id, l); err != nil {
			t.Error(err)
		}
	}
	restart := func() {
		t.Helper()
		if err := e.StopContainer(t.Context(), id, 0); err != nil {
			t.Fatal(err)
		}
		if err := e.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	want("50000", "67108864", "50")
	update(Limits{})
	want("", "", "")
	restart()
	want("", "", "")
	update(Limits{NanoCPUs: 1_500_000_000, MemoryBytes: 32 << 20, Pids: 20})
	want("150000", "33554432", "20")
	update(Limits{MemoryBytes: 128 << 20})
	want("", "134217728", "")
	restart()
	want("", "134217728", "")

	id = startLimited(t, e, Limits{}, "sleep 1000")
	want("", "", "")
	update(Limits{})
	want("", "", "")
	update(first)
	want("50000", "67108864", "50")
}

// Swap is not added on top.
func TestMemoryLimitCountsSwap(t *testing.T) {
	_, e := private(t)
	info, err := e.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !info.SwapLimit {
		t.Skip("this kernel does not account for swap")
	}
	id := startLimited(t, e, Limits{MemoryBytes: 64 << 20}, "sleep 1000")
	swap := cgroup(t, detail(t, e, id).Pid, "memory", "memory.memsw.limit_in_bytes", "memory.swap.max")
	if swap != "67108864" && swap != "0" { // v1: both together; v2: swap alone
		t.Errorf("swap: %s", swap)
	}
}

func TestMemoryLimitBelowUse(t *testing.T) {
	_, e := private(t)
	l := Limits{NanoCPUs: 500_000_000, MemoryBytes: 256 << 20, Pids: 50}
	id := startLimited(t, e, l, `x=$(busybox head -c 50000000 /dev/zero | busybox tr '\0' x); : > /tmp/full; sleep 1000; :`)
	for i := 0; ; i++ {
		if _, err := e.StatPath(t.Context(), id, "/tmp/full"); err == nil {
			break
		} else if !errdefs.IsNotFound(err) || i > 400 {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	err := e.UpdateContainer(t.Context(), id, Limits{NanoCPUs: 1_000_000_000, MemoryBytes: 16 << 20, Pids: 20})
	wantClass(t, err, errdefs.ErrInternal)
	if d := detail(t, e, id); !d.Running || d.Limits != l {
		t.Errorf("after the refusal: %+v", d)
	}
	if cpu, memory, pids := kernelLimits(t, e, id); cpu != "50000" || memory != "268435456" || pids != "50" {
		t.Errorf("after the refusal: cpu %q, memory %q, pids %q", cpu, memory, pids)
	}
}

func TestCPUsLimitedByOthers(t *testing.T) {
	d, e := private(t)
	id := startLimited(t, e, Limits{}, "sleep 1000")
	raw, err := client.NewClientWithOpts(client.WithHost(d.Host()), client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	other := container.UpdateConfig{Resources: container.Resources{NanoCPUs: 1_000_000_000}}
	if _, err := raw.ContainerUpdate(t.Context(), id, other); err != nil {
		t.Fatal(err)
	}
	if got := detail(t, e, id).Limits; got != (Limits{NanoCPUs: 1_000_000_000}) {
		t.Errorf("%+v", got)
	}
	wantClass(t, e.UpdateContainer(t.Context(), id, Limits{NanoCPUs: 500_000_000}), errdefs.ErrFailedPrecondition)
}

// This needs an engine in our own network namespace: the default one.
func TestPortThatSomethingElseHolds(t *testing.T) {
	e, _ := newEngine(t, "")
	image := uniqueName() + ":1"
	busybox.Import(t, "", image)
	n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: uniqueName()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.RemoveNetwork(context.Background(), n.ID); err != nil {
			t.Error(err)
		}
	})
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: image, Cmd: []string{"sleep", "1000"}, NetworkID: n.ID,
		Ports: []Port{
			{ContainerPort: 80, HostPort: uint16(tcp.Addr().(*net.TCPAddr).Port), Protocol: "tcp"},
			{ContainerPort: 80, HostPort: uint16(udp.LocalAddr().(*net.UDPAddr).Port), Protocol: "udp"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.RemoveContainer(context.Background(), id); err != nil {
			t.Error(err)
		}
	})
	wantClass(t, e.StartContainer(t.Context(), id), errdefs.ErrFailedPrecondition)
	tcp.Close()
	wantClass(t, e.StartContainer(t.Context(), id), errdefs.ErrFailedPrecondition)
	udp.Close()
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Error(err)
	}
}

func TestArchiveKeepsOwnersAndReachesMounts(t *testing.T) {
	_, e := private(t)
	source := t.TempDir()
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1", Cmd: []string{"sh", "-c", "busybox stat -c '%u:%g %a' /d /d/f /d/l /e /e/f > /tmp/out"},
		User: "nobody", Mounts: []Mount{{Source: source, Target: "/m", Writable: true}, {Source: source, Target: "/ro"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	archive := func(headers ...tar.Header) *bytes.Buffer {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &buf
	}
	err = e.WriteTar(t.Context(), id, "/", time.Minute, archive(
		tar.Header{Name: "./tmp", Typeflag: tar.TypeDir, Mode: 0o1777, Uid: 65534},
		tar.Header{Name: "./d", Typeflag: tar.TypeDir, Mode: 0o750, Uid: 65534, Gid: 1001},
		tar.Header{Name: "./d/f", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 1002, Gid: 1003},
		tar.Header{Name: "./d/l", Typeflag: tar.TypeSymlink, Linkname: "/nowhere", Uid: 1004, Gid: 1005},
		tar.Header{Name: "./e/f", Typeflag: tar.TypeReg, Mode: 0o600, Uid: 1002, Gid: 1003},
		tar.Header{Name: "./m/f", Typeflag: tar.TypeReg, Mode: 0o600, Uid: 1002, Gid: 1003},
	))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if !detail(t, e, id).Running {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	got, err := e.ReadContainerFile(t.Context(), id, "/tmp/out", 1000)
	if want := "65534:1001 750\n1002:1003 4755\n1004:1005 777\n0:0 755\n1002:1003 600\n"; err != nil || string(got) != want {
		t.Errorf("owners and modes %q, want %q; %v", got, want, err)
	}
	st, err := os.Stat(filepath.Join(source, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 1002 || sys.Gid != 1003 {
		t.Errorf("in the mount: %d:%d", sys.Uid, sys.Gid)
	}
	for dir, name := range map[string]string{"/": "./ro/x", "/ro": "./x"} {
		err := e.WriteTar(t.Context(), id, dir, time.Minute, archive(tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600}))
		wantClass(t, err, errdefs.ErrInternal)
	}
}
