package dockerx

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
)

func fromSummary(raw *container.Summary) Container {
	c := Container{
		ID:      raw.ID,
		Labels:  raw.Labels,
		State:   State(raw.State),
		Created: time.Unix(raw.Created, 0).UTC(),
	}
	if len(raw.Names) > 0 {
		c.Name = strings.TrimPrefix(raw.Names[0], "/")
	}
	if raw.NetworkSettings != nil {
		c.Networks = networkIDs(raw.NetworkSettings.Networks)
	}
	c.Networks = orWanted(c, raw.HostConfig.NetworkMode)
	c.Health, c.EndedWell = listedHealth(c.State, raw.Status), listedEndedWell(c.State, raw.Status)
	return c
}

func fromInspect(raw *container.InspectResponse) ContainerDetail {
	state, host, config := raw.State, raw.HostConfig, raw.Config
	d := ContainerDetail{
		Container: Container{
			ID: raw.ID, Name: strings.TrimPrefix(raw.Name, "/"), Created: parseTime(raw.Created), Labels: config.Labels,
			State: State(state.Status), Networks: networkIDs(raw.NetworkSettings.Networks),
			EndedWell: state.Status == container.StateExited && state.ExitCode == 0,
		},
		Running: state.Running, Paused: state.Paused, OOMKilled: state.OOMKilled, ExitCode: state.ExitCode, Pid: state.Pid,
		StartedAt: parseTime(state.StartedAt), FinishedAt: parseTime(state.FinishedAt),
		Image: raw.Image, ImageRef: config.Image, Env: config.Env, Entrypoint: config.Entrypoint, Cmd: config.Cmd,
		User: config.User, WorkingDir: config.WorkingDir, Hostname: config.Hostname,
		Healthcheck: (*Healthcheck)(config.Healthcheck),
		Limits:      limitsOf(&host.Resources), Runtime: host.Runtime, GPUs: gpusOf(host.DeviceRequests),
		ReadOnlyRoot: host.ReadonlyRootfs, Unconfined: slices.Contains(host.SecurityOpt, noSeccomp),
	}
	d.Networks = orWanted(d.Container, string(host.NetworkMode))
	d.Health, d.HealthOutput = healthOf(state.Health, d.Healthcheck, d.Running, d.StartedAt)
	d.DiskBytes, _ = strconv.ParseInt(host.StorageOpt[diskQuotaOption], 10, 64)
	if d.Running {
		d.Ports = portsOf(raw.NetworkSettings.Ports)
	}
	for _, m := range raw.Mounts {
		one := Mount{Source: m.Source, Target: m.Destination, Writable: m.RW}
		if m.Type == mount.TypeVolume {
			one.Volume = m.Name
		}
		d.Mounts = append(d.Mounts, one)
	}
	return d
}

// networkIDs returns the sorted IDs. An endpoint has none before the first start. The predefined network "none" stands for
// no network.
func networkIDs(endpoints map[string]*network.EndpointSettings) []string {
	var ids []string
	for name, e := range endpoints {
		if e != nil && e.NetworkID != "" && name != network.NetworkNone {
			ids = append(ids, e.NetworkID)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// orWanted returns the networks of c or, before its first start, the network that it was created on.
func orWanted(c Container, mode string) []string {
	if c.State == StateCreated && len(c.Networks) == 0 && isFullID(mode) {
		return []string{mode}
	}
	return c.Networks
}

// parseTime parses the engine's times. The engine reports "never" as Go's zero time.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
