//go:build docker

package dockerx

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/agbox/agbox/dockerx/dockertest/busybox"
)

// The overhead of this package over the bare API, for one cheap call and for the creation of a sandbox.

func BenchmarkListContainers(b *testing.B) {
	b.Run("dockerx", func(b *testing.B) {
		e := benchEngine(b)
		for b.Loop() {
			if _, err := e.ListContainers(b.Context(), map[string]string{testLabel: ""}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		host, err := parseHost("")
		if err != nil {
			b.Fatal(err)
		}
		c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return host.dial(ctx)
		}}}
		defer c.CloseIdleConnections()
		for b.Loop() {
			resp, err := c.Get("http://docker/v1.41/containers/json?all=1&filters=%7B%22label%22:%7B%22" + testLabel + "%22:true%7D%7D")
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

func BenchmarkCreateNetworkAndContainer(b *testing.B) {
	e := benchEngine(b)
	image := uniqueName() + ":1"
	busybox.Import(b, "", image)
	ctx := b.Context()
	for b.Loop() {
		name := uniqueName()
		n, err := e.CreateNetwork(ctx, NetworkSpec{Name: name})
		if err != nil {
			b.Fatal(err)
		}
		id, err := e.CreateContainer(ctx, ContainerSpec{
			Name: name, Image: image, Cmd: []string{"sleep", "1000"}, NetworkID: n.ID,
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := e.StartContainer(ctx, id); err != nil {
			b.Error(err)
		}
		b.StopTimer()
		if err := e.RemoveContainer(ctx, id); err != nil {
			b.Error(err)
		}
		if err := e.RemoveNetwork(ctx, n.ID); err != nil {
			b.Error(err)
		}
		b.StartTimer()
	}
}

func benchEngine(b *testing.B) *Engine {
	e, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	return e
}
