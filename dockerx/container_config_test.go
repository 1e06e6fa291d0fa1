package dockerx

import (
	"testing"

	"github.com/docker/docker/api/types/container"
)

func TestGPURequestRoundTrip(t *testing.T) {
	for _, gpus := range []string{"", "all", "3", "a", "a,b"} {
		requests, err := gpuRequest(gpus)
		if err != nil {
			t.Fatal(err)
		}
		other := container.DeviceRequest{Count: -1, Capabilities: [][]string{{"tpu"}}}
		if got := gpusOf(append([]container.DeviceRequest{other}, requests...)); got != gpus {
			t.Errorf("%q: gpusOf returned %q", gpus, got)
		}
	}
}

func TestDiskBytesRoundTrip(t *testing.T) {
	spec := ContainerSpec{DiskBytes: 12345}
	raw := container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{State: &container.State{}, HostConfig: spec.hostConfig("")},
		Config:            spec.config(), NetworkSettings: &container.NetworkSettings{},
	}
	if d := fromInspect(&raw); d.DiskBytes != 12345 {
		t.Errorf("%d bytes", d.DiskBytes)
	}
	raw.HostConfig.StorageOpt = map[string]string{diskQuotaOption: "10G"} // set by another client
	if d := fromInspect(&raw); d.DiskBytes != 0 {
		t.Errorf("%d bytes", d.DiskBytes)
	}
}

func TestNamespacesArePrivate(t *testing.T) {
	for _, private := range []bool{false, true} {
		spec := ContainerSpec{Security: Security{PrivateCgroups: private}}
		h := spec.hostConfig("")
		if h.IpcMode != container.IPCModePrivate || h.CgroupnsMode.IsPrivate() != private || h.CgroupnsMode.IsHost() {
			t.Errorf("private cgroups %v: IPC %q, cgroups %q", private, h.IpcMode, h.CgroupnsMode)
		}
	}
}
