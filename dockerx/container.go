package dockerx

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// State is the state of a container, in Docker's words.
type State string

// The states of a container.
const (
	StateCreated    State = "created" // never started
	StateRunning    State = "running"
	StatePaused     State = "paused" // its processes are frozen
	StateRestarting State = "restarting"
	StateRemoving   State = "removing"
	StateExited     State = "exited"
	StateDead       State = "dead" // a removal that went wrong half-way; remove it again
)

// Container is one container as a list shows it.
type Container struct {
	ID     string
	Name   string // without the leading slash of the engine's answers
	Labels map[string]string
	State  State
	// Networks are the IDs of the networks that it is attached to, or, while it was never started, will be.
	Networks []string
	// Created has a resolution of one second in a list.
	Created time.Time
	// Health is what the container's healthcheck says. In a list it is a hint: read out of a text for people, the only
	// source that costs no call for each container. A list does not show that of a paused container, and shows one that was
	// thawed as unhealthy until its next probe; an inspection has the verdict of the last probes.
	Health Health
	// EndedWell: it has exited, with code 0.
	EndedWell bool
}

// Health is the verdict of a healthcheck, in Docker's words.
type Health string

// The verdicts.
const (
	HealthNone      Health = "" // no healthcheck, or not running
	HealthStarting  Health = "starting"
	HealthHealthy   Health = "healthy"
	HealthUnhealthy Health = "unhealthy"
)

// Mount is a bind mount, or a volume as seen on an existing container.
type Mount struct {
	Source, Target string // absolute paths, on the host and in the container
	Writable       bool
}

// ContainerDetail is one container as an inspection shows it.
type ContainerDetail struct {
	Container
	// Running is true for a paused container too.
	Running, Paused bool
	// OOMKilled is sticky: it says that some process of the container met the OOM killer in this run, not that this ended it.
	OOMKilled bool
	// ExitCode is valid once exited.
	ExitCode int
	// StartedAt and FinishedAt are zero when it was never started, or never ended. FinishedAt of an earlier run stays.
	StartedAt, FinishedAt time.Time
	// Pid is that of the container's PID 1 on the host, 0 when not running.
	Pid int
	// Image is the ID of the image, and ImageRef the reference that the container was made with, wherever it points now.
	Image, ImageRef string
	// Entrypoint, Cmd, User and WorkingDir are those in force: the image's where the spec said nothing.
	Entrypoint, Cmd  []string
	User, WorkingDir string
	// Env is KEY=VALUE, the spec's first, then what only the image has. It may hold secrets: never log it.
	Env []string
	// Hostname is the short container ID where the spec said nothing.
	Hostname string
	// Runtime is a name of Info.Runtimes, also where the spec left it to the engine.
	Runtime string
	// Healthcheck is the spec's or the image's; nil when neither has one.
	Healthcheck *Healthcheck
	// DiskBytes is as in ContainerSpec; 0 also for a bound that somebody else wrote with a unit.
	DiskBytes int64
	// GPUs is as in ContainerSpec.
	GPUs   string
	Mounts []Mount
	// Error is the engine's text on why the last start did not work, or empty.
	Error string
	// HealthOutput is the end of what the last probe of this run, or of the one that ended, printed: valid UTF-8 of at most
	// 1 KiB. The engine keeps 4 KiB of each probe's output.
	HealthOutput string
	// Limits are those in force, or that will be at the next start.
	Limits Limits
	// Ports are the published ports with the host's ports of this run; none when not running.
	Ports []Port
}

// ListContainers returns all containers, in any state, that have all the labels; an empty value asks for the key alone.
// It is one engine call. Errors: ErrUnavailable.
func (e *Engine) ListContainers(ctx context.Context, labels map[string]string) ([]Container, error) {
	var out []Container
	err := e.do(ctx, OpListContainers, func(ctx context.Context, c *client.Client) error {
		raw, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: labelFilter(labels)})
		out = make([]Container, len(raw))
		for i := range raw {
			out[i] = fromSummary(&raw[i])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return out, nil
}

// InspectContainer returns one container by ID or name. Errors: ErrNotFound, ErrUnavailable.
func (e *Engine) InspectContainer(ctx context.Context, id string) (ContainerDetail, error) {
	var out ContainerDetail
	err := e.do(ctx, OpInspectContainer, func(ctx context.Context, c *client.Client) error {
		raw, err := c.ContainerInspect(ctx, id)
		if err == nil {
			out = fromInspect(&raw)
		}
		return err
	})
	if err != nil {
		return ContainerDetail{}, fmt.Errorf("inspect container %s: %w", id, err)
	}
	return out, nil
}

// StopContainer sends the container's stop signal (TERM unless its spec or image says otherwise), and KILL after the
// grace period, which counts in whole seconds and is rounded up. It returns when the container has ended. One that is
// not running or gone is a success. The deadline is the grace period plus Deadline(OpStopContainer). A call that is
// given up leaves the engine at it: the container will end all the same. Errors: ErrUnavailable.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := int((max(grace, 0) + time.Second - 1) / time.Second)
	within := time.Duration(seconds)*time.Second + Deadline(OpStopContainer)
	err := e.doWithin(ctx, OpStopContainer, within, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerStop(ctx, id, container.StopOptions{Timeout: &seconds})
		return ignore(err, errdefs.IsNotFound)
	})
	if err != nil {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// KillContainer sends KILL to the container's PID 1, which takes all its processes along, and returns when the engine
// has sent it, or seen the end. One that is not running or gone is a success. Errors: ErrUnavailable.
func (e *Engine) KillContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpKillContainer, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerKill(ctx, id, "KILL")
		return ignore(ignore(err, errdefs.IsNotFound), errdefs.IsConflict) // 409: not running
	})
	if err != nil {
		return fmt.Errorf("kill container %s: %w", id, err)
	}
	return nil
}

// RemoveContainer removes a container in any state, with its writable layer and anonymous volumes; it is killed first if
// it runs. One that is gone is a success. Errors: ErrAborted when another removal of it is under way; ErrUnavailable.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpRemoveContainer, func(ctx context.Context, c *client.Client) error {
		err := c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		return reclass(ignore(err, errdefs.IsNotFound), errdefs.IsConflict, errdefs.ErrAborted)
	})
	if err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}
