package dockerx

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
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
	d := ContainerDetail{Container: Container{
		ID:      raw.ID,
		Name:    strings.TrimPrefix(raw.Name, "/"),
		Created: parseTime(raw.Created),
	}, Image: raw.Image}
	d.readConfig(raw.Config)
	if s := raw.State; s != nil {
		d.State, d.Running, d.Paused, d.OOMKilled = State(s.Status), s.Running, s.Paused, s.OOMKilled
		d.ExitCode, d.Pid = s.ExitCode, s.Pid
		d.StartedAt, d.FinishedAt = parseTime(s.StartedAt), parseTime(s.FinishedAt)
		d.EndedWell = d.State == StateExited && d.ExitCode == 0
		d.Health, d.HealthOutput = healthOf(s.Health, d.Healthcheck, d.Running, d.StartedAt)
	}
	if raw.NetworkSettings != nil {
		d.Networks = networkIDs(raw.NetworkSettings.Networks)
		if d.Running {
			d.Ports = portsOf(raw.NetworkSettings.Ports)
		}
	}
	if raw.HostConfig != nil {
		d.Networks = orWanted(d.Container, string(raw.HostConfig.NetworkMode))
		d.Limits = limitsOf(&raw.HostConfig.Resources)
		d.Runtime, d.GPUs = raw.HostConfig.Runtime, gpusOf(raw.HostConfig.DeviceRequests)
		d.DiskBytes, _ = strconv.ParseInt(raw.HostConfig.StorageOpt[diskQuotaOption], 10, 64)
	}
	for _, m := range raw.Mounts {
		d.Mounts = append(d.Mounts, Mount{Source: m.Source, Target: m.Destination, Writable: m.RW})
	}
	return d
}

func (d *ContainerDetail) readConfig(c *container.Config) {
	if c == nil {
		return
	}
	d.Labels, d.ImageRef, d.Env, d.Entrypoint, d.Cmd = c.Labels, c.Image, c.Env, c.Entrypoint, c.Cmd
	d.User, d.WorkingDir, d.Hostname = c.User, c.WorkingDir, c.Hostname
	d.Healthcheck = (*Healthcheck)(c.Healthcheck)
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
