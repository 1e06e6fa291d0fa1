package dockerx

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
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
	// Shm replaces the engine's /dev/shm, unless something is mounted there. Nil: the engine's, with half of Limits.MemoryBytes at most.
	Shm *Shm
	// Sysctls are kernel settings of the container's own namespaces.
	Sysctls map[string]string
	// DiskBytes bounds the writable layer. 0: no bound. Info.DiskLimit says whether the engine can.
	DiskBytes int64
	// GPUs is "all", a count, or a comma-separated list of device IDs. Empty: none.
	GPUs string
	// Runtime is one of Info.Runtimes. Empty: the engine's default.
	Runtime string
	// Ports are published on 127.0.0.1 and nowhere else.
	Ports    []Port
	Security Security
}

// Shm is a /dev/shm of so many bytes and files.
type Shm struct{ Bytes, Files int64 }

// Security is what the processes of a container may do. The zero value is the engine's default.
type Security struct {
	// NoNewPrivileges: no program gives its process more than it had, such as one that is setuid.
	NoNewPrivileges bool
	// CapDrop and CapAdd change the engine's default set of capabilities. They are names such as "NET_RAW"; "ALL" is all.
	CapDrop, CapAdd []string
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

// CreateContainer makes a container and returns its ID; it does not start it.
//
// Errors: ErrAlreadyExists when the name is taken, by whatever; ErrNotFound when the image is not there (a network that
// does not exist is found out at the start); ErrInvalidArgument for anything else in the spec that the engine does not
// take, such as a mount whose source does not exist, a runtime that it does not have, a start interval that it does not
// understand, or ports without a network; ErrUnavailable. A DiskBytes that the storage driver can't keep is ErrInternal
// (20.10) or dropped (containerd's image store), so look at Info.DiskLimit first. The engine drops a limit that its kernel can't keep, with a warning that
// nobody reads: look at Info for those too.
func (e *Engine) CreateContainer(ctx context.Context, spec ContainerSpec) (string, error) {
	if err := spec.Check(); err != nil {
		return "", fmt.Errorf("create container %s: %w", spec.Name, err)
	}
	var id string
	err := e.do(ctx, OpCreateContainer, func(ctx context.Context, c *client.Client) error {
		if err := spec.Healthcheck.checkVersion(c.ClientVersion()); err != nil {
			return err
		}
		word, err := networkWord(ctx, c, spec.NetworkID)
		if err != nil {
			return err
		}
		resp, err := c.ContainerCreate(ctx, spec.config(), spec.hostConfig(word), spec.networking(word), nil, spec.Name)
		id = resp.ID
		return reclass(err, errdefs.IsConflict, errdefs.ErrAlreadyExists)
	})
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", spec.Name, err)
	}
	return id, nil
}

// networkWord returns the word under which a container keeps its network. An engine that would never start a container without
// the very network of an ID gets the name, so that one that is made again can take its place.
func networkWord(ctx context.Context, c *client.Client, id string) (string, error) {
	if id == "" || !isLoose(c.ClientVersion()) {
		return id, nil
	}
	raw, err := c.NetworkInspect(ctx, id, network.InspectOptions{})
	if errdefs.IsNotFound(err) {
		return id, nil // the start finds that out
	}
	return raw.Name, err
}
