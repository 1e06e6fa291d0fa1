//go:build docker

package dockerx

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

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

// cgroup reads a value that the kernel keeps for a process: the v1 file of a controller, or the v2 file.
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

// kernelLimits returns a container's limits as the kernel has them; "" for none.
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

// The memory limit includes swap.
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

func TestCPUsLimitedByAnotherClient(t *testing.T) {
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
