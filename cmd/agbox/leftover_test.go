package main

import (
	"context"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/dockerx"
	"github.com/agbox/agbox/internal/host/naming"
)

// leftoverCommand is "leftover ID": it creates a container and a network with this daemon's label for a sandbox with that ID. "leftover part ID" creates
// the part of a snapshot with that ID, and a container outside of agbox from it, which keeps every resync from removing it.
func leftoverCommand(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 && (len(args) != 2 || args[0] != "part") {
		ts.Fatalf("usage: leftover ID, leftover part ID")
	}
	w := ts.Value(worldKey{}).(*world)
	c, err := client.Dial(w.socket)
	ts.Check(err)
	defer c.Close()
	ctx := context.Background()
	ping, err := c.Ping(ctx)
	ts.Check(err)
	if len(args) == 2 {
		other, err := w.engine.CreateOutside(dockerx.ContainerSpec{Name: "other", Image: "x"})
		ts.Check(err)
		part, err := w.engine.CommitContainer(ctx, other, map[string]string{naming.SnapshotInstance: ping.GetInstanceId(), naming.SnapshotPart: args[1]})
		ts.Check(err)
		_, err = w.engine.CreateOutside(dockerx.ContainerSpec{Name: "user", Image: part})
		ts.Check(err)
		return
	}
	labels := map[string]string{naming.Instance: ping.GetInstanceId(), naming.SandboxID: args[0]}
	network, err := w.engine.CreateNetwork(ctx, dockerx.NetworkSpec{Name: naming.Network(args[0]), Labels: labels})
	ts.Check(err)
	_, err = w.engine.CreateOutside(dockerx.ContainerSpec{Name: naming.Primary(args[0]), Image: "x", Labels: labels, NetworkID: network.ID})
	ts.Check(err)
}
