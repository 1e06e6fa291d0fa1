package dockerx

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
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
	// Health is what the container's healthcheck says; a list may be a little behind.
	Health Health
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
	// Image is the ID of the image.
	Image  string
	Mounts []Mount
	// Error is the engine's text on why the last start did not work, or empty.
	Error string
	// HealthOutput is the end of what the last probe printed, at most 1 KiB.
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

// StartContainer starts a container that was created or has ended; one that runs is left as it is.
//
// Errors: ErrNotFound when the container, or the network it was created on, is gone; ErrFailedPrecondition when it is
// paused or being removed, or when its network shares its name with another one (20.10 keeps the name, not the ID, and
// refuses: remove the double and try again); ErrInvalidArgument when it can't run as specified: no such program, a
// mount source that is gone (a user that the image does not have is ErrInternal on 20.10); ErrUnavailable.
func (e *Engine) StartContainer(ctx context.Context, id string) error {
	err := e.do(ctx, OpStartContainer, func(ctx context.Context, c *client.Client) error {
		err := reclass(c.ContainerStart(ctx, id, container.StartOptions{}), errdefs.IsConflict, errdefs.ErrFailedPrecondition)
		if errdefs.IsInvalidArgument(err) && onDoubledNetwork(ctx, c, id) {
			return reclass(err, errdefs.IsInvalidArgument, errdefs.ErrFailedPrecondition)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	return nil
}

// onDoubledNetwork reports whether a container that did not start is on a network whose name another network has. The
// refusal has the same status as that of a bad command, so the engine is asked. False when it does not say.
func onDoubledNetwork(ctx context.Context, c *client.Client, id string) bool {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil || raw.NetworkSettings == nil {
		return false
	}
	for name := range raw.NetworkSettings.Networks {
		f := filters.NewArgs(filters.Arg("name", name))
		networks, err := c.NetworkList(ctx, listNetworks(f))
		same := 0
		for i := range networks { // the filter matches parts of names
			if networks[i].Name == name {
				same++
			}
		}
		if err == nil && same > 1 {
			return true
		}
	}
	return false
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
