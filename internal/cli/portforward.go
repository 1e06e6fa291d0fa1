package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/client"
	"github.com/agbox/agbox/internal/wait"
)

// forward is one forwarded port; local 0 is any free port.
type forward struct{ local, remote uint16 }

func (a *app) portForwardCommand() *cobra.Command {
	var addresses []string
	cmd := &cobra.Command{
		Use: "port-forward NAME [LOCAL:]REMOTE...", Short: "Forward local ports to ports inside a sandbox", SuggestFor: []string{"forward", "tunnel", "port"},
		Long: `Forward local ports to TCP ports inside a sandbox, also to those that listen on its loopback only. No published port is needed. ":REMOTE"
takes any free local port. A connection to a port on which nothing listens is closed, with one line here. It runs until it is
interrupted; connections made after a restart of the daemon work, earlier ones end.`,
		Example: "  agbox port-forward web 8080\n  agbox port-forward web 8080:80 5432\n  agbox port-forward web :80 --address 127.0.0.1,::1", ValidArgsFunction: a.sandboxKind().first,
		Args: count(2, 1<<16, "the name of a sandbox and ports"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ports []forward
			for _, arg := range args[1:] {
				f, err := parseForward(arg)
				if err != nil {
					return usagef(cmd, "%v", err)
				}
				ports = append(ports, f)
			}
			return a.portForward(cmd.Context(), args[0], addresses, ports)
		},
	}
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"127.0.0.1"}, "local addresses to listen on")
	return cmd
}

// parseForward parses "REMOTE", "LOCAL:REMOTE" or ":REMOTE".
func parseForward(arg string) (forward, error) {
	local, remote, both := strings.Cut(arg, ":")
	if !both {
		remote = local
	}
	r, err := strconv.ParseUint(remote, 10, 16)
	if err != nil || r == 0 {
		return forward{}, fmt.Errorf("bad port %q: write [LOCAL:]REMOTE with numbers from 1 to 65535", arg)
	}
	if local == "" {
		return forward{0, uint16(r)}, nil
	}
	l, err := strconv.ParseUint(local, 10, 16)
	if err != nil {
		return forward{}, fmt.Errorf("bad port %q: write [LOCAL:]REMOTE with numbers from 1 to 65535", arg)
	}
	return forward{uint16(l), uint16(r)}, nil
}

func (a *app) portForward(ctx context.Context, name string, addresses []string, ports []forward) error {
	sb, err := a.sandboxKind().resolve(ctx, name)
	if err != nil {
		return err
	}
	if sb.GetState() != agboxv1.SandboxState_SANDBOX_STATE_READY {
		return fmt.Errorf("sandbox %s is not running; see \"agbox describe %s\"", name, name)
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, p := range ports {
		for _, address := range addresses {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(int(p.local))))
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { l.Close() }) // it stays registered: acceptAll waits for it also if a later listener fails
			fmt.Fprintf(a.Out, "forwarding %s -> %d\n", l.Addr(), p.remote)
			running.Go(func() { a.acceptAll(ctx, l, &running, sb.GetSandboxId(), p.remote) })
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// acceptAll forwards the connections of a listener until ctx ends, which closes it.
func (a *app) acceptAll(ctx context.Context, l net.Listener, running *sync.WaitGroup, sandboxID string, port uint16) {
	defer l.Close()
	for ctx.Err() == nil {
		conn, err := l.Accept()
		if err != nil { // out of descriptors: connections that end make room
			_ = wait.For(ctx, 50*time.Millisecond)
			continue
		}
		running.Go(func() {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			to := &agboxv1.TunnelOpen{SandboxId: sandboxID, Target: &agboxv1.TunnelOpen_Port{Port: uint32(port)}}
			err := a.conn().Forward(ctx, to, conn.(*net.TCPConn))
			if refused, ok := errors.AsType[*client.Error](err); ok && ctx.Err() == nil {
				a.complain(fmt.Errorf("connection from %s: %w", conn.RemoteAddr(), refused))
			}
		})
	}
}
