//go:build docker

package dockerx

import (
	"context"
	"net"
	"reflect"
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

// This needs an engine in the test's network namespace: the default one.
func TestStartWithAPortInUse(t *testing.T) {
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
