package dockerx

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// ContainerSpec is what a container is made from. Empty fields leave the image's value.
//
// What can't be chosen: the engine's default seccomp profile and capabilities, never privileged, never a namespace of
// the host, no restart policy, no auto-remove, and a log of PID 1 of at most 1 MB.
type ContainerSpec struct {
	Name, Image     string
	Entrypoint, Cmd []string // a set Entrypoint drops the image's Cmd
	Env             []string // KEY=VALUE, over the image's
	User            string   // name or UID, with an optional :group
	WorkingDir      string
	Hostname        string // default: the short container ID
	Labels          map[string]string
	// Mounts are bind mounts. The source must exist when the container is created and at each start.
	Mounts []Mount
	// NetworkID is the full ID of the network to join, never a name. Empty: no network at all.
	NetworkID string
	// NetworkAliases are further DNS names on that network.
	NetworkAliases []string
	// Init runs the engine's own init as PID 1. Nil: the engine's default, which is not to.
	Init *bool
	// StopSignal is a name such as "SIGINT". Empty: the image's, else TERM.
	StopSignal string
	// Healthcheck replaces the image's own. Nil: the image's.
	Healthcheck *Healthcheck
	Limits      Limits
	// DiskBytes bounds the writable layer. 0: no bound. Info.DiskLimit says whether the engine can.
	DiskBytes int64
	// GPUs is "all", a count, or a comma-separated list of device IDs. Empty: none.
	GPUs string
	// Runtime is one of Info.Runtimes. Empty: the engine's default.
	Runtime string
	// Ports are published on 127.0.0.1 and nowhere else.
	Ports []Port
}

// Healthcheck is how the engine finds out whether a container is well. Zero durations and retries mean the engine's
// defaults.
type Healthcheck struct {
	// Test is {"CMD", program, args...}, {"CMD-SHELL", line} or {"NONE"}.
	Test                           []string
	Interval, Timeout, StartPeriod time.Duration
	// StartInterval needs API 1.44.
	StartInterval time.Duration
	Retries       int
}

// Limits are what can be changed while a container exists. 0: no limit.
type Limits struct {
	NanoCPUs    int64
	MemoryBytes int64 // swap is not added on top where the engine can account for it
	Pids        int64
}

// Port is one published port. HostPort 0: the engine chooses one at each start.
type Port struct {
	ContainerPort, HostPort uint16
	Protocol                string // "tcp" or "udp"
}

// CreateContainer makes a container and returns its ID; it does not start it.
//
// Errors: ErrAlreadyExists when the name is taken, by whatever; ErrNotFound when the image is not there (a network that
// does not exist is found out at the start); ErrInvalidArgument for anything else in the spec that the engine does not
// take, such as a mount whose source does not exist; ErrUnavailable.
func (e *Engine) CreateContainer(ctx context.Context, spec ContainerSpec) (string, error) {
	if spec.NetworkID != "" && !isFullID(spec.NetworkID) {
		return "", fmt.Errorf("create container %s: network %q is no full network ID: %w",
			spec.Name, spec.NetworkID, errdefs.ErrInvalidArgument)
	}
	var id string
	err := e.do(ctx, OpCreateContainer, func(ctx context.Context, c *client.Client) error {
		resp, err := c.ContainerCreate(ctx, spec.config(), spec.hostConfig(), spec.networking(), nil, spec.Name)
		id = resp.ID
		return reclass(err, errdefs.IsConflict, errdefs.ErrAlreadyExists)
	})
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", spec.Name, err)
	}
	return id, nil
}

// isFullID keeps words that mean something else to the engine, such as "host", out of the network mode.
func isFullID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == 32
}

func (s *ContainerSpec) config() *container.Config {
	return &container.Config{
		Image:      s.Image,
		Entrypoint: s.Entrypoint,
		Cmd:        s.Cmd,
		Env:        s.Env,
		User:       s.User,
		WorkingDir: s.WorkingDir,
		Hostname:   s.Hostname,
		Labels:     s.Labels,
		StopSignal: s.StopSignal,
	}
}

func (s *ContainerSpec) hostConfig() *container.HostConfig {
	mode := container.NetworkMode(network.NetworkNone)
	if s.NetworkID != "" {
		mode = container.NetworkMode(s.NetworkID)
	}
	return &container.HostConfig{
		NetworkMode:   mode,
		Mounts:        s.mounts(),
		Init:          s.Init,
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:     container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "1"}},
	}
}

// mounts uses the long form, which refuses a source that does not exist; the short one makes a directory of root's.
func (s *ContainerSpec) mounts() []mount.Mount {
	out := make([]mount.Mount, len(s.Mounts))
	for i, m := range s.Mounts {
		out[i] = mount.Mount{Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: !m.Writable}
	}
	return out
}

func (s *ContainerSpec) networking() *network.NetworkingConfig {
	if s.NetworkID == "" {
		return nil
	}
	return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
		s.NetworkID: {Aliases: s.NetworkAliases},
	}}
}
