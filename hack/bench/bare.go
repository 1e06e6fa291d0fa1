package main

import (
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/nat"
)

// bare makes the Docker API calls that a sandbox needs at least: a network, a container with an init, an exec.
type bare struct{ c *client.Client }

func newBare(ctx context.Context) (*bare, error) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	if _, err := c.Ping(ctx); err != nil {
		return nil, fmt.Errorf("no engine: %w", err)
	}
	return &bare{c}, nil
}

func (b *bare) close() { _ = b.c.Close() }

func (b *bare) create(ctx context.Context, id string) error { return b.start(ctx, id, nil) }

func (b *bare) start(ctx context.Context, id string, published nat.PortMap) error {
	n, err := b.c.NetworkCreate(ctx, id, network.CreateOptions{Driver: "bridge"})
	if err != nil {
		return err
	}
	yes := true
	exposed := nat.PortSet{}
	for port := range published {
		exposed[port] = struct{}{}
	}
	c, err := b.c.ContainerCreate(ctx, &container.Config{Image: image, Cmd: []string{"sleep", "100000"}, ExposedPorts: exposed},
		&container.HostConfig{Init: &yes, NetworkMode: container.NetworkMode(n.ID), PortBindings: published}, nil, nil, id)
	if err != nil {
		return err
	}
	return b.c.ContainerStart(ctx, c.ID, container.StartOptions{})
}

func (b *bare) exec(ctx context.Context, id string) error { return b.run(ctx, id, "true") }

func (b *bare) run(ctx context.Context, id string, command ...string) error {
	e, err := b.c.ContainerExecCreate(ctx, id, container.ExecOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	a, err := b.c.ContainerExecAttach(ctx, e.ID, container.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer a.Close()
	if _, err := io.Copy(io.Discard, a.Reader); err != nil {
		return err
	}
	i, err := b.c.ContainerExecInspect(ctx, e.ID)
	if err != nil {
		return err
	}
	if i.Running || i.ExitCode != 0 {
		return fmt.Errorf("exec: running %t, code %d", i.Running, i.ExitCode)
	}
	return nil
}

func (b *bare) pause(ctx context.Context, id string) error { return b.c.ContainerPause(ctx, id) }

func (b *bare) resume(ctx context.Context, id string) error { return b.c.ContainerUnpause(ctx, id) }

func (b *bare) stop(ctx context.Context, id string) error {
	return b.c.ContainerStop(ctx, id, container.StopOptions{})
}

func (b *bare) remove(ctx context.Context, id string) error {
	if err := b.c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}); err != nil {
		return err
	}
	return b.c.NetworkRemove(ctx, id)
}

// look makes the calls that a restart needs at least: one list and an inspect of each container.
func (b *bare) look(ctx context.Context) error {
	list, err := b.c.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return err
	}
	for _, c := range list {
		if _, err := b.c.ContainerInspect(ctx, c.ID); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}
