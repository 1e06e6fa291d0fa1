package dockerx

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// State is the state of a container, as Docker names it.
type State string

// The states of a container.
const (
	StateCreated    State = "created" // never started
	StateRunning    State = "running"
	StatePaused     State = "paused" // its processes are frozen
	StateRestarting State = "restarting"
	StateRemoving   State = "removing"
	StateExited     State = "exited"
	StateDead       State = "dead" // a removal failed halfway; remove it again
)

// Container is one container as a list shows it.
type Container struct {
	ID     string
	Name   string // without the leading slash of the engine's answers
	Labels map[string]string
	State  State
	// Networks are the IDs of the networks that it is attached to or, before its first start, will be attached to.
	Networks []string
	// Created has a resolution of one second in a list.
	Created time.Time
	// Health is the verdict of the container's healthcheck. ListContainers parses it from the status text, the only source
	// that needs no call per container, so it is a hint there: empty for a paused container, and unhealthy for an unpaused one
	// until its next probe. InspectContainer derives it from the recorded probes.
	Health Health
	// EndedWell: the container has exited with code 0.
	EndedWell bool
}

// Health is the verdict of a healthcheck, as Docker names it.
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
	// Volume is the name of the volume, with Source the host path of its content. Empty: a bind mount.
	Volume string
}

// ContainerDetail is one container as an inspection shows it.
type ContainerDetail struct {
	Container
	// Running is true for a paused container too.
	Running, Paused bool
	// OOMKilled is sticky: some process of the container was killed for lack of memory during this run, not necessarily PID 1.
	OOMKilled bool
	// ExitCode is valid once exited.
	ExitCode int
	// StartedAt and FinishedAt are zero for a container that never started or never exited. FinishedAt of the previous run is kept.
	StartedAt, FinishedAt time.Time
	// Pid is the host's PID of the container's PID 1; 0 when not running.
	Pid int
	// Image is the ID of the image; ImageRef is the reference that the container was created from, which may name another image now.
	Image, ImageRef string
	// Entrypoint, Cmd, User and WorkingDir are the effective values: the image's where the spec set none.
	Entrypoint, Cmd  []string
	User, WorkingDir string
	// Env is KEY=VALUE: the spec's variables, then those that only the image sets. It may hold secrets: never log it.
	Env []string
	// Hostname is the short container ID where the spec set none.
	Hostname string
	// Runtime is one of Info.Runtimes, also where the spec left the choice to the engine.
	Runtime string
	// Healthcheck is the spec's or the image's; nil when neither has one.
	Healthcheck *Healthcheck
	// DiskBytes is as in ContainerSpec; 0 also for a limit that another client wrote with a unit.
	DiskBytes int64
	// ReadOnlyRoot and Unconfined are as in Security.
	ReadOnlyRoot, Unconfined bool
	// GPUs is as in ContainerSpec.
	GPUs   string
	Mounts []Mount
	// HealthOutput is the end of the output of the last probe of the present run, or of the last run: valid UTF-8 of at most
	// 1 KiB. The engine keeps 4 KiB of each probe's output.
	HealthOutput string
	// Limits are those in force or, when not running, those of the next start.
	Limits Limits
	// Ports are the published ports with this run's host ports; none when not running.
	Ports []Port
}

// ListContainers returns all containers, in any state, that have all the labels; an empty value matches the key alone.
// It is one engine call. Errors: ErrUnavailable.
func (e *Engine) ListContainers(ctx context.Context, labels map[string]string) ([]Container, error) {
	return ask(ctx, e, OpListContainers, "list containers", func(ctx context.Context, c *client.Client) ([]Container, error) {
		raw, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: labelFilter(labels)})
		out := make([]Container, len(raw))
		for i := range raw {
			out[i] = fromSummary(&raw[i])
		}
		return out, err
	})
}

