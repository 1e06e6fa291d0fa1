//go:build docker

package dockerx

import (
	"context"
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// TestAContainerMadeOnANetworkIDOutlivesThatNetwork: a container refers to its network by ID when an engine of API 1.41 created
// it before an upgrade, or an agboxd that did not yet give engines the name.
func TestAContainerMadeOnANetworkIDOutlivesThatNetwork(t *testing.T) {
	_, e := private(t)
	raw := func(f func(ctx context.Context, c *client.Client) error) {
		t.Helper()
		if err := e.withClient(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	name := uniqueName()
	made := func() Network {
		t.Helper()
		n, err := e.CreateNetwork(t.Context(), NetworkSpec{Name: name, Labels: map[string]string{testLabel: name}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := made()
	var id string
	raw(func(ctx context.Context, c *client.Client) error {
		resp, err := c.ContainerCreate(ctx,
			&container.Config{Image: "busybox:1", Cmd: []string{"sleep", "1000"}, StopSignal: "SIGKILL"},
			&container.HostConfig{NetworkMode: container.NetworkMode(n.ID)},
			&network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{n.ID: {Aliases: []string{"db"}}}}, nil, name)
		id = resp.ID
		return err
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.StartContainer(t.Context(), id))
	for range 3 { // each network replaces the previous one
		must(e.StopContainer(t.Context(), id, 0))
		must(e.RemoveNetwork(t.Context(), n.ID))
		n = made()
		must(e.ConnectNetwork(t.Context(), n.ID, id, []string{"db"}))
		if d := detail(t, e, id); !slices.Equal(d.Networks, []string{n.ID}) {
			t.Errorf("before the start it is on %v, not on %s", d.Networks, n.ID)
		}
		for range 2 {
			must(e.StartContainer(t.Context(), id))
			must(e.StartContainer(t.Context(), id)) // already running
			wantOneEnd(t, e, id, n)
			must(e.StopContainer(t.Context(), id, 0))
		}
		// As if agboxd died between a start and its cleanup, or before the start.
		var before *container.InspectResponse
		raw(func(ctx context.Context, c *client.Client) (err error) {
			if before, err = inspect(ctx, c, id); err != nil || !isLoose(c.ClientVersion()) {
				return err
			}
			_, err = moveToMode(ctx, c, before)
			return err
		})
		must(e.StartContainer(t.Context(), id))
		wantOneEnd(t, e, id, n)
		must(e.StopContainer(t.Context(), id, 0))
		raw(func(ctx context.Context, c *client.Client) error {
			if !isLoose(c.ClientVersion()) {
				return nil
			}
			_, err := moveToMode(ctx, c, before)
			must(err)
			return c.ContainerStart(ctx, id, container.StartOptions{})
		})
		must(e.StopContainer(t.Context(), id, 0))
		must(e.StartContainer(t.Context(), id))
		wantOneEnd(t, e, id, n)
	}
	must(e.RemoveContainer(t.Context(), id))
	must(e.RemoveNetwork(t.Context(), n.ID))
}

// wantOneEnd checks that the container has one address, on n, also under its alias.
func wantOneEnd(t *testing.T, e *Engine, id string, n Network) {
	t.Helper()
	err := e.withClient(t.Context(), func(ctx context.Context, c *client.Client) error {
		d, err := c.ContainerInspect(ctx, id)
		if err != nil {
			return err
		}
		ends := d.NetworkSettings.Networks
		end := ends[n.Name]
		if len(ends) != 1 || end == nil || end.NetworkID != n.ID || end.IPAddress == "" || !slices.Contains(end.Aliases, "db") {
			t.Errorf("it is on %+v, want only %s as db", ends, n.ID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
