// Package client talks to agboxd, the daemon of agbox. It promises to stay compatible: what is exported here is not
// removed or changed in meaning within a major version, as the agbox.v1 API it speaks.
//
// Calls return *Error with the daemon's code and reason. Waits follow events, never poll, and outlive a restart of the
// daemon: they reconnect with a growing pause until their context ends.
//
//	c, err := client.Dial(client.DefaultSocket()) // or "ssh://user@host", "tcp://host:port"
//	...
//	sb, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "debian:13"}})
//	sb, err = c.WaitSandbox(ctx, sb.GetSandboxId(), client.Ready)
//	out, err := c.Command(ctx, sb.GetSandboxId(), "uname", "-a").Output() // as os/exec
//
// A Client is safe for concurrent use.
package client