// InspectContainer returns one container by ID or name. Errors: ErrNotFound, ErrUnavailable.
func (e *Engine) InspectContainer(ctx context.Context, id string) (ContainerDetail, error) {
	return ask(ctx, e, OpInspectContainer, "inspect container "+id, func(ctx context.Context, c *client.Client) (ContainerDetail, error) {
		raw, err := inspect(ctx, c, id)
		if err != nil {
			return ContainerDetail{}, err
		}
		return fromInspect(raw), nil
	})
}

// MeasureContainer returns the size in bytes of a container's writable layer: all that it has written outside of mounts and volumes. Where
// the storage driver knows no better, the engine adds up the lengths of all files, also the holes of sparse ones. When the caller leaves,
// the engine completes the walk. Errors: ErrNotFound; ErrUnavailable, also if the engine has no size to tell.
func (e *Engine) MeasureContainer(ctx context.Context, id string) (int64, error) {
	return ask(ctx, e, OpMeasureContainer, "measure container "+id, func(ctx context.Context, c *client.Client) (int64, error) {
		raw, _, err := c.ContainerInspectWithRaw(ctx, id, true)
		if err != nil {
			return 0, err
		}
		if raw.ContainerJSONBase == nil || raw.SizeRw == nil || *raw.SizeRw < 0 { // -1: the walk failed
			return 0, fmt.Errorf("the engine's answer has no size: %w", errdefs.ErrUnavailable)
		}
		return *raw.SizeRw, nil
	})
}

// inspect returns the engine's answer about a container. Each of its parts is set: an answer that lacks one is ErrUnavailable.
func inspect(ctx context.Context, c *client.Client, id string) (*container.InspectResponse, error) {
	raw, err := c.ContainerInspect(ctx, id)
	if err != nil {
		return nil, err
	}
	if raw.ContainerJSONBase == nil || raw.State == nil || raw.HostConfig == nil || raw.Config == nil || raw.NetworkSettings == nil {
		return nil, fmt.Errorf("the engine's answer is incomplete: %w", errdefs.ErrUnavailable)
	}
	return &raw, nil
}

// StopContainer sends the container's stop signal (TERM unless its spec or image sets another), and KILL after the grace
// period, which is rounded up to whole seconds. It returns when the container has exited; a container that is not running
// or does not exist is a success. The deadline is the grace period plus Deadline(OpStopContainer). When the caller cancels,
// the engine still completes the stop. Errors: ErrUnavailable.
func (e *Engine) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	seconds := int((max(grace, 0) + time.Second - 1) / time.Second)
	within := time.Duration(seconds)*time.Second + Deadline(OpStopContainer)
	return about("stop container "+id, e.doWithin(ctx, OpStopContainer, within, func(ctx context.Context, c *client.Client) error {
		thawForeign(ctx, c, id)
		return ignore(c.ContainerStop(ctx, id, container.StopOptions{Timeout: &seconds}), errdefs.IsNotFound)
	}))
}

// engineRuntime is the engine's own runtime.
const engineRuntime = "runc"

// thawForeign unpauses a paused container of another runtime than the engine's own before it is signalled. gVisor takes no signal while it is
// frozen: the engine kills its process after seconds, and can never start the container again, because the runtime keeps it as paused
// (observed with 20.10). If the unpause fails, the caller's call still ends the container.
func thawForeign(ctx context.Context, c *client.Client, id string) {
	ct, err := inspect(ctx, c, id)
	if err == nil && ct.State.Paused && ct.HostConfig.Runtime != engineRuntime && ct.HostConfig.Runtime != "" {
		_ = c.ContainerUnpause(ctx, id)
	}
}

// RemoveContainer removes a container in any state, with its writable layer and anonymous volumes; a running one is killed
// first. One that does not exist is a success. Errors: ErrAborted when another removal of it is in progress; ErrUnavailable.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	return e.do(ctx, OpRemoveContainer, "remove container "+id, func(ctx context.Context, c *client.Client) error {
		thawForeign(ctx, c, id)
		err := c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		return reclass(ignore(err, errdefs.IsNotFound), errdefs.IsConflict, errdefs.ErrAborted)
	})
}
