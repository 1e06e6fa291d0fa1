package dockerx

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// ContainerSpec describes a container to create. Empty fields leave the image's value.
//
// Fixed for every container: the engine's default seccomp profile and capabilities, never privileged, a private IPC
// namespace, never a namespace of the host but for the engine's default of cgroups, no restart policy, no auto-remove, and at most 1 MB of output kept, of which the newest half is always there.
type ContainerSpec struct {
	Name, Image     string
	Entrypoint, Cmd []string // a set Entrypoint drops the image's Cmd
	Env             []string // KEY=VALUE, overrides the image's
	User            string   // name or UID, with an optional :group
	WorkingDir      string
	Hostname        string // default: the short container ID
	Labels          map[string]string
	// Mounts are bind mounts. The source must exist when the container is created and at each start.
	Mounts []Mount
	// Volumes are named volumes, and volumes of the container.
	Volumes []VolumeMount
	// NetworkID is the full ID of the network to join, never a name. Empty: no network at all.
	NetworkID string
	// NetworkAliases are further DNS names on that network.
	NetworkAliases []string
	// DNS are the servers that the engine asks for names that it does not know, from the container's network. Empty: those of the engine.
	DNS []string
	// Init runs the engine's own init as PID 1. Nil: the engine's default, which runs none.
	Init *bool
	// StopSignal is a name such as "SIGINT". Empty: the image's, else TERM.
	StopSignal string
	// Healthcheck replaces the image's own. Nil: the image's.
	Healthcheck *Healthcheck
	Limits      Limits
	// Shm replaces the engine's /dev/shm, unless Mounts has that target. Nil: the engine's, with at most half of Limits.MemoryBytes.
	Shm *Shm
	// Sysctls are kernel settings of the container's own namespaces.
	Sysctls map[string]string
	// DiskBytes limits the writable layer. 0: no limit. Info.DiskLimit says whether the engine supports it.
	DiskBytes int64
	// GPUs is "all", a count, or a comma-separated list of device IDs. Empty: none.
	GPUs string
	// Runtime is one of Info.Runtimes. Empty: the engine's default.
	Runtime string
	// Ports are published on 127.0.0.1 and nowhere else.
	Ports    []Port
	Security Security
}

// Shm is the size of /dev/shm in bytes and its maximum number of files.
type Shm struct{ Bytes, Files int64 }

// Security restricts the processes of a container. The zero value is the engine's default.
type Security struct {
	// NoNewPrivileges prevents programs, such as setuid ones, from granting a process more privileges than it had.
	NoNewPrivileges bool
	// Unconfined turns the engine's filter of system calls off.
	Unconfined bool
	// ReadOnlyRoot makes the container's own file system read-only. Mounts, volumes and /dev/shm stay as they are.
	ReadOnlyRoot bool
	// PrivateCgroups gives the container a cgroup namespace of its own; the engine must have cgroup version 2. False: the engine's default.
	PrivateCgroups bool
	// CapDrop and CapAdd change the engine's default capabilities: names such as "NET_RAW", or "ALL".
	CapDrop, CapAdd []string
}

// Healthcheck is how the engine probes a container. Zero durations and retries mean the engine's defaults. Its fields are those
// of the SDK's container.HealthConfig.
type Healthcheck struct {
	// Test is {"CMD", program, args...}, {"CMD-SHELL", line} or {"NONE"}.
	Test                           []string
	Interval, Timeout, StartPeriod time.Duration
	// StartInterval needs API 1.44.
	StartInterval time.Duration
	Retries       int
}

// CreateContainer creates a container and returns its ID; it does not start it.
//
// Errors: ErrAlreadyExists when any container has the name; ErrNotFound when the image does not exist locally (a missing
// network is only detected by the start); ErrInvalidArgument for anything else in the spec that the engine rejects, such as
// a mount whose source does not exist, an unknown runtime, a start interval that the engine does not support, or ports
// without a network; ErrUnavailable. A DiskBytes that the storage driver does not support is ErrInternal (20.10) or ignored
// (containerd's image store), so check Info.DiskLimit first. The engine ignores limits that its kernel does not support;
// check Info for those, too.
func (e *Engine) CreateContainer(ctx context.Context, spec ContainerSpec) (string, error) {
	what := "create container " + spec.Name
	if err := spec.Check(); err != nil {
		return "", about(what, err)
	}
	return ask(ctx, e, OpCreateContainer, what, func(ctx context.Context, c *client.Client) (string, error) {
		if err := spec.Healthcheck.checkVersion(c.ClientVersion()); err != nil {
			return "", err
		}
		word, err := networkWord(ctx, c, spec.NetworkID)
		if err != nil {
			return "", err
		}
		resp, err := c.ContainerCreate(ctx, spec.config(), spec.hostConfig(word), spec.networking(word), nil, spec.Name)
		return resp.ID, reclass(err, errdefs.IsConflict, errdefs.ErrAlreadyExists)
	})
}

// networkWord returns the key by which a container refers to its network. For an engine that starts a container only with the
// network of that very ID, it returns the name, so that a recreated network can replace a removed one.
func networkWord(ctx context.Context, c *client.Client, id string) (string, error) {
	if id == "" || !isLoose(c.ClientVersion()) {
		return id, nil
	}
	raw, err := c.NetworkInspect(ctx, id, network.InspectOptions{})
	if errdefs.IsNotFound(err) {
		return id, nil // the start reports it
	}
	return raw.Name, err
}
