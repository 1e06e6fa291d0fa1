package main

import (
	"context"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// leftoverCommand is "leftover ID": it creates a container and a network with this daemon's label for a sandbox with that ID.
func leftoverCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: leftover ID")
	}
	w := ts.Value(worldKey{}).(*world)
	c, err := client.Dial(w.socket)
	ts.Check(err)
	defer c.Close()
	ctx := context.Background()
	ping, err := c.Ping(ctx)
	ts.Check(err)
	labels := map[string]string{naming.Instance: ping.GetInstanceId(), naming.SandboxID: args[0]}
	network, err := w.engine.CreateNetwork(ctx, dockerx.NetworkSpec{Name: naming.Network(args[0]), Labels: labels})
	ts.Check(err)
	_, err = w.engine.CreateOutside(dockerx.ContainerSpec{Name: naming.Primary(args[0]), Image: "x", Labels: labels, NetworkID: network.ID})
	ts.Check(err)
}
